package domain

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/table"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// ReadLane reads what [Frozen.WriteTo] wrote, up to the end of r. The lane is the one that was frozen: every further
// command gets the same answer. The options must name the lane, the number of lanes and the key that it was made with.
//
// What is truncated, damaged, of another lane or key is an error, and of a newer format [ErrNewerSnapshot]; a caller who
// gets any of them folds the log from its beginning. Memory grows with what is read, not with the counts in it.
func ReadLane(o LaneOptions, from io.Reader) (*Lane, error) {
	l := NewLane(o)
	r := &snapshotReader{from: from, sum: newCheckSum(), buf: make([]byte, readBuffer), packAll: o.packAll}
	if err := l.readSnapshot(r); err != nil {
		return nil, fmt.Errorf("reading a snapshot of lane %d: %w", o.Lane, err)
	}
	return l, nil
}

func (l *Lane) readSnapshot(r *snapshotReader) error {
	if magic := r.take(len(snapshotMagic)); r.err == nil && string(magic) != snapshotMagic {
		return errors.New("this is no snapshot")
	}
	format := r.u32()
	switch {
	case r.err != nil:
		return r.err
	case format > SnapshotFormat:
		return fmt.Errorf("it has format %d, this version reads format %d: %w", format, SnapshotFormat, ErrNewerSnapshot)
	case format < SnapshotFormat:
		return fmt.Errorf("it is damaged: format %d", format)
	}
	lane, lanes := r.u32(), r.u32()
	check := r.take(len(l.keyCheck))
	switch {
	case r.err != nil:
		return r.err
	case uint64(lane) != uint64(l.lane) || uint64(lanes) != uint64(l.lanes):
		return fmt.Errorf("it is of lane %d of %d, not of lane %d of %d", lane, lanes, l.lane, l.lanes)
	case !bytes.Equal(check, l.keyCheck[:]):
		return errors.New("it was made with another code key; set SCRIP_CODE_KEY, or the file code.key in the data directory, to the key of this log")
	}
	l.clock = r.instant()
	for range r.u32() {
		c := r.campaign(l)
		if r.err != nil {
			return r.err
		}
		if wire.LaneOf(c.name, l.lanes) != l.lane {
			return fmt.Errorf("campaign %s does not belong on this lane", c.name)
		}
		if err := l.add(c); err != nil {
			return err
		}
		n := c.counts()
		l.reminders, l.parked, l.voided = l.reminders+int(n.reminders), l.parked+int(n.parked), l.voided+int(n.voided)
		if c.isPacked() {
			l.packed = append(l.packed, c.number/uint32(l.lanes))
		} else {
			l.list(c)
		}
	}
	l.orderPacked()
	if r.err != nil {
		return r.err
	}
	return r.close()
}

// campaign reads one campaign; a large one stays packed.
func (r *snapshotReader) campaign(l *Lane) *campaign {
	p := &l.settings
	c := &campaign{name: r.text(wire.MaxCampaignName), number: r.u32(), created: r.instant(), state: campaignState(r.u8()), scanLimit: l.scanLimit}
	s := wire.Settings{
		Codes: r.u32(), PerCustomer: r.u32(), OpensAt: r.instant(), ClosesAt: r.instant(), ExpiresAt: r.instant(),
		ValidFor: time.Duration(r.u64()), LateAfter: time.Duration(r.u64()), MaxRedemptions: r.u32(), Reminders: r.u32(),
		Prefix: r.pooled(p, code.MaxPrefixLen), Category: r.pooled(p, wire.MaxCategory), Priority: r.pooled(p, 16),
	}
	if benefit := r.pooled(p, wire.MaxBenefit); benefit != "" {
		s.Benefit = []byte(benefit)
	}
	c.expiredThrough, c.lastReminder = r.instant(), r.u64()
	switch {
	case r.err != nil:
	case !wire.ValidCampaignName(c.name) || c.state > ended:
		r.fail("campaign %q: name or state", c.name)
	case s.Codes > wire.MaxCodes || s.MaxRedemptions == 0 || s.MaxRedemptions > wire.MaxRedemptions || s.Reminders > wire.MaxPending ||
		code.ValidPrefix(s.Prefix) != nil || s.Check() != nil:
		r.fail("campaign %s: settings", c.name)
	}
	if r.err != nil {
		return nil
	}
	c.setSettings(l.settings.keep(&s))
	of := new(packed)
	for _, n := range of.counts.all() {
		*n = r.u32()
	}
	of.frames = r.frames()
	switch {
	case r.err != nil:
		return nil
	case len(of.frames) > 1 || r.packAll:
		c.sparse = &sparse{packed: of}
		return c
	}
	if r.spare == nil {
		r.spare = make([]byte, readBuffer)
	}
	body := newBodyReader(of.frames, r.spare)
	if l.readBody(body, c); body.err != nil {
		r.err = body.err
	} else if err := of.check(c); err != nil {
		r.err = err
	}
	if r.err != nil {
		return nil
	}
	return c
}

// codes reads the imported codes. Their offsets are found by scanning the blocks.
func (r *snapshotReader) codes(c *campaign) {
	blocks := r.u32()
	if blocks > 0 && c.imported == nil {
		r.fail("campaign %s: imported codes beside generated ones", c.name)
	}
	for k := uint32(0); k < blocks && r.err == nil; k++ {
		size := r.u32()
		if size > blockSize || k >= maxImportedBlocks {
			r.fail("campaign %s: block of %d bytes", c.name, size)
			return
		}
		block := bytes.Clone(r.take(int(size)))
		if !c.imported.addBlock(block) {
			r.fail("campaign %s: imported codes", c.name)
		}
	}
}

// blocks reads the allotments.
func (r *snapshotReader) blocks(c *campaign) {
	for blocks, last := r.u32(), uint32(0); blocks > 0 && r.err == nil; blocks-- {
		b := block{from: r.u32(), through: r.u32(), batch: r.text(wire.MaxBatch), at: r.instant(), expires: r.instant()}
		if r.err == nil && (b.from <= last || c.addBlock(b) != nil) {
			r.fail("campaign %s: batch %q", c.name, b.batch)
		}
		last = b.through
	}
}

// touched reads the coupons of allotments to which something happened; elsewhere of them have irregular expiries.
func (r *snapshotReader) touched(c *campaign) (elsewhere uint32) {
	for count := r.u32(); count > 0 && r.err == nil; count-- {
		n, rec := r.u32(), claimRecord{customer: customerHash{r.u64(), r.u64()}, expiry: r.u32()}
		if r.err != nil {
			return 0
		}
		there := c.allotted.of(n) == nil
		if !there {
			_, there = c.allotted.find(n)
		}
		if there {
			r.fail("campaign %s: printed coupon %d", c.name, n)
			return 0
		}
		c.allotted.touch(n, rec)
		if rec.expiry == irregularExpiry {
			elsewhere++
		}
	}
	return elsewhere
}

// claims reads the coupons handed out.
func (r *snapshotReader) claims(c *campaign) {
	const size = 28
	count, elsewhere := r.u32(), uint32(0)
	if r.err == nil && c.allotted != nil {
		last := &c.allotted.blocks[len(c.allotted.blocks)-1]
		if last.from-1-last.before > count {
			r.fail("campaign %s: batch %q", c.name, last.batch)
		}
	}
	if r.err == nil && uint64(count)+uint64(c.claimed()) > uint64(c.total()) {
		r.fail("campaign %s: %d of %d codes are claimed", c.name, count, c.total())
	}
	if r.err == nil {
		c.claims.Reserve(min(count, table.PageSize)) // no more: the count is not trusted
	}
	for r.err == nil && c.claims.Len() < count {
		raw := r.take(size * int(min(table.PageSize, count-c.claims.Len())))
		for ; len(raw) > 0 && r.err == nil; raw = raw[size:] {
			_, rec := c.claims.Add(count)
			rec.customer = customerHash{binary.LittleEndian.Uint64(raw), binary.LittleEndian.Uint64(raw[8:])}
			rec.id = binary.LittleEndian.Uint64(raw[16:])
			rec.expiry = binary.LittleEndian.Uint32(raw[24:])
			if rec.expiry == irregularExpiry {
				elsewhere++
			}
		}
	}
	elsewhere += r.touched(c)
	irregular := r.u32()
	if irregular != elsewhere {
		r.fail("campaign %s: irregular expiries", c.name)
	}
	for last := uint32(0); irregular > 0 && r.err == nil; irregular-- {
		n, at := r.u32(), r.instant()
		if r.err != nil {
			return
		}
		if n <= last || n > c.claimed() || !c.recorded(n) || c.coupon(n).expiry != irregularExpiry || at == 0 {
			r.fail("campaign %s: expiry of coupon %d", c.name, n)
			return
		}
		c.ensureSparse().irregular.set(n, at)
		last = n
	}
}

// acts reads the accepted commands other than claims; the newest act of a coupon follows from their order.
func (r *snapshotReader) acts(c *campaign) {
	const size = 26
	count := r.u32()
	for r.err == nil && c.acts.Len() < count {
		raw := r.take(size * int(min(table.PageSize, count-c.acts.Len())))
		for ; len(raw) > 0 && r.err == nil; raw = raw[size:] {
			act := actRecord{
				id: binary.LittleEndian.Uint64(raw), arg: binary.LittleEndian.Uint64(raw[8:]), n: binary.LittleEndian.Uint32(raw[16:]),
				count: binary.LittleEndian.Uint32(raw[20:]), kind: wire.CommandType(raw[24]), flags: raw[25],
			}
			if act.n > c.claimed() || act.n != 0 && !c.recorded(act.n) || !act.kind.Known() || c.acts.Len() >= maxActs {
				r.fail("campaign %s: act %d", c.name, c.acts.Len())
				return
			}
			_, slot := c.acts.Add(maxActs)
			*slot = act
		}
	}
}

// close checks the sum, and that nothing follows it.
func (r *snapshotReader) close() error {
	r.sum.Write(r.buf[:r.at])
	r.end = copy(r.buf, r.buf[r.at:r.end])
	r.at = 0
	want := r.sum.bytes()
	if got := r.take(checkSumSize); r.err != nil || !bytes.Equal(got, want) {
		return errors.New("it is damaged: the check sum does not match")
	}
	if n, err := io.ReadFull(r.from, r.buf[:1]); r.at != r.end || n > 0 || err != io.EOF {
		return errors.New("something follows its end")
	}
	return nil
}
