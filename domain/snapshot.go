package domain

import (
	"errors"
	"io"
	"slices"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// A snapshot is a lane's state as bytes, so that a restart need not fold the whole event log.
//
//	owner:      Lane.Freeze ──> Frozen            (a pointer per campaign; the lane continues)
//	elsewhere:           Frozen.WriteTo ──> bytes ──> ReadLane ──> Lane
//
// Layout, integers little-endian: magic, format, lane, lanes, key check, clock, number of campaigns, the campaigns by
// number, SHA-256 of all that. It holds only what cannot be derived: indexes, links, counts and due instants are built
// while reading, so they cannot contradict the coupons. The same state always makes the same bytes.
//
// A crash while writing leaves bytes that ReadLane rejects; an older snapshot or the log itself is used instead.
const (
	snapshotMagic  = "scripsnp"
	SnapshotFormat = 1
)

// ErrNewerSnapshot means that a snapshot was written by a newer scrip. It is not damaged: fold the log instead, or start
// the newer version again.
var ErrNewerSnapshot = errors.New("start the newer version, or let the log be replayed")

// Frozen is a lane as it was when Freeze was called. It may be used by any one goroutine.
type Frozen struct {
	lane, lanes int
	check       [16]byte
	clock       wire.Instant
	campaigns   []*campaign        // by number; none of them is changed any more
	maps        map[int]frozenMaps // of the campaigns that have any, by slot
}

// frozenMaps are frozen copies of what the lane continues to write.
type frozenMaps struct {
	irregular irregularExpiries
	reminders reminder.FrozenSubscriptions
	parked    reminder.FrozenSubscriptions
}

// Freeze returns the lane as it is now. It costs a pointer per campaign. The lane may continue at once without an effect on
// the result: it copies a campaign before it writes to it ([Lane.writable]), and then each page of coupons or reminders that
// it writes to. Called by the lane's owner.
func (l *Lane) Freeze() *Frozen {
	f := &Frozen{
		lane: l.lane, lanes: l.lanes, check: l.keyCheck, clock: l.clock,
		campaigns: slices.Clone(l.bySlot), maps: make(map[int]frozenMaps),
	}
	l.epoch++
	listed := l.listed[:0]
	for _, slot := range l.listed {
		r := l.bySlot[slot].sparse
		if !r.hasMaps() {
			r.listed = false
			continue
		}
		listed = append(listed, slot)
		f.maps[int(slot)] = r.freeze()
	}
	l.listed = listed
	return f
}

func (r *sparse) freeze() frozenMaps {
	return frozenMaps{irregular: r.irregular.freeze(), reminders: r.reminders.Freeze(), parked: r.parked.Freeze()}
}

// Clock is the lane's time when it was frozen.
func (f *Frozen) Clock() wire.Instant { return f.clock }

// WriteTo writes the snapshot and returns its size in bytes. It may run beside the lane's owner.
func (f *Frozen) WriteTo(to io.Writer) (int64, error) {
	counted := &countingWriter{w: to}
	sum := newCheckSum()
	w := snapshotWriter{w: io.MultiWriter(counted, sum)}
	w.buf = append(w.buf, snapshotMagic...)
	w.u32(SnapshotFormat)
	w.u32(uint32(f.lane))
	w.u32(uint32(f.lanes))
	w.buf = append(w.buf, f.check[:]...)
	w.instant(f.clock)
	w.u32(uint32(len(f.campaigns)))
	for i, c := range f.campaigns {
		if err := w.campaign(c, f.maps[i]); err != nil {
			return counted.n, err
		}
	}
	if err := w.flush(); err != nil {
		return counted.n, err
	}
	_, err := counted.Write(sum.bytes())
	return counted.n, err
}

func (w *snapshotWriter) campaign(c *campaign, m frozenMaps) error {
	w.text(c.name)
	w.u32(c.number)
	w.instant(c.created)
	w.buf = append(w.buf, byte(c.state))
	s := c.settings
	w.u32(s.Codes)
	w.u32(s.PerCustomer)
	w.instant(s.OpensAt)
	w.instant(s.ClosesAt)
	w.instant(s.ExpiresAt)
	w.u64(uint64(s.ValidFor))
	w.u64(uint64(s.LateAfter))
	w.u32(s.MaxRedemptions)
	w.u32(s.Reminders)
	w.text(s.Prefix)
	w.text(s.Category)
	w.text(s.Priority)
	w.text(wire.View(s.Benefit))
	w.instant(c.expiredThrough)
	w.u64(c.lastReminder)

	counts := countsOf(c, m.reminders.Len(), m.parked.Len())
	for _, n := range counts.all() {
		w.u32(*n)
	}
	if c.isPacked() {
		for _, f := range c.sparse.packed.frames {
			if err := w.frame(f); err != nil {
				return err
			}
		}
		return w.frame(nil)
	}
	if w.body == nil {
		w.body = &snapshotWriter{w: &framed{to: w}}
	}
	if err := w.body.write(c, m); err != nil {
		return err
	}
	f := w.body.w.(*framed)
	if len(f.buf) > 0 {
		if err := w.frame(f.buf); err != nil {
			return err
		}
	}
	f.buf = f.buf[:0]
	return w.frame(nil)
}

// write writes what is in a campaign.
func (w *snapshotWriter) write(c *campaign, m frozenMaps) error {
	var blocks [][]byte
	if c.imported != nil {
		blocks = c.imported.blocks
	}
	w.u32(uint32(len(blocks)))
	for _, block := range blocks {
		w.u32(uint32(len(block)))
		w.buf = append(w.buf, block...)
		if err := w.flushFull(); err != nil {
			return err
		}
	}
	a := c.allotted
	if a == nil {
		a = new(allotments)
	}
	w.u32(uint32(len(a.blocks)))
	for i := range a.blocks {
		b := &a.blocks[i]
		w.u32(b.from)
		w.u32(b.through)
		w.text(b.batch)
		w.instant(b.at)
		w.instant(b.expires)
		if err := w.flushFull(); err != nil {
			return err
		}
	}
	w.u32(c.claims.Len())
	for records := range c.claims.All() {
		for i := range records {
			r := &records[i]
			w.u64(r.customer[0])
			w.u64(r.customer[1])
			w.u64(r.id)
			w.u32(r.expiry)
		}
		if err := w.flushFull(); err != nil {
			return err
		}
	}
	w.u32(a.touched.Len())
	for records := range a.touched.All() {
		for i := range records {
			r := &records[i]
			w.u32(r.n)
			w.u64(r.customer[0])
			w.u64(r.customer[1])
			w.u32(r.expiry)
		}
		if err := w.flushFull(); err != nil {
			return err
		}
	}
	w.u32(uint32(m.irregular.len()))
	for n, at := range m.irregular.sorted() {
		w.u32(n)
		w.instant(at)
	}
	w.u32(c.acts.Len())
	for records := range c.acts.All() {
		for i := range records {
			r := &records[i]
			w.u64(r.id)
			w.u64(r.arg)
			w.u32(r.n)
			w.u32(r.count)
			w.buf = append(w.buf, byte(r.kind), r.flags&flagMask)
		}
		if err := w.flushFull(); err != nil {
			return err
		}
	}
	if err := w.reminders(m.reminders); err != nil {
		return err
	}
	if err := w.reminders(m.parked); err != nil {
		return err
	}
	return w.flush()
}
