package domain

import (
	"bufio"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"slices"
	"time"
)

// A snapshot is a lane's state as bytes, so that a restart need not fold the whole event log.
//
//	owner:      Lane.Freeze ──> Frozen            (a pointer per page; the lane goes on)
//	elsewhere:           Frozen.WriteTo ──> bytes ──> ReadLane ──> Lane
//
// Layout, integers little-endian: magic, format, lane, lanes, key check, clock, number of campaigns, the campaigns by
// number, SHA-256 of all that. Only what cannot be worked out is in it: indexes, links, counts and due instants are built
// anew while reading, so they cannot disagree with the coupons they stand for. The same state always makes the same bytes.
//
// A crash while writing leaves bytes that ReadLane refuses; an older snapshot or the log itself serves instead.
const (
	snapshotMagic  = "scripsnp"
	SnapshotFormat = 1
)

// ErrNewerSnapshot means that a snapshot was written by a newer scrip. It is not damaged: fold the log instead, or start
// the newer version again.
var ErrNewerSnapshot = errors.New("the snapshot has a newer format than this version reads; start the newer version, or let the log be replayed")

// Frozen is a lane as it was when Freeze was called. It may be used by any one goroutine.
type Frozen struct {
	lane, lanes int
	check       [16]byte
	clock       Instant
	campaigns   []frozenCampaign
}

type frozenCampaign struct {
	name           string
	number         uint32
	created        Instant
	state          campaignState
	settings       Settings
	expiredThrough Instant
	lastReminder   uint64
	codes          [][]byte // blocks of imported codes
	claims         frozenPages[claimRecord]
	acts           frozenPages[actRecord]
	odd            map[uint32]Instant
	reminders      []frozenReminder
}

type frozenReminder struct {
	r        uint64
	customer customerHash
	kind     string
	before   time.Duration
	n        uint32
}

// Freeze returns the lane as it is now. It costs a pointer per page of coupons and a copy of the pending reminders; the
// lane may go on at once, and what it does then does not show. Called by the lane's owner.
func (l *Lane) Freeze() *Frozen {
	f := &Frozen{lane: l.lane, lanes: l.lanes, check: l.keyCheck, clock: l.clock, campaigns: make([]frozenCampaign, 0, len(l.byNumber))}
	for _, c := range l.byNumber {
		f.campaigns = append(f.campaigns, c.freeze())
	}
	return f
}

func (c *campaign) freeze() frozenCampaign {
	f := frozenCampaign{
		name: c.name, number: c.number, created: c.created, state: c.state, settings: c.settings,
		expiredThrough: c.expiredThrough, lastReminder: c.lastReminder,
		claims: c.claims.freeze(), acts: c.acts.freeze(), odd: maps.Clone(c.odd),
	}
	if c.imported != nil {
		// A block only ever grows behind what is seen here.
		f.codes = slices.Clone(c.imported.blocks)
	}
	if n := c.reminders.Len(); n > 0 {
		f.reminders = make([]frozenReminder, 0, n)
		c.reminders.All(func(r uint64, customer customerHash, kind string, before time.Duration, n uint32, _ Instant) {
			f.reminders = append(f.reminders, frozenReminder{r, customer, kind, before, n})
		})
	}
	return f
}

// Clock is the lane's time when it was frozen.
func (f *Frozen) Clock() Instant { return f.clock }

// WriteTo writes the snapshot and returns its size in bytes. It may run beside the lane's owner.
func (f *Frozen) WriteTo(to io.Writer) (int64, error) {
	counted := &countingWriter{w: to}
	sum := sha256.New()
	w := snapshotWriter{w: bufio.NewWriterSize(io.MultiWriter(counted, sum), 64<<10)}
	w.buf = append(w.buf, snapshotMagic...)
	w.u32(SnapshotFormat)
	w.u32(uint32(f.lane))
	w.u32(uint32(f.lanes))
	w.buf = append(w.buf, f.check[:]...)
	w.instant(f.clock)
	w.u32(uint32(len(f.campaigns)))
	slices.SortFunc(f.campaigns, func(a, b frozenCampaign) int { return cmp.Compare(a.number, b.number) })
	for i := range f.campaigns {
		if err := w.campaign(&f.campaigns[i]); err != nil {
			return counted.n, err
		}
	}
	if err := w.flush(); err != nil {
		return counted.n, err
	}
	if err := w.w.Flush(); err != nil {
		return counted.n, err
	}
	_, err := counted.Write(sum.Sum(nil))
	return counted.n, err
}

// snapshotWriter appends to buf and hands it on from time to time.
type snapshotWriter struct {
	w   *bufio.Writer
	buf []byte
}

func (w *snapshotWriter) campaign(c *frozenCampaign) error {
	w.text(c.name)
	w.u32(c.number)
	w.instant(c.created)
	w.buf = append(w.buf, byte(c.state))
	s := &c.settings
	w.u32(s.Codes)
	w.u32(s.PerCustomer)
	w.instant(s.OpensAt)
	w.instant(s.ClosesAt)
	w.instant(s.ExpiresAt)
	w.u64(uint64(s.ValidFor))
	w.u32(s.MaxRedemptions)
	w.text(s.Prefix)
	w.text(s.Category)
	w.text(s.Priority)
	w.text(string(s.Benefit))
	w.instant(c.expiredThrough)
	w.u64(c.lastReminder)

	w.u32(uint32(len(c.codes)))
	for _, block := range c.codes {
		w.u32(uint32(len(block)))
		w.buf = append(w.buf, block...)
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.u32(c.claims.n)
	for _, page := range c.claims.list {
		for i := range page {
			r := &page[i]
			w.u64(r.customer[0])
			w.u64(r.customer[1])
			w.u64(r.id)
			w.u32(r.expiry)
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.u32(uint32(len(c.odd)))
	for _, n := range slices.Sorted(maps.Keys(c.odd)) {
		w.u32(n)
		w.instant(c.odd[n])
	}
	w.u32(c.acts.n)
	for _, page := range c.acts.list {
		for i := range page {
			r := &page[i]
			w.u64(r.id)
			w.u64(r.arg)
			w.u32(r.n)
			w.u32(r.count)
			w.buf = append(w.buf, byte(r.kind), r.flags)
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.u32(uint32(len(c.reminders)))
	slices.SortFunc(c.reminders, func(a, b frozenReminder) int { return cmp.Compare(a.r, b.r) })
	for i := range c.reminders {
		r := &c.reminders[i]
		w.u64(r.r)
		w.u64(r.customer[0])
		w.u64(r.customer[1])
		kind := byte(0)
		if r.kind == KindExpires {
			kind = 1
		}
		w.buf = append(w.buf, kind)
		w.u64(uint64(r.before))
		w.u32(r.n)
		if len(w.buf) >= 16<<10 {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return w.flush()
}

func (w *snapshotWriter) u32(v uint32)      { w.buf = binary.LittleEndian.AppendUint32(w.buf, v) }
func (w *snapshotWriter) u64(v uint64)      { w.buf = binary.LittleEndian.AppendUint64(w.buf, v) }
func (w *snapshotWriter) instant(i Instant) { w.u64(uint64(i)) }

// text writes a string of at most 65,535 bytes.
func (w *snapshotWriter) text(s string) {
	w.buf = append(binary.LittleEndian.AppendUint16(w.buf, uint16(len(s))), s...)
}

func (w *snapshotWriter) flush() error {
	_, err := w.w.Write(w.buf)
	w.buf = w.buf[:0]
	return err
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// keyCheckOf tells two code keys apart without telling the key.
func keyCheckOf(key [32]byte) (check [16]byte) {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte("scrip snapshot key check 1"))
	copy(check[:], mac.Sum(nil))
	return check
}
