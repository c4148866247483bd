package domain

import (
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Decide answers one command at the given time (see [Lane.Advance]) and appends the events it makes to evs. The events
// are applied already when it returns. A refusal and a repeat make no events.
func (l *Lane) Decide(cmd *wire.Command, at wire.Instant, evs []wire.Event) ([]wire.Event, wire.Outcome) {
	d := decision{events: evs}
	first := len(evs)
	p := [1]prepared{{cmd: cmd}}
	l.prepare(p[:])
	d.decide(l, &p[0], l.Advance(at))
	for i := first; i < len(d.events); i++ {
		d.events[i].Code = strings.Clone(d.events[i].Code)
	}
	d.out.Code, d.out.Message = strings.Clone(d.out.Code), strings.Clone(d.out.Message)
	return d.events, d.out
}

// decide answers one command. Code and Message of the outcome are views of the decision, valid until the next one.
func (d *decision) decide(l *Lane, p *prepared, now wire.Instant) {
	d.lane, d.prepared, d.now, d.c, d.first, d.shown, d.open = l, p, now, nil, len(d.events), 0, 0
	cmd := p.cmd
	d.out = wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign}
	switch cmd.Type {
	case wire.Claim:
		d.claim()
	case wire.Remind:
		d.remind()
	case wire.Unremind:
		d.unremind()
	case wire.Expire:
		d.expire()
	case wire.RemindDue:
		d.remindDue()
	case wire.CreateCampaign:
		d.create()
	case wire.UpdateCampaign:
		d.update()
	case wire.PauseCampaign, wire.ResumeCampaign, wire.EndCampaign:
		d.changeState()
	case wire.ImportCodes:
		d.importCodes()
	default:
		d.onCoupon()
	}
}

// Validate answers what redeem would answer at the given time, changing nothing.
func (l *Lane) Validate(cmd *wire.Command, now wire.Instant) wire.Outcome {
	p := [1]prepared{{cmd: cmd}}
	l.prepare(p[:])
	d := decision{prepared: &p[0], lane: l, now: max(now, l.clock)}
	d.out = wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign}
	n, _, act, ok := d.checkRedeem()
	if !ok {
		return d.out
	}
	d.couponOutcome(wire.StatusRedeemed, n)
	d.out.OrderID, d.out.Benefit = cmd.OrderID, d.c.settings.Benefit
	if act != nil {
		d.out.RedeemedCount = act.count
		d.repeated(n)
	} else {
		count, _ := d.c.redemptionState(n)
		d.out.RedeemedCount = count + 1
	}
	return d.out
}
