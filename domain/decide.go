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

// onCoupon decides the commands that name a coupon by its code.
func (d *decision) onCoupon() {
	switch d.cmd.Type {
	case wire.Redeem:
		d.redeem()
	case wire.Rollback:
		d.rollback()
	case wire.Void:
		d.void()
	case wire.Extend:
		d.extend()
	default:
		d.refuse(wire.Invalid, unknownCommand)
	}
}

// unknownCommand is the message for a command that no rule decides.
const unknownCommand = "unknown command"
