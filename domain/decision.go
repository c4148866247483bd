package domain

import (
	"strconv"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/code"
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

// decide answers one command. Code and Message in what it says are views of the decision: they live until the next one.
func (d *decision) decide(l *Lane, p *prepared, now wire.Instant) {
	d.lane, d.prepared, d.now, d.c, d.first, d.shown, d.open = l, p, now, nil, len(d.events), 0, 0
	cmd := p.cmd
	d.out = wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign}
	switch cmd.Type {
	case wire.Claim:
		d.claim()
	case wire.Redeem:
		d.redeem()
	case wire.Rollback:
		d.rollback()
	case wire.Void:
		d.void()
	case wire.Extend:
		d.extend()
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
		d.turn()
	case wire.ImportCodes:
		d.importCodes()
	default:
		d.refuse(wire.Invalid, "unknown command")
	}
}

// decision is one command on its way through the checks.
type decision struct {
	*prepared
	lane   *Lane
	now    wire.Instant
	c      *campaign // the one it is about
	events []wire.Event
	first  int
	out    wire.Outcome

	code    [code.MaxCodeLen]byte // of the coupon in question
	shown   int                   // length of it; 0 = not worked out yet
	later   bool                  // codes are left open, for the step to fill in
	open    uint32                // the coupon whose code is
	message []byte                // what a refusal says
}

// refuse answers no. The message is for people: it names what to do where there is something to do. A campaign is refused
// a million times, so messages are not formatted by package fmt.
func (d *decision) refuse(r wire.Refusal, message string) {
	d.out = wire.Outcome{ID: d.cmd.ID, Status: wire.StatusRefused, Campaign: d.cmd.Campaign, Refusal: r, Message: message}
	if d.c != nil {
		d.out.Campaign = d.c.name
	}
}

// say is a message around a text.
func (d *decision) say(before, text, after string) string {
	d.message = append(append(append(d.message[:0], before...), text...), after...)
	return wire.View(d.message)
}

// sayNumber is a message around a number.
func (d *decision) sayNumber(before string, n uint32, after string) string {
	d.message = append(strconv.AppendUint(append(d.message[:0], before...), uint64(n), 10), after...)
	return wire.View(d.message)
}

// sayTime is a message around an instant.
func (d *decision) sayTime(before string, at wire.Instant, after string) string {
	d.message = append(at.Append(append(d.message[:0], before...)), after...)
	return wire.View(d.message)
}

// campaign finds the command's campaign or refuses.
func (d *decision) campaign() bool {
	if d.c = d.prepared.c; d.c == nil {
		d.c = d.lane.find(d.cmd.Campaign)
	}
	if d.c == nil {
		d.refuse(wire.CampaignNotFound, d.say("there is no campaign ", d.cmd.Campaign, ""))
		return false
	}
	return true
}

// coupon finds the command's coupon or refuses.
func (d *decision) coupon() (n uint32, ok bool) {
	c, n, ok := d.lane.coupon(d.prepared)
	if !ok {
		d.refuse(wire.CodeNotFound, "there is no such code")
		return 0, false
	}
	d.c = c
	if c.imported == nil {
		d.shown = len(d.prepared.coupon.Raw.AppendCode(d.code[:0], c.settings.Prefix))
	}
	return n, true
}

// codeOf is the code of coupon n, the one in question, as people see it. It is worked out once.
func (d *decision) codeOf(n uint32) string {
	switch {
	case d.c.imported != nil:
		return d.c.imported.at(n - 1)
	case d.shown > 0:
	case d.later:
		d.shown, d.open = len(openCode.AppendCode(d.code[:0], d.c.settings.Prefix)), n
	default:
		d.shown = len(d.lane.codec.AppendCode(d.code[:0], d.c.settings.Prefix, d.c.number, n))
	}
	return wire.View(d.code[:d.shown])
}

// reused refuses an id that stood on another command before.
func (d *decision) reused() {
	d.refuse(wire.IdempotencyKeyReused, d.say("the id ", d.cmd.ID, " stood on another command before; give each command an id of its own"))
}

// emit adds an event of the command and returns it to be filled in.
func (d *decision) emit(t wire.EventType) *wire.Event {
	n := len(d.events)
	if n < cap(d.events) {
		d.events = d.events[:n+1]
		d.events[n] = wire.Event{}
	} else {
		d.events = append(d.events, wire.Event{})
	}
	ev := &d.events[n]
	ev.Type, ev.Campaign, ev.At, ev.ID = t, d.c.name, d.now, d.cmd.ID
	return ev
}

// apply folds the events made so far by this command, in order. It cannot fail: they were made from this very state.
func (d *decision) apply() {
	for i := d.first; i < len(d.events); i++ {
		d.applied(d.lane.Apply(&d.events[i]))
	}
	d.first = len(d.events)
}

// applied is told what applying an own event came to.
func (d *decision) applied(err error) {
	if err != nil {
		panic("domain: own event does not apply: " + err.Error())
	}
}

// holds reports whether the command's customer, if it names one, holds coupon n.
func (d *decision) holds(n uint32) bool {
	return d.cmd.CustomerID == "" || d.customer == d.c.claims.At(n-1).customer
}

// couponOutcome fills in what every answer about a coupon says.
func (d *decision) couponOutcome(status string, n uint32) {
	d.out.Status, d.out.Campaign, d.out.N = status, d.c.name, n
	d.out.Code = d.codeOf(n)
	d.out.CustomerID = d.cmd.CustomerID
	if at := d.c.expires(n); at != wire.Never {
		d.out.ExpiresAt = at
	}
}
