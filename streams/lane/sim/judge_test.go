package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
)

// The invariants, by the names that violations carry.
const (
	oneHolder   = "one holder per code"
	inTheLog    = "answered means in the log"
	sameAnswer  = "the same id gets the same answer"
	contiguous  = "steps cover the commands without gap or overlap"
	monotone    = "lane time never runs back"
	promises    = "the log keeps the promises, as the oracle folds it"
	stops       = "a lane stops only where something was lost"
	noEffect    = "refused means no effect"
	byTheWriter = "who did not write a step answers nothing of it"
	stuck       = "what was ordered is decided in the end"
	theFold     = "the state is the fold of the log"
)

// judge gives the log to the oracle, and records the answers. It shares no rule with the lane.
type judge struct {
	w       *world
	reads   *eventlog.Judge
	fold    *oracle.Fold
	found   int    // of its violations
	seen    uint64 // event messages looked at
	covered uint64
	clock   time.Time
	cover   []cover // in the order of the log
	done    map[string]done
	coupons map[string]coupon // by code
}

// cover is an event message and the commands it covers.
type cover struct {
	seq         uint64
	first, last uint64
	owner       string
}

// done is an accepted command.
type done struct {
	seq uint64 // event message
	ev  wire.Event
}

type coupon struct {
	*oracle.Coupon
	campaign string
}

func newJudge(w *world) *judge {
	j := &judge{w: w}
	j.reset()
	return j
}

func (j *judge) reset() {
	*j = judge{w: j.w, reads: eventlog.Events(nil, 0).In(j.w.log).JudgeWith(nil), fold: oracle.New(), done: map[string]done{}, coupons: map[string]coupon{}}
}

// look folds what was written since.
func (j *judge) look() {
	for j.seen < j.w.events.Last && j.w.Found == nil {
		j.seen++
		raw, err := j.w.events.Get(j.seen)
		if err != nil {
			j.w.Violate("broken simulation", "%v", err)
			return
		}
		m, err := j.reads.Read(&raw)
		if errors.Is(err, eventlog.ErrForeign) {
			continue
		}
		if err != nil {
			j.w.Violate("broken simulation", "%v", err)
			return
		}
		j.message(&m)
	}
}

func (j *judge) message(m *eventlog.Message) {
	j.w.Note("event message %d by %s covers %d-%d, %d bytes", m.Sequence, m.Owner, m.Commands[0], m.Commands[1], len(m.Payload))
	if m.Rebase == 0 && m.Commands[0] != j.covered+1 {
		j.w.Violate(contiguous, "message %d by %s covers from %d, the one before up to %d", m.Sequence, m.Owner, m.Commands[0], j.covered)
	}
	if m.LaneTime.Before(j.clock) {
		j.w.Violate(monotone, "message %d is of %s, after %s", m.Sequence, m.LaneTime, j.clock)
	}
	j.covered = m.Commands[1]
	j.cover = append(j.cover, cover{m.Sequence, m.Commands[0], m.Commands[1], m.Owner})
	for _, line := range eventlog.Lines(m.Payload) {
		var ev wire.Event
		if err := wire.ParseEvent(line, &ev); err != nil {
			j.w.Violate("broken simulation", "%v", err)
			return
		}
		if at := ev.At.Time(); at.Before(j.clock) || at.After(m.LaneTime) {
			j.w.Violate(monotone, "message %d: %s at %s, between %s and %s", m.Sequence, ev.Type, at, j.clock, m.LaneTime)
		}
		j.event(m, &ev)
	}
	j.clock = m.LaneTime
}

func (j *judge) event(m *eventlog.Message, ev *wire.Event) {
	// One claim may make two events; an expire is answered as far as time has come, and more when it is sent later.
	if ev.ID != "" && ev.Type != wire.CampaignSoldOut && ev.Type != wire.CouponsExpired {
		if before, twice := j.done[ev.ID]; twice {
			j.w.Violate(sameAnswer, "%s is accepted in message %d and again in %d", ev.ID, before.seq, m.Sequence)
		}
		j.done[ev.ID] = done{m.Sequence, *ev}
		j.mayHave(ev.ID, m.Commands[0], m.Commands[1])
	}
	if k, known := j.coupons[ev.Code]; known && ev.Type == wire.CouponRedeemed { // where time runs back, after it was announced
		if c := j.fold.Campaigns[k.campaign]; c.Expires(k.Coupon) <= c.Through {
			j.w.Violate(promises, "message %d: %s is redeemed, expiry is announced through %s", m.Sequence, ev.Code, c.Through)
		}
	}
	j.fold.Apply(fmt.Sprint("message ", m.Sequence), ev)
	for _, text := range j.fold.Violations[j.found:] {
		j.found++
		switch {
		case strings.Contains(text, "lane time ran back"):
			j.w.Violate(monotone, "%s", text)
		case strings.Contains(text, "accepted twice"):
			j.w.Violate(sameAnswer, "%s", text)
		case ev.Type == wire.CouponClaimed || ev.Type == wire.CampaignCreated:
			j.w.Violate(oneHolder, "%s", text)
		default:
			j.w.Violate(promises, "%s", text)
		}
	}
	if c := j.fold.Campaigns[ev.Campaign]; ev.Type == wire.CouponClaimed && c != nil {
		j.coupons[ev.Code] = coupon{c.Coupons[len(c.Coupons)-1], ev.Campaign}
	}
}

// mayHave checks that an accepted id has, among the commands of its step, one that was not refused.
func (j *judge) mayHave(id string, first, last uint64) {
	for _, in := range j.w.crowd.instances {
		if in.gone || in.seq < first || in.seq > last {
			continue
		}
		for _, o := range in.ops {
			if o.id == id && !in.refused[o] {
				return
			}
		}
	}
	j.w.Violate(noEffect, "%s took effect in the step over %d-%d, which holds no command of it that was not refused", id, first, last)
}

// writer is the newest message that covers a command.
func (j *judge) writer(seq uint64) *cover {
	for i := len(j.cover) - 1; i >= 0; i-- {
		if c := &j.cover[i]; c.first <= seq && seq <= c.last {
			return c
		}
	}
	return nil
}

// answered looks at an answer the moment it leaves: from then on a client may act on it.
func (j *judge) answered(p *process, a protocol.Reply) {
	j.look()
	in, outs := j.w.crowd.of(a)
	if in == nil {
		return
	}
	step := j.writer(in.seq)
	for i := range outs {
		o, out := in.ops[i], &outs[i]
		j.w.Note("%s answers %s (command %d): %s %s %s repeat=%v", p.Nonce(), o.id, in.seq, out.Status, out.Refusal, out.Code, out.Repeat)
		if out.Refused() {
			j.refused(in, o, out)
		} else {
			j.accepted(in, o, out)
		}
	}
	if step == nil || step.owner != p.Nonce() {
		j.w.Violate(byTheWriter, "%s answers command %d, whose step is %+v", p.Nonce(), in.seq, step)
	}
}

func (j *judge) refused(in *instance, o *op, out *wire.Outcome) {
	// A slow owner may answer late what it decided early.
	over := j.over(o, out.Refusal)
	if o.answer != nil && in.seq > o.since && j.lasts(o) && !over {
		j.w.Violate(sameAnswer, "%s was answered %s %s, then refused: %s", o.id, o.answer.Status, o.answer.Code, out.Refusal)
	}
	in.refused[o] = true
	if d, ok := j.done[o.id]; ok && !over { // an earlier command of it had the effect, perhaps one that a store lost since
		for i := range j.cover {
			if c := &j.cover[i]; c.seq == d.seq {
				j.mayHave(o.id, c.first, c.last)
			}
		}
	}
}

func (j *judge) accepted(in *instance, o *op, out *wire.Outcome) {
	if first := o.answer; first != nil && j.lasts(o) && (first.Status != out.Status || first.Code != out.Code || first.N != out.N) {
		j.w.Violate(sameAnswer, "%s was answered %s %s, then %s %s", o.id, first.Status, first.Code, out.Status, out.Code)
	}
	if !j.holds(o, out) {
		j.w.Violate(inTheLog, "%s is answered %s %s to %s (repeat=%v), of which the log does not know", o.id, out.Status, out.Code, o.customer, out.Repeat)
	}
	if o.answer == nil || !out.Repeat { // what it did itself lasts from then on, though it was done under another id before
		kept := *out
		o.answer, o.since = &kept, in.seq
	}
	o.since = min(o.since, in.seq)
}

// lasts reports whether an accepted answer is for ever. It is if the command did it itself: one whose answer was "done already,
// under another id" is no more than that, and what was done may be undone, and done again by the command. A claim has its
// customer's coupon until that is void.
func (j *judge) lasts(o *op) bool {
	if d, own := j.done[o.id]; own && j.before(d, o.since) && (o.kind != wire.Claim || d.ev.N == o.answer.N) {
		return true
	}
	k, known := j.coupons[o.answer.Code]
	return o.kind == wire.Claim && !(known && k.Voided)
}

// before reports whether something was done by a command up to seq, as far as steps tell.
func (j *judge) before(d done, seq uint64) bool {
	return slices.ContainsFunc(j.cover, func(c cover) bool { return c.seq == d.seq && c.first <= seq })
}

// over reports whether a command that was accepted may be refused for that reason: what it did was undone.
func (j *judge) over(o *op, r wire.Refusal) bool {
	switch k, known := j.coupons[o.code]; r {
	case wire.RedemptionRolledBack:
		return o.kind == wire.Redeem && known && slices.ContainsFunc(k.Redemptions, func(r *oracle.Redemption) bool { return r.Order == o.order && r.RolledBackAt != 0 })
	case wire.Outdated:
		return o.kind != wire.Claim && o.kind != wire.Redeem && o.kind != wire.Void
	}
	return false
}

// holds reports whether the log agrees with an accepted answer.
func (j *judge) holds(o *op, out *wire.Outcome) bool {
	k, known := j.coupons[out.Code]
	switch {
	case o.kind == wire.Claim:
		return known && k.Customer == o.customer && k.campaign == o.campaign && k.N == out.N
	case o.kind == wire.Redeem:
		return known && out.Code == o.code && slices.ContainsFunc(k.Redemptions, func(r *oracle.Redemption) bool { return r.Order == o.order })
	case !out.Repeat:
		_, ok := j.done[o.id]
		return ok
	}
	return true
}

// forget is called when a store lost something: what the log no longer holds is no longer promised. The log that is left
// must be as good as any.
func (j *judge) forget() {
	w := j.w
	j.reset()
	for _, in := range w.crowd.instances {
		// A message that was trimmed away is still the one at that sequence.
		if in.seq < w.commands.First() {
			continue
		}
		raw, err := w.commands.Get(in.seq)
		in.gone = err != nil || !raw.Time.Equal(in.stored)
	}
	// Refusals of commands that are not covered any more, or covered by no known step: they are decided again.
	reads := eventlog.Events(nil, 0).In(w.log).JudgeWith(nil)
	for i := uint64(1); i <= w.events.Last; i++ {
		if raw, err := w.events.Get(i); err == nil {
			if m, err := reads.Read(&raw); err == nil {
				j.cover = append(j.cover, cover{m.Sequence, m.Commands[0], m.Commands[1], m.Owner})
			}
		}
	}
	for _, in := range w.crowd.instances {
		if j.writer(in.seq) == nil {
			in.refused = map[*op]bool{}
		}
	}
	j.reset()
	saved := w.Aside
	w.Aside = map[string]bool{noEffect: true} // numbers may name other commands now
	maps.Copy(w.Aside, saved)
	j.look()
	w.Aside = saved
	for _, o := range w.crowd.ops {
		if _, own := j.done[o.id]; o.answer != nil && !(own && j.holds(o, o.answer)) {
			o.answer, o.heard = nil, false
		}
	}
}
