package scheduler

import (
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
)

// simPeople create campaigns, claim, subscribe, cancel, redeem, and change their minds.
type simPeople struct {
	w         *simWorld
	ids       int
	campaigns int
	codes     []string
}

var simBefores = []time.Duration{time.Second, 5 * time.Second, time.Minute, 61*time.Second + time.Microsecond}

// soon is an instant that may lie a little in the past, often the same as another, rarely far away.
func (p *simPeople) soon() domain.Instant {
	r := p.w.rng
	now := max(p.w.lane.Clock(), p.w.now)
	switch r.IntN(12) {
	case 0:
		return domain.At(time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC))
	case 1:
		return now + domain.Instant(2*time.Hour/time.Microsecond)
	case 2:
		return now - domain.Instant(r.IntN(10_000_000))
	case 3, 4, 5:
		return now + domain.Instant(r.IntN(300_000_000))
	}
	const grid = 60_000_000
	return (now/grid + domain.Instant(1+r.IntN(4))) * grid
}

func (p *simPeople) act() bool {
	r := p.w.rng
	if p.campaigns < 4 && r.IntN(4) == 0 || p.campaigns == 0 {
		settings := domain.DefaultSettings(1000)
		settings.PerCustomer = 0
		settings.Priority = []string{domain.PriorityHigh, domain.PriorityNormal, domain.PriorityLow}[r.IntN(3)]
		switch r.IntN(5) {
		case 0, 1:
			settings.OpensAt = p.soon()
		case 2:
			settings.ExpiresAt = p.soon()
		case 3:
			settings.ValidFor = []time.Duration{30 * time.Second, 5 * time.Minute, 2 * time.Hour}[r.IntN(3)]
		}
		p.request(domain.Command{Type: domain.CreateCampaign, Campaign: fmt.Sprint("c", p.campaigns), Patch: domain.PatchOf(settings)})
		p.campaigns++
		return true
	}
	campaign := fmt.Sprint("c", r.IntN(p.campaigns))
	customer := fmt.Sprint("u", r.IntN(12))
	kind := []string{domain.KindOpens, domain.KindExpires}[r.IntN(2)]
	before := simBefores[r.IntN(len(simBefores))]
	cmd := domain.Command{Campaign: campaign}
	switch n := r.IntN(100); {
	case n < 35: // a workload comes for the same
		cmd.Type = domain.Claim
		if n >= 10 {
			cmd.Type, cmd.Kind, cmd.Before = domain.Remind, kind, before
		}
		p.workload(cmd)
		return true
	case n < 55:
		cmd.Type, cmd.CustomerID, cmd.Kind, cmd.Before = domain.Unremind, customer, kind, before
	case n < 85:
		switch r.IntN(3) {
		case 0:
			cmd.Patch.OpensAt = p.soon()
			cmd.Patch.Set("opens_at")
		case 1:
			cmd.Patch.ExpiresAt = p.soon()
			cmd.Patch.Set("expires_at")
		case 2:
			cmd.Patch.Priority = []string{domain.PriorityHigh, domain.PriorityNormal, domain.PriorityLow}[r.IntN(3)]
			cmd.Patch.Set("priority")
		}
		cmd.Type = domain.UpdateCampaign
		p.request(cmd)
		if r.IntN(2) == 0 {
			return true
		}
		kind = domain.KindOpens
		if cmd.Patch.ExpiresAt != 0 {
			kind = domain.KindExpires
			p.workload(domain.Command{Type: domain.Claim, Campaign: campaign})
		}
		p.workload(domain.Command{Type: domain.Remind, Campaign: campaign, Kind: kind, Before: before})
		return true
	case n < 87:
		cmd.Type = []domain.CommandType{domain.PauseCampaign, domain.ResumeCampaign}[r.IntN(2)]
	case n < 88 && r.IntN(3) == 0:
		cmd.Type = domain.EndCampaign
	case len(p.codes) == 0:
		return false
	default:
		cmd.Campaign, cmd.Code = "", p.codes[r.IntN(len(p.codes))]
		switch r.IntN(4) {
		case 0:
			cmd.Type, cmd.OrderID = domain.Redeem, "o"
		case 1:
			cmd.Type, cmd.Reason = domain.Void, "r"
		default:
			cmd.Type, cmd.ExpiresAt = domain.Extend, p.soon()
		}
	}
	p.request(cmd)
	return true
}

// workload lets up to a dozen customers request the same.
func (p *simPeople) workload(cmd domain.Command) {
	for i := range 1 + p.w.rng.IntN(12) {
		cmd.CustomerID = fmt.Sprint("u", i)
		p.request(cmd)
	}
}

func (p *simPeople) request(cmd domain.Command) {
	p.ids++
	cmd.ID = fmt.Sprint("p-", p.ids)
	p.w.keep(cmd)
}

// hear takes in an outcome.
func (p *simPeople) hear(cmd *domain.Command, out *domain.Outcome) {
	if cmd.Type == domain.Claim && out.Code != "" {
		p.codes = append(p.codes, string(append([]byte(nil), out.Code...)))
	}
}
