package timers

import (
	"bufio"
	"encoding/binary"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// The form of timers in a snapshot. Numbers are unsigned varints (signed ones zigzag), texts their length and bytes, lists
// their length and elements; campaigns by name, so that equal timers have equal bytes.
//
//	campaigns
//	campaign: name · priority · late after · opens · expires · expired through · seconds (gaps) · fractional instants · own expiries · reminders
//	own expiries: runs of coupons: gap · length - 1
//	reminder, pending or restorable: gap of r · group [of a new one: kind or restorable, before, own] · of kind expires: n (signed gap) · customer
//
// The number of the form is stored beside the content in the snapshot store, which also verifies every byte.
const Format = 1

type encoder struct {
	w   *bufio.Writer // keeps the first error until Flush
	err error         // of reading customers
	buf [binary.MaxVarintLen64]byte

	groups map[frozenGroup]uint64 // of the campaign, in the order of their first use
	last   frozenGroup            // as a rule the next one's too
	lastID uint64
}

// frozenGroup is what subscriptions have in common, so it is written once.
type frozenGroup struct {
	kind       string
	before     time.Duration
	own        wire.Instant
	restorable bool
}

// The kinds of a group.
const (
	groupOpens = iota
	groupExpires
	groupParked // of kind expires
	numGroups
)

func (e *encoder) num(v uint64)   { e.w.Write(e.buf[:binary.PutUvarint(e.buf[:], v)]) }
func (e *encoder) signed(v int64) { e.w.Write(e.buf[:binary.PutVarint(e.buf[:], v)]) }

func (e *encoder) text(s string) {
	e.num(uint64(len(s)))
	e.w.WriteString(s)
}

// Write writes the timers to w. It may be called by another goroutine than their owner, once all is frozen.
func (f *Frozen) Write(w io.Writer) error {
	e := encoder{w: bufio.NewWriterSize(w, 64<<10), groups: make(map[frozenGroup]uint64)}
	slices.SortFunc(f.campaigns, func(a, b frozenCampaign) int { return strings.Compare(a.name, b.name) })
	e.num(uint64(len(f.campaigns)))
	for i := range f.campaigns {
		if e.entry(&f.campaigns[i]); e.err != nil {
			return e.err
		}
	}
	return e.w.Flush()
}

func (e *encoder) entry(c *frozenCampaign) {
	e.text(c.name)
	e.num(uint64(c.priority))
	e.num(uint64(c.lateAfter))
	e.num(uint64(c.anchors.Opens))
	e.num(uint64(c.anchors.Expires))
	e.num(uint64(c.expiredThrough))

	e.num(uint64(len(c.seconds)))
	last := uint32(0)
	for _, s := range c.seconds {
		e.num(uint64(s - last))
		last = s
	}
	e.num(uint64(len(c.fractional)))
	for _, at := range c.fractional {
		e.num(uint64(at))
	}

	runs := 0
	c.own.runs(func(uint32, uint32) { runs++ })
	e.num(uint64(runs))
	last = 0
	c.own.runs(func(from, through uint32) {
		e.num(uint64(from - last))
		e.num(uint64(through - from))
		last = through
	})
	e.reminders(c)
}

func (e *encoder) reminders(c *frozenCampaign) {
	n := c.pending.Len() + c.restorable.Len()
	if e.num(uint64(n)); n == 0 {
		return
	}
	clear(e.groups)
	e.last = frozenGroup{}
	customers, lastR, lastN := c.customers, uint64(0), int64(0) // a copy: what is frozen may be written twice
	one := func(x *reminder.Subscription, restorable bool) bool {
		e.num(x.R - lastR)
		lastR = x.R
		e.group(frozenGroup{x.Kind, x.Before, x.Own, restorable})
		if x.Kind == wire.KindExpires {
			e.signed(int64(x.N) - lastN)
			lastN = int64(x.N)
		}
		customer, err := customers.customer(x.R)
		if err != nil {
			e.err = err
			return false
		}
		e.num(uint64(len(customer)))
		e.w.Write(customer)
		return true
	}
	// Both rise, and customers are read in one pass.
	next, stop := iter.Pull(c.restorable.Each())
	defer stop()
	restorable, more := next()
	for x := range c.pending.Each() {
		for ; more && restorable.R < x.R; restorable, more = next() {
			if !one(&restorable, true) {
				return
			}
		}
		if !one(&x, false) {
			return
		}
	}
	for ; more && one(&restorable, true); restorable, more = next() {
	}
}

func (e *encoder) group(g frozenGroup) {
	if g == e.last {
		e.num(e.lastID)
		return
	}
	id, known := e.groups[g]
	if !known {
		id = uint64(len(e.groups))
		e.groups[g] = id
	}
	e.num(id)
	if !known {
		switch {
		case g.restorable:
			e.num(groupParked)
		case g.kind == wire.KindExpires:
			e.num(groupExpires)
		default:
			e.num(groupOpens)
		}
		e.num(uint64(g.before))
		e.num(uint64(g.own))
	}
	e.last, e.lastID = g, id
}
