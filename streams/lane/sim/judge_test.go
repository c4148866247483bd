package sim

import (
	"errors"
	"fmt"
	"maps"
	"time"

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
	notTooLate  = "never redeemed at or after its expiry, nor too often"
	stops       = "a lane stops only where something was lost"
	noEffect    = "refused means no effect"
	byTheWriter = "who did not write a step answers nothing of it"
	stuck       = "what was ordered is decided in the end"
	theFold     = "the state is the fold of the log"
)

// judge folds the log from its lines in the simplest way, and records the answers. It shares no rule with the lane.
type judge struct {
	w       *world
	reads   *eventlog.Judge
	seen    uint64 // event messages looked at
	covered uint64
	clock   time.Time
	cover   []cover // in the order of the log
	done    map[string]done
	coupons map[string]*coupon // by code
	claimed map[string]uint32  // by campaign
	ends    map[string]wire.Instant
	limits  map[string]uint32
	through map[string]wire.Instant
	aside   map[string]bool // invariants not looked at, to see whether others find the same
}

// cover is an event message and the commands it covers.
type cover struct {
	seq         uint64
	first, last uint64
	owner       string
	commandTime time.Time
}

// done is an accepted command.
type done struct {
	seq uint64 // event message
	ev  wire.Event
}

type coupon struct {
	campaign, customer string
	n                  uint32
	own                wire.Instant
	count              uint32
	voided             bool
	uses               map[string]bool // orders it was ever redeemed for
}

func newJudge(w *world) *judge {
	j := &judge{w: w}
	j.reset()
	return j
}

func (j *judge) reset() {
	aside := j.aside
	*j = judge{w: j.w, reads: eventlog.JudgeEvents(j.w.log, 0), aside: aside, done: map[string]done{}, coupons: map[string]*coupon{}, claimed: map[string]uint32{},
		ends: map[string]wire.Instant{}, limits: map[string]uint32{}, through: map[string]wire.Instant{}}
}

func (j *judge) violate(kind, format string, args ...any) {
	if !j.aside[kind] {
		j.w.violate(kind, format, args...)
	}
}

// look folds what was written since.
func (j *judge) look() {
	for j.seen < j.w.events.last && j.w.found == nil {
		j.seen++
		raw, err := j.w.events.get(j.seen)
		if err != nil {
			j.w.violate("broken simulation", "%v", err)
			return
		}
		m, err := j.reads.Read(&raw)
		if errors.Is(err, eventlog.ErrForeign) {
			continue
		}
		if err != nil {
			j.w.violate("broken simulation", "%v", err)
			return
		}
		j.message(&m)
	}
}

func (j *judge) message(m *eventlog.Message) {
	j.w.note("event message %d by %s covers %d-%d, %d bytes", m.Sequence, m.Owner, m.Commands[0], m.Commands[1], len(m.Payload))
	if m.Rebase == 0 && m.Commands[0] != j.covered+1 {
		j.violate(contiguous, "message %d by %s covers from %d, the one before up to %d", m.Sequence, m.Owner, m.Commands[0], j.covered)
	}
	if m.LaneTime.Before(j.clock) {
		j.violate(monotone, "message %d is of %s, after %s", m.Sequence, m.LaneTime, j.clock)
	}
	j.covered = m.Commands[1]
	j.cover = append(j.cover, cover{m.Sequence, m.Commands[0], m.Commands[1], m.Owner, m.CommandTime})
	for _, line := range eventlog.Lines(m.Payload) {
		var ev wire.Event
		if err := wire.ParseEvent(line, &ev); err != nil {
			j.w.violate("broken simulation", "%v", err)
			return
		}
		if at := ev.At.Time(); at.Before(j.clock) || at.After(m.LaneTime) {
			j.violate(monotone, "message %d: %s at %s, between %s and %s", m.Sequence, ev.Type, at, j.clock, m.LaneTime)
		}
		j.event(m, &ev)
	}
	j.clock = m.LaneTime
}

func (j *judge) event(m *eventlog.Message, ev *wire.Event) {
	// One claim may make two events; an expire is answered as far as time has come, and more when it is sent later.
	if ev.ID != "" && ev.Type != wire.CampaignSoldOut && ev.Type != wire.CouponsExpired {
		if before, twice := j.done[ev.ID]; twice {
			j.violate(sameAnswer, "%s is accepted in message %d and again in %d", ev.ID, before.seq, m.Sequence)
		}
		j.done[ev.ID] = done{m.Sequence, *ev}
		j.mayHave(ev.ID, m.Commands[0], m.Commands[1])
	}
	k := j.coupons[ev.Code]
	switch ev.Type {
	case wire.CampaignCreated, wire.CampaignUpdated:
		j.ends[ev.Campaign], j.limits[ev.Campaign] = ev.Settings.Expires(), ev.Settings.MaxRedemptions
	case wire.CouponClaimed:
		if k != nil {
			j.violate(oneHolder, "%s is %s's and %s's", ev.Code, k.customer, ev.CustomerID)
		}
		if j.claimed[ev.Campaign]++; j.claimed[ev.Campaign] != ev.N {
			j.violate(oneHolder, "coupon %d of %s is claimed as number %d", ev.N, ev.Campaign, j.claimed[ev.Campaign])
		}
		j.coupons[ev.Code] = &coupon{campaign: ev.Campaign, customer: ev.CustomerID, n: ev.N, own: ev.ExpiresAt, uses: map[string]bool{}}
	case wire.CouponRedeemed:
		end := j.ends[ev.Campaign]
		if k != nil && k.own != 0 {
			end = k.own
		}
		if k == nil || k.voided || k.count >= j.limits[ev.Campaign] || ev.At >= end || end <= j.through[ev.Campaign] {
			j.violate(notTooLate, "message %d: %s is redeemed at %s: %+v, expires %s, announced through %s", m.Sequence, ev.Code, ev.At, k, end, j.through[ev.Campaign])
			return
		}
		k.count++
		k.uses[ev.OrderID] = true
	case wire.CouponRolledBack:
		if k == nil || k.count == 0 || !k.uses[ev.OrderID] {
			j.violate(notTooLate, "message %d: %s is rolled back, not having been redeemed", m.Sequence, ev.Code)
			return
		}
		k.count--
	case wire.CouponVoided:
		if k != nil {
			k.voided = true
		}
	case wire.CouponExtended:
		if k != nil {
			k.own = ev.ExpiresAt
		}
	case wire.CouponsExpired:
		j.through[ev.Campaign] = ev.Through
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
	j.violate(noEffect, "%s took effect in the step over %d-%d, which holds no command of it that was not refused", id, first, last)
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
func (j *judge) answered(p *process, a protocol.Answer) {
	j.look()
	in, outs := j.w.crowd.of(a)
	if in == nil {
		return
	}
	step := j.writer(in.seq)
	for i := range outs {
		o, out := in.ops[i], &outs[i]
		j.w.note("%s answers %s (command %d): %s %s %s repeat=%v", p.Nonce(), o.id, in.seq, out.Status, out.Refusal, out.Code, out.Repeat)
		if out.Refused() {
			j.refused(in, o, out)
		} else {
			j.accepted(in, o, out)
		}
	}
	if step == nil || step.owner != p.Nonce() {
		j.violate(byTheWriter, "%s answers command %d, whose step is %+v", p.Nonce(), in.seq, step)
	}
}

func (j *judge) refused(in *instance, o *op, out *wire.Outcome) {
	// A slow owner may answer late what it decided early.
	if o.answer != nil && in.seq > o.since && j.lasts(o) {
		j.violate(sameAnswer, "%s was answered %s %s, then refused: %s", o.id, o.answer.Status, o.answer.Code, out.Refusal)
	}
	in.refused[o] = true
	if d, ok := j.done[o.id]; ok {
		for i := range j.cover {
			if c := &j.cover[i]; c.seq == d.seq {
				j.mayHave(o.id, c.first, c.last)
			}
		}
	}
}

func (j *judge) accepted(in *instance, o *op, out *wire.Outcome) {
	if first := o.answer; first != nil && j.lasts(o) && (first.Status != out.Status || first.Code != out.Code || first.N != out.N) {
		j.violate(sameAnswer, "%s was answered %s %s, then %s %s", o.id, first.Status, first.Code, out.Status, out.Code)
	}
	if !j.holds(o, out) {
		j.violate(inTheLog, "%s is answered %s %s to %s (repeat=%v), of which the log does not know", o.id, out.Status, out.Code, o.customer, out.Repeat)
	}
	if o.answer == nil {
		kept := *out
		o.answer, o.since = &kept, in.seq
	}
	o.since = min(o.since, in.seq)
}

// lasts reports whether an accepted answer is for ever. Those of claims are. Others are if the command did it itself: one
// whose answer was "done already, under another id" is no more than that, and what was done may be undone.
func (j *judge) lasts(o *op) bool {
	_, own := j.done[o.id]
	return own || o.kind == wire.Claim
}

// holds reports whether the log agrees with an accepted answer.
func (j *judge) holds(o *op, out *wire.Outcome) bool {
	k := j.coupons[out.Code]
	switch {
	case o.kind == wire.Claim:
		return k != nil && k.customer == o.customer && k.campaign == o.campaign && k.n == out.N
	case o.kind == wire.Redeem:
		return k != nil && out.Code == o.code && k.uses[o.order]
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
		if in.seq < w.commands.first() {
			continue
		}
		raw, err := w.commands.get(in.seq)
		in.gone = err != nil || !raw.Time.Equal(in.stored)
	}
	// Refusals of commands that are not covered any more, or covered by no known step: they are decided again.
	reads := eventlog.JudgeEvents(w.log, 0)
	for i := uint64(1); i <= w.events.last; i++ {
		if raw, err := w.events.get(i); err == nil {
			if m, err := reads.Read(&raw); err == nil {
				j.cover = append(j.cover, cover{m.Sequence, m.Commands[0], m.Commands[1], m.Owner, m.CommandTime})
			}
		}
	}
	for _, in := range w.crowd.instances {
		if j.writer(in.seq) == nil {
			in.refused = map[*op]bool{}
		}
	}
	j.reset()
	saved := j.aside
	j.aside = map[string]bool{noEffect: true} // numbers may name other commands now
	maps.Copy(j.aside, saved)
	j.look()
	j.aside = saved
	for _, o := range w.crowd.ops {
		if _, own := j.done[o.id]; o.answer != nil && !(own && j.holds(o, o.answer)) {
			o.answer, o.heard = nil, false
		}
	}
}

// String describes a violation from where it was found.
func (w *world) String() string {
	return fmt.Sprintf("seed %d, step %d, lossy=%v", w.seed, w.steps, w.lossy)
}
