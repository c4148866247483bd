package domain

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// A large campaign stays packed when a snapshot is read, as the bytes that the snapshot has of it, until a command or a query needs
// it: so a lane is ready before it has built the indexes of all. A snapshot takes these bytes as they are.
//
//	snapshot ──ReadLane──> packed ──first use (find, numbered, a query)──> campaign
//	                          └──Lane.Packed──> Packed.Unpack, anywhere ──Lane.Install──┘
//
// A crash loses nothing: a packed campaign is a part of the snapshot that it came from.

// frameSize is the size of the frames, in bytes, that the body of a campaign is stored in: all but the last are so long. A
// campaign with one frame only is small.
const frameSize = 64 << 10

// packed is the body of a campaign that is not unpacked: its claims, acts and reminders.
type packed struct {
	frames [][]byte
	counts packedCounts
}

// packedCounts are of what is packed.
type packedCounts struct{ reminders, parked, voided, claimed, redeemed, total uint32 }

// countsOf are those of a campaign that may be frozen.
func countsOf(c *campaign, reminders, parked int) packedCounts {
	if c.isPacked() {
		return c.sparse.packed.counts
	}
	return packedCounts{uint32(reminders), uint32(parked), c.voided, c.claimed(), c.redeemed, c.total()}
}

// counts are those of a campaign, packed or not.
func (c *campaign) counts() packedCounts {
	return countsOf(c, c.reminders().Len(), c.parked().Len())
}

func (p *packedCounts) all() [6]*uint32 {
	return [...]*uint32{&p.reminders, &p.parked, &p.voided, &p.claimed, &p.redeemed, &p.total}
}

// isPacked reports whether the campaign has no claims, acts and reminders in memory.
func (c *campaign) isPacked() bool { return c.sparse != nil && c.sparse.packed != nil }

// DamagedError is what a lane panics with if it cannot unpack a campaign, whose snapshot has a check sum that fits. The log is right:
// fold it without the snapshot.
type DamagedError struct{ Err error }

func (e *DamagedError) Error() string { return e.Err.Error() }

func (e *DamagedError) Unwrap() error { return e.Err }

// open returns the campaign, unpacked; nil if it is nil.
func (l *Lane) open(c *campaign) *campaign {
	if c == nil || !c.isPacked() {
		return c
	}
	p := Packed{campaign: c, lane: l}
	p.Unpack()
	l.Install(&p)
	return l.campaigns[c.name]
}

// Packed is a campaign that is packed.
type Packed struct {
	lane     *Lane
	campaign *campaign
	whole    *campaign // when it is unpacked, or err
	err      error
}

// Packed returns a campaign that is packed, of those that are left the one with the earliest instant ahead; nil if none is. Called
// by the lane's owner.
func (l *Lane) Packed() *Packed {
	for len(l.packed) > 0 {
		c := l.bySlot[l.packed[0]]
		if l.packed = l.packed[1:]; c.isPacked() {
			return &Packed{lane: l, campaign: c}
		}
	}
	l.packed = nil
	return nil
}

// orderPacked sorts what is packed by what is due first.
func (l *Lane) orderPacked() {
	next := func(slot uint32) wire.Instant {
		first, s := wire.Never, l.bySlot[slot].settings
		for _, at := range [...]wire.Instant{s.OpensAt, s.ClosesAt, s.ExpiresAt} {
			if at > l.clock {
				first = min(first, at)
			}
		}
		return first
	}
	slices.SortStableFunc(l.packed, func(a, b uint32) int { return cmp.Compare(next(a), next(b)) })
}

// Unpack reads what is packed. It may run beside the lane's owner.
func (p *Packed) Unpack() {
	own := *p.campaign
	own.sparse = nil
	r := newBodyReader(p.campaign.sparse.packed.frames, make([]byte, readBuffer))
	if p.lane.readBody(r, &own); r.err == nil {
		r.err = p.campaign.sparse.packed.check(&own)
	}
	p.whole, p.err = &own, r.err
}

// check compares the counts that precede a body with it.
func (p *packed) check(c *campaign) error {
	if c.counts() != p.counts {
		return fmt.Errorf("it is damaged: campaign %s: counts", c.name)
	}
	return nil
}

// Install puts a campaign in place of what was packed, unless that was used meanwhile. Called by the lane's owner. It panics with a
// *DamagedError if the campaign could not be unpacked.
func (l *Lane) Install(p *Packed) {
	if p.err != nil {
		panic(&DamagedError{p.err})
	}
	c := p.whole
	if slot := c.number / uint32(l.lanes); l.bySlot[slot] == p.campaign {
		c.epoch = l.epoch
		l.campaigns[c.name], l.bySlot[slot] = c, c
		l.list(c)
	}
}

// framed cuts what is written into frames.
type framed struct {
	to  *snapshotWriter
	buf []byte
}

func (f *framed) Write(p []byte) (int, error) {
	f.buf = append(f.buf, p...)
	for ; len(f.buf) >= frameSize; f.buf = f.buf[:copy(f.buf, f.buf[frameSize:])] {
		if err := f.to.frame(f.buf[:frameSize]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// frame writes one; an empty one is the end of a body.
func (w *snapshotWriter) frame(p []byte) error {
	w.u32(uint32(len(p)))
	w.buf = append(w.buf, p...)
	return w.flushFull()
}

// bodyPad follows a body that is read, since numbers of variable length are read ahead.
const bodyPad = 16

// newBodyReader reads a body, by way of a buffer of readBuffer bytes.
func newBodyReader(frames [][]byte, buf []byte) *snapshotReader {
	parts := make([]io.Reader, 0, len(frames)+1)
	for _, f := range frames {
		parts = append(parts, bytes.NewReader(f))
	}
	return &snapshotReader{from: io.MultiReader(append(parts, bytes.NewReader(make([]byte, bodyPad)))...), buf: buf}
}

// frames reads the frames of a body.
func (r *snapshotReader) frames() (all [][]byte) {
	for r.err == nil {
		n := int(r.u32())
		if n > frameSize || n > 0 && len(all) > 0 && len(all[len(all)-1]) < frameSize {
			r.fail("a frame of %d bytes", n)
		}
		if n == 0 || r.err != nil {
			break
		}
		all = append(all, bytes.Clone(r.take(n)))
	}
	return all
}

// readBody reads claims, acts and reminders of a campaign, and derives what is not stored: indexes, links and counts.
func (l *Lane) readBody(r *snapshotReader, c *campaign) {
	if c.settings.Codes == 0 {
		c.imported = &importedCodes{key: l.hash.key}
	}
	r.codes(c)
	r.blocks(c)
	r.claims(c)
	r.acts(c)
	if r.err == nil && !c.reindex() {
		r.fail("campaign %s: a command id is remembered twice", c.name)
	}
	r.reminders(c, func() *reminder.Subscriptions { return &c.ensureSparse().reminders })
	r.reminders(c, func() *reminder.Subscriptions { return &c.ensureSparse().parked })
	if n, err := io.ReadFull(r.from, make([]byte, bodyPad)); r.err == nil && r.end-r.at+n != bodyPad && err != nil {
		r.fail("campaign %s: %d bytes follow its end", c.name, r.end-r.at+n-bodyPad)
	}
}
