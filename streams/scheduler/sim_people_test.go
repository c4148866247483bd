package scheduler

import (
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// simPeople create campaigns, claim, subscribe, cancel, redeem, and change their minds.
type simPeople struct {
	w         *simWorld
	ids       int
	campaigns int
	codes     []string
}

var simBefores = []time.Duration{time.Second, 5 * time.Second, time.Minute, 61*time.Second + time.Microsecond, 999 * time.Nanosecond, 59*time.Second + 999_999_900}

var simLives = []time.Duration{30 * time.Second, 3*time.Minute + 500_000_000, 5 * time.Minute, 2 * time.Hour}

// soon is an instant that may lie a little in the past, often the same as another, rarely far away.
func (p *simPeople) soon() wire.Instant {
	r := p.w.Rng
	now := max(p.w.lane.Clock(), p.w.now())
	switch r.IntN(12) {
	case 0:
		return wire.At(time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC))
	case 1:
		return now + wire.Instant(2*time.Hour/time.Microsecond)
	case 2:
		return now - wire.Instant(r.IntN(10_000_000))
	case 3, 4, 5:
		return now + wire.Instant(r.IntN(300_000_000))
	}
	const grid = 60_000_000
	return (now/grid + wire.Instant(1+r.IntN(4))) * grid
}

func (p *simPeople) act() bool {
	r := p.w.Rng
	if p.campaigns < 4 && r.IntN(4) == 0 || p.campaigns == 0 {
		settings := wire.DefaultSettings(1000)
		settings.PerCustomer = 0
		settings.Priority = []string{wire.PriorityHigh, wire.PriorityNormal, wire.PriorityLow}[r.IntN(3)]
		switch r.IntN(5) {
		case 0, 1:
			settings.OpensAt = p.soon()
		case 2:
			settings.ExpiresAt = p.soon()
		case 3:
			settings.ValidFor = simLives[r.IntN(len(simLives))]
		}
		p.request(wire.Command{Type: wire.CreateCampaign, Campaign: fmt.Sprint("c", p.campaigns), Patch: wire.PatchOf(settings)})
		p.campaigns++
		return true
	}
	campaign := fmt.Sprint("c", r.IntN(p.campaigns))
	customer := fmt.Sprint("u", r.IntN(12))
	kind := []string{wire.KindOpens, wire.KindExpires}[r.IntN(2)]
	before := simBefores[r.IntN(len(simBefores))]
	cmd := wire.Command{Campaign: campaign}
	switch n := r.IntN(100); {
	case n < 35: // a workload comes for the same
		cmd.Type = wire.Claim
		if n >= 10 {
			cmd.Type, cmd.Kind, cmd.Before = wire.Remind, kind, before
		}
		p.workload(cmd)
		return true
	case n < 55:
		cmd.Type, cmd.CustomerID, cmd.Kind, cmd.Before = wire.Unremind, customer, kind, before
	case n < 85:
		switch r.IntN(5) {
		case 3:
			cmd.Patch.ValidFor = simLives[r.IntN(len(simLives))]
			cmd.Patch.Set("valid_for")
		case 4: // without an end
			cmd.Patch.Set("expires_at")
			cmd.Patch.Set("valid_for")
		case 0:
			cmd.Patch.OpensAt = p.soon()
			cmd.Patch.Set("opens_at")
		case 1:
			cmd.Patch.ExpiresAt = p.soon()
			cmd.Patch.Set("expires_at")
		case 2:
			cmd.Patch.Priority = []string{wire.PriorityHigh, wire.PriorityNormal, wire.PriorityLow}[r.IntN(3)]
			cmd.Patch.Set("priority")
		}
		cmd.Type = wire.UpdateCampaign
		p.request(cmd)
		if r.IntN(2) == 0 {
			return true
		}
		kind = wire.KindOpens
		if cmd.Patch.ExpiresAt != 0 {
			kind = wire.KindExpires
			p.workload(wire.Command{Type: wire.Claim, Campaign: campaign})
		}
		p.workload(wire.Command{Type: wire.Remind, Campaign: campaign, Kind: kind, Before: before})
		return true
	case n < 87:
		cmd.Type = []wire.CommandType{wire.PauseCampaign, wire.ResumeCampaign}[r.IntN(2)]
	case n < 88 && r.IntN(3) == 0:
		cmd.Type = wire.EndCampaign
	case len(p.codes) == 0:
		return false
	default:
		cmd.Campaign, cmd.Code = "", p.codes[r.IntN(len(p.codes))]
		switch r.IntN(8) {
		case 0, 1, 2:
			cmd.Type, cmd.OrderID = wire.Redeem, "o"
		case 3, 4: // sets the coupon's reminders again
			cmd.Type, cmd.OrderID = wire.Rollback, "o"
		case 5:
			cmd.Type, cmd.Reason = wire.Void, "r"
		default:
			cmd.Type, cmd.ExpiresAt = wire.Extend, p.soon()
		}
	}
	p.request(cmd)
	return true
}

// workload lets up to a dozen customers request the same.
func (p *simPeople) workload(cmd wire.Command) {
	for i := range 1 + p.w.Rng.IntN(12) {
		cmd.CustomerID = fmt.Sprint("u", i)
		p.request(cmd)
	}
}

func (p *simPeople) request(cmd wire.Command) {
	p.ids++
	cmd.ID = fmt.Sprint("p-", p.ids)
	p.w.keep(cmd)
}

// hear takes in an outcome.
func (p *simPeople) hear(cmd *wire.Command, out *wire.Outcome) {
	if cmd.Type == wire.Claim && out.Code != "" {
		p.codes = append(p.codes, string(append([]byte(nil), out.Code...)))
	}
}
