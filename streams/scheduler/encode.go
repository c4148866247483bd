package scheduler

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
)

// The form of a book in a snapshot. Numbers are unsigned varints, texts their length and bytes, lists their length and
// elements; campaigns by name, so that equal books have equal bytes.
//
//	campaigns
//	campaign: name · priority · opens · expires · expired through · seconds (deltas) · odd instants · runs of own expiries (gap, length) · reminders
//	reminder: r · customer · kind · before · n · own
//
// The form's number and what else there is to know stand beside the content in the snapshot store, which also verifies
// that every byte is as it was written.
const bookFormat = 2

// maxText bounds what decode believes, so that a damaged length asks for no memory.
const maxText = 1 << 10

type encoder struct {
	w   *bufio.Writer
	buf [binary.MaxVarintLen64]byte
}

func (e *encoder) num(v uint64) { e.w.Write(e.buf[:binary.PutUvarint(e.buf[:], v)]) }

func (e *encoder) text(s string) {
	e.num(uint64(len(s)))
	e.w.WriteString(s)
}

// encode writes the book to w.
func (b *book) encode(w io.Writer) error {
	e := encoder{w: bufio.NewWriterSize(w, 64<<10)} // keeps the first error until Flush
	names := make([]string, 0, len(b.campaigns))
	for name := range b.campaigns {
		names = append(names, name)
	}
	slices.Sort(names)
	e.num(uint64(len(names)))
	for _, name := range names {
		e.entry(b.campaigns[name])
	}
	return e.w.Flush()
}

func (e *encoder) entry(c *entry) {
	e.text(c.name)
	e.num(uint64(c.priority))
	e.num(uint64(c.anchors.Opens))
	e.num(uint64(c.anchors.Expires))
	e.num(uint64(c.expiredThrough))

	seconds, odd := c.falls.frozen()
	e.num(uint64(len(seconds)))
	last := uint32(0)
	for _, s := range seconds {
		e.num(uint64(s - last))
		last = s
	}
	e.num(uint64(len(odd)))
	for _, at := range odd {
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

	// By rising number: read back in any other order, every one of them would be inserted into the middle of a list.
	subscriptions := make([]subscription, 0, c.pending.Len())
	c.pending.All(func(r uint64, customer, kind string, before time.Duration, n uint32, own domain.Instant) {
		subscriptions = append(subscriptions, subscription{r, customer, kind, before, n, own})
	})
	slices.SortFunc(subscriptions, func(a, b subscription) int {
		if a.r < b.r {
			return -1
		}
		return 1
	})
	e.num(uint64(len(subscriptions)))
	for _, s := range subscriptions {
		e.num(s.r)
		e.text(s.customer)
		e.text(s.kind)
		e.num(uint64(s.before))
		e.num(uint64(s.n))
		e.num(uint64(s.own))
	}
}

// subscription is a pending reminder on its way into a snapshot.
type subscription struct {
	r        uint64
	customer string
	kind     string
	before   time.Duration
	n        uint32
	own      domain.Instant
}

type decoder struct {
	r   *bufio.Reader
	err error
}

// num reads a number, which must not exceed most; 0 after an error.
func (d *decoder) num(most uint64) uint64 {
	if d.err != nil {
		return 0
	}
	v, err := binary.ReadUvarint(d.r)
	if err == nil && v > most {
		err = fmt.Errorf("%d where at most %d can stand", v, most)
	}
	if err != nil {
		d.err = err
		return 0
	}
	return v
}

func (d *decoder) instant() domain.Instant { return domain.Instant(d.num(math.MaxInt64)) }

func (d *decoder) text() string {
	buf := make([]byte, d.num(maxText))
	d.full(buf)
	return string(buf)
}

func (d *decoder) full(buf []byte) {
	if d.err == nil {
		_, d.err = io.ReadFull(d.r, buf)
	}
}

// decodeBook reads what encode wrote. An error means that the book is to be replayed from the log instead.
func decodeBook(r io.Reader) (*book, error) {
	d := decoder{r: bufio.NewReaderSize(r, 64<<10)}
	b := newBook()
	for n := d.num(math.MaxUint32); n > 0 && d.err == nil; n-- {
		d.entry(b)
	}
	if d.err == nil {
		if _, err := d.r.ReadByte(); err != io.EOF {
			d.err = errors.New("more follows the last campaign")
		}
	}
	if d.err != nil {
		return nil, fmt.Errorf("reading the scheduler's snapshot: %w", d.err)
	}
	return b, nil
}

func (d *decoder) entry(b *book) {
	name := d.text()
	if d.err == nil && b.campaigns[name] != nil {
		d.err = fmt.Errorf("campaign %s stands in it twice", name)
	}
	if d.err != nil {
		return
	}
	c := b.add(name) // to be looked at, once it is decided what to ask
	c.priority = priority(d.num(uint64(priorities - 1)))
	c.anchors = domain.Anchors{Opens: d.instant(), Expires: d.instant()}
	c.expiredThrough = d.instant()

	at := uint64(0)
	for n := d.num(math.MaxUint32); n > 0 && d.err == nil; n-- {
		at += d.num(math.MaxUint32 - at)
		c.falls.insert(domain.Instant(at) * 1e6)
	}
	for n := d.num(math.MaxUint32); n > 0 && d.err == nil; n-- {
		c.falls.insert(d.instant())
	}
	coupon := uint64(0)
	for n := d.num(math.MaxUint32); n > 0 && d.err == nil; n-- {
		from := coupon + d.num(math.MaxUint32-coupon)
		coupon = from + d.num(math.MaxUint32-from)
		c.own.load(uint32(from), uint32(coupon))
	}

	for left := d.num(math.MaxUint32); left > 0 && d.err == nil; left-- {
		r, customer, kind := d.num(math.MaxUint64), d.text(), d.text()
		before := time.Duration(d.num(math.MaxInt64))
		n, own := uint32(d.num(math.MaxUint32)), d.instant()
		if d.err == nil {
			c.pending.Set(r, customer, kind, before, n, own)
		}
	}
	b.reminders += c.pending.Len()
	b.instants += c.instants()
}
