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
//	campaign: name · opens · expires · expired through · falls (deltas) · pages (index, latest, 256 × u32) · odd · reminders
//	reminder: r · customer · kind · before · n · own
//
// The form's number and what else there is to know stand beside the content in the snapshot store, which also verifies
// that every byte is as it was written.
const bookFormat = 1

// limits of what decode believes, so that a damaged length asks for no memory.
const (
	maxText  = 1 << 10
	maxPages = 1 << 24
)

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
	e.num(uint64(c.anchors.Opens))
	e.num(uint64(c.anchors.Expires))
	e.num(uint64(c.expiredThrough))

	e.num(uint64(c.falls.Len()))
	var last domain.Instant
	c.falls.Scan(func(at domain.Instant) bool {
		e.num(uint64(at - last))
		last = at
		return true
	})

	live := 0
	for _, p := range c.own.pages {
		if p != nil {
			live++
		}
	}
	e.num(uint64(live))
	for i, p := range c.own.pages {
		if p == nil {
			continue
		}
		e.num(uint64(i))
		e.num(uint64(p.latest))
		var raw [pageCoupons * 4]byte
		for j, s := range p.seconds {
			binary.LittleEndian.PutUint32(raw[j*4:], s)
		}
		e.w.Write(raw[:])
	}
	odd := make([]uint32, 0, len(c.own.odd))
	for n := range c.own.odd {
		odd = append(odd, n)
	}
	slices.Sort(odd)
	e.num(uint64(len(odd)))
	for _, n := range odd {
		e.num(uint64(n))
		e.num(uint64(c.own.odd[n]))
	}

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
	c.anchors = domain.Anchors{Opens: d.instant(), Expires: d.instant()}
	c.expiredThrough = d.instant()

	var at domain.Instant
	for n := d.num(math.MaxUint32); n > 0 && d.err == nil; n-- {
		if at += d.instant(); at <= 0 {
			d.err = errors.New("an instant beyond all time")
			return
		}
		c.falls.Load(at)
	}

	for n := d.num(maxPages); n > 0 && d.err == nil; n-- {
		i := int(d.num(maxPages))
		p := &expiryPage{latest: d.instant()}
		var raw [pageCoupons * 4]byte
		d.full(raw[:])
		for j := range p.seconds {
			p.seconds[j] = binary.LittleEndian.Uint32(raw[j*4:])
		}
		for len(c.own.pages) <= i {
			c.own.pages = append(c.own.pages, nil)
		}
		c.own.pages[i] = p
	}
	for n := d.num(math.MaxUint32); n > 0 && d.err == nil; n-- {
		if c.own.odd == nil {
			c.own.odd = make(map[uint32]domain.Instant)
		}
		coupon := uint32(d.num(math.MaxUint32))
		c.own.odd[coupon] = d.instant()
	}

	for n := d.num(math.MaxUint32); n > 0 && d.err == nil; n-- {
		r, customer, kind := d.num(math.MaxUint64), d.text(), d.text()
		before := time.Duration(d.num(math.MaxInt64))
		coupon, own := uint32(d.num(math.MaxUint32)), d.instant()
		if d.err == nil {
			c.pending.Set(r, customer, kind, before, coupon, own)
		}
	}
	b.reminders += c.pending.Len()
	b.instants += c.instants()
}
