package timers

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
	"unsafe"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
)

// maxText bounds a length that is read, so that a damaged one allocates no memory.
const maxText = 1 << 10

type decoder struct {
	r      *bufio.Reader
	err    error
	buf    [maxText]byte
	groups []frozenGroup // of the campaign
}

// num reads a number, which must not exceed most; 0 after an error.
func (d *decoder) num(most uint64) uint64 {
	if d.err != nil {
		return 0
	}
	v, err := binary.ReadUvarint(d.r)
	if err == nil && v > most {
		err = fmt.Errorf("%d, expected at most %d", v, most)
	}
	if err != nil {
		d.err = err
		return 0
	}
	return v
}

func (d *decoder) signed() (v int64) {
	if d.err == nil {
		v, d.err = binary.ReadVarint(d.r)
	}
	return v
}

func (d *decoder) instant() wire.Instant { return wire.Instant(d.num(math.MaxInt64)) }

// text reads a text, which is valid until the next one is read.
func (d *decoder) text() string {
	buf := d.buf[:d.num(maxText)]
	if d.err == nil {
		_, d.err = io.ReadFull(d.r, buf)
	}
	return unsafe.String(unsafe.SliceData(buf), len(buf))
}

// Read reads what Write wrote into timers that keep customers in dir. An error means that the log has to be
// replayed instead; nothing is left to close then.
func Read(dir string, r io.Reader) (*Timers, error) {
	d := decoder{r: bufio.NewReaderSize(r, 64<<10)}
	b := New(dir)
	for n := d.num(math.MaxUint32); n > 0 && d.err == nil; n-- {
		d.entry(b)
	}
	if d.err == nil {
		if _, err := d.r.ReadByte(); err != io.EOF {
			d.err = errors.New("more follows the last campaign")
		}
	}
	if d.err != nil {
		b.Close()
		return nil, fmt.Errorf("reading the scheduler's snapshot: %w", d.err)
	}
	return b, nil
}

func (d *decoder) entry(b *Timers) {
	name := string([]byte(d.text()))
	if d.err == nil && b.campaigns[name] != nil {
		d.err = fmt.Errorf("campaign %s is in it twice", name)
	}
	if d.err != nil {
		return
	}
	c := b.add(name) // its wake instant is 0: the planner has to look at it
	c.Priority = priority.Priority(d.num(uint64(priority.Campaigns - 1)))
	c.LateAfter = time.Duration(d.num(math.MaxInt64))
	c.Anchors = reminder.Anchors{Opens: d.instant(), Expires: d.instant()}
	c.expiredThrough = d.instant()

	at := uint64(0)
	for n := d.num(math.MaxUint32); n > 0 && d.err == nil; n-- {
		at += d.num(math.MaxUint32 - at)
		c.instants.insert(wire.Instant(at) * 1e6)
	}
	for n := d.num(math.MaxUint32); n > 0 && d.err == nil; n-- {
		c.instants.insert(d.instant())
	}
	coupon := uint64(0)
	for n := d.num(math.MaxUint32); n > 0 && d.err == nil; n-- {
		from := coupon + d.num(math.MaxUint32-coupon)
		coupon = from + d.num(math.MaxUint32-from)
		c.own.load(uint32(from), uint32(coupon))
	}
	d.reminders(b, c)
	b.reminders += c.pending.Len()
	b.instants += c.dueInstants()
}

func (d *decoder) reminders(b *Timers, c *Campaign) {
	left := d.num(reminder.MaxReminder)
	if left == 0 {
		return
	}
	c.customers = &customerList{kept: c.remembers}
	d.groups = d.groups[:0]
	r, n := uint64(0), int64(0)
	rising := c.pending.Restore(func(yield func(reminder.Subscription) bool) {
		for ; left > 0 && d.err == nil; left-- {
			r += d.num(reminder.MaxReminder)
			g := d.group()
			s := reminder.Subscription{R: r, Kind: g.kind, Before: g.before, Own: g.own}
			if g.kind == wire.KindExpires {
				if n += d.signed(); n < 0 || n > math.MaxUint32 {
					d.fail(fmt.Errorf("coupon %d", n))
				}
				s.N = uint32(n)
			}
			customer := d.text()
			if d.err == nil && r <= reminder.MaxReminder {
				d.fail(b.customers.add(c.customers, uint32(r), customer))
			}
			switch {
			case d.err != nil:
				return
			case g.restorable:
				c.restorable.Set(s.R, s.Kind, s.Before, s.N, s.Own)
			case !yield(s):
				return
			}
		}
	})
	if !rising {
		d.fail(errors.New("reminders out of order"))
	}
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *decoder) group() (g frozenGroup) {
	id := d.num(uint64(len(d.groups)))
	if id < uint64(len(d.groups)) {
		return d.groups[id]
	}
	g.kind = wire.KindExpires
	switch d.num(numGroups - 1) {
	case groupOpens:
		g.kind = wire.KindOpens
	case groupParked:
		g.restorable = true
	}
	g.before, g.own = time.Duration(d.num(math.MaxInt64)), d.instant()
	if d.err == nil {
		d.groups = append(d.groups, g)
	}
	return g
}
