package domain

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Lane is the state of all campaigns of one partition of the log. One goroutine owns it.
type Lane struct {
	lane, lanes int
	codec       *code.Codec
	hash        hasher
	keyCheck    [16]byte // stored in snapshots, so that another key is refused
	grace       time.Duration
	quoted      int // see SetQuoted

	campaigns map[string]*campaign
	bySlot    []*campaign // by slot: the one at slot k has number k·lanes + lane
	names     byName
	last      *campaign    // found last: successive lines are often of one campaign
	epoch     uint32       // incremented by Freeze; a campaign of an older epoch is copied before it is changed
	packed    []uint32     // slots of those that may still be packed, those first that are due first
	listed    []uint32     // slots of those with maps that Freeze must copy
	clock     wire.Instant // time of the newest command seen; never runs backwards
	reminders int          // pending, over all campaigns
	parked    int          // cancelled by redemptions, likewise
	voided    int          // coupons, likewise

	scanLimit  uint8 // of its campaigns; see linearScanLimit
	settings   settingsPool
	folding    [foldedAhead]foldLine
	scratch    scratch // of the steps
	prefetched uint32  // see prefetch
}

// LaneOptions are the lane's identity and the key of its codes.
type LaneOptions struct {
	Lane, Lanes int           // 0 <= Lane < Lanes
	Key         [32]byte      // the code key; the keyed hashes are derived from it
	Grace       time.Duration // see SetGrace; 0 or less = DefaultReminderGrace

	packAll bool // for tests: small campaigns stay packed, too
}

// NewLane returns the empty lane, the state before the first event.
func NewLane(o LaneOptions) *Lane {
	mac := hmac.New(sha256.New, o.Key[:])
	mac.Write([]byte("scrip lane state hash 1"))
	var h hasher
	copy(h.key[:], mac.Sum(nil))
	l := &Lane{
		lane: o.Lane, lanes: o.Lanes, codec: code.New(o.Key), hash: h, keyCheck: keyCheckOf(o.Key),
		campaigns: make(map[string]*campaign), scanLimit: linearScanLimit,
	}
	l.SetGrace(o.Grace)
	l.SetQuoted(MaxQuoted)
	return l
}

// MaxQuoted is the most that a dead letter quotes of one bad line, in bytes after escaping.
const MaxQuoted = 1024

// SetQuoted sets how many bytes of a bad line its dead letter quotes at most, 0 to [MaxQuoted], which is the default. Quotes
// are stored permanently and may hold personal data. Called by the lane's owner between two steps.
func (l *Lane) SetQuoted(bytes int) { l.quoted = min(max(bytes, 0), MaxQuoted) }

// SetGrace sets how late a reminder may still fire although what it announces has passed; later than that it is dropped and
// counted. 0 or less is DefaultReminderGrace. Called by the lane's owner between two steps. Earlier decisions do not change:
// their events record them.
func (l *Lane) SetGrace(d time.Duration) {
	if d <= 0 {
		d = wire.DefaultReminderGrace
	}
	l.grace = d
}

// Clock is the lane time: that of the newest command or event seen.
func (l *Lane) Clock() wire.Instant { return l.clock }

// Advance moves the lane's clock to at, unless it is there already, and returns its time. Time never runs backwards in
// a lane, whatever the clock of the machine that stamped the command did.
func (l *Lane) Advance(at wire.Instant) wire.Instant {
	l.clock = max(l.clock, at)
	return l.clock
}

// Campaigns is the number of campaigns of the lane.
func (l *Lane) Campaigns() int { return len(l.campaigns) }

// nextNumber is the number a campaign created now gets, so that number mod L is its lane. False when 28 bits are used up.
func (l *Lane) nextNumber() (uint32, bool) {
	n := uint64(len(l.bySlot))*uint64(l.lanes) + uint64(l.lane)
	return uint32(n), n <= code.MaxCampaign
}

// add adds a new campaign, which must have the next number. It keeps the name.
func (l *Lane) add(c *campaign) error {
	number, ok := l.nextNumber()
	switch {
	case l.campaigns[c.name] != nil:
		return fmt.Errorf("campaign %s (number %d) is created twice", c.name, c.number)
	case !ok || c.number != number:
		return fmt.Errorf("campaign %s has number %d, but the next one is %d", c.name, c.number, number)
	}
	c.epoch = l.epoch
	l.campaigns[c.name] = c
	l.bySlot = append(l.bySlot, c)
	return nil
}

// find returns the campaign of that name for writing, nil if there is none.
func (l *Lane) find(name string) *campaign {
	if c := l.last; c != nil && c.name == name && c.epoch == l.epoch {
		return c
	}
	c := l.open(l.campaigns[name])
	if c != nil {
		c = l.writable(c)
		l.last = c
	}
	return c
}

// writable returns the campaign for writing. After a Freeze that is a copy: the frozen one belongs to the snapshot. The copy
// shares what only the lane reads, and its pages are copied when they are written.
func (l *Lane) writable(c *campaign) *campaign {
	if c.epoch == l.epoch {
		return c
	}
	own := *c
	own.epoch = l.epoch
	own.claims.Freeze()
	own.acts.Freeze()
	own.allotted = own.allotted.writable()
	if own.imported != nil {
		imported := *own.imported
		imported.blocks = slices.Clone(imported.blocks)
		own.imported = &imported
	}
	l.campaigns[own.name] = &own
	l.bySlot[own.number/uint32(l.lanes)] = &own
	return &own
}

// list adds a campaign that has maps to those that Freeze must copy.
func (l *Lane) list(c *campaign) {
	if r := c.sparse; r != nil && !r.listed && r.hasMaps() {
		r.listed = true
		l.listed = append(l.listed, c.number/uint32(l.lanes))
	}
}

// numbered returns the campaign with that number, nil if there is none.
func (l *Lane) numbered(number uint32) *campaign {
	if number%uint32(l.lanes) != uint32(l.lane) || number/uint32(l.lanes) >= uint32(len(l.bySlot)) {
		return nil
	}
	return l.open(l.bySlot[number/uint32(l.lanes)])
}

// codeOf is the code of coupon n as people see it.
func (l *Lane) codeOf(c *campaign, n uint32) string {
	if c.imported != nil {
		return c.imported.at(n - 1)
	}
	var buf [code.MaxCodeLen]byte
	return string(l.codec.AppendCode(buf[:0], c.settings.Prefix, c.number, n))
}

// settingsPool lets campaigns share equal settings: a million small campaigns mostly differ in their times, if at all. It is a
// cache: what it evicts stays with the campaigns that have it. The zero value is ready.
type settingsPool struct {
	whole [64]*wire.Settings
	texts [64]string
}

// keep returns settings equal to s that are never changed and share no memory with s.
func (p *settingsPool) keep(s *wire.Settings) *wire.Settings {
	h := uint64(s.Codes)
	for _, v := range [...]uint64{
		uint64(s.PerCustomer), uint64(s.OpensAt), uint64(s.ClosesAt), uint64(s.ExpiresAt), uint64(s.ValidFor), uint64(s.LateAfter),
		uint64(s.MaxRedemptions), uint64(s.Reminders),
	} {
		h = (h ^ v) * 0x9e3779b97f4a7c15
	}
	slot := &p.whole[h>>58]
	if *slot == nil || !(*slot).Equal(s) {
		kept := *s
		kept.Prefix, kept.Category, kept.Priority = p.text(s.Prefix), p.text(s.Category), p.text(s.Priority)
		kept.Benefit = nil
		if benefit := p.text(wire.View(s.Benefit)); benefit != "" {
			kept.Benefit = unsafe.Slice(unsafe.StringData(benefit), len(benefit))
		}
		*slot = &kept
	}
	return *slot
}

// text returns a string equal to s that shares no memory with it.
func (p *settingsPool) text(s string) string {
	if s == "" {
		return ""
	}
	h := uint64(len(s))
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x9e3779b97f4a7c15
	}
	slot := &p.texts[h>>58]
	if *slot != s {
		*slot = strings.Clone(s)
	}
	return *slot
}

// settingsHash is the argument by which a create with the same id is recognised as the same.
func (l *Lane) settingsHash(s *wire.Settings) uint64 {
	return l.hash.text(string(s.Append(nil)))
}

// byName is the slots of a lane's campaigns (see Lane.bySlot) in the order of their names, in chunks, so that an insertion
// moves a kilobyte and not a megabyte. Campaigns are never removed. Only queries need the order, so it is made by
// [Lane.Index] and not by every fold.
type byName struct {
	chunks [][]uint32 // none is empty
	taken  int        // slots below are in
}

// foldedAhead is how many event lines are parsed before the first of them is applied, so that their reads of memory overlap.
const foldedAhead = code.Batch

// foldLine is an event line, read.
type foldLine struct {
	number int // from 1, empty lines counted
	event  wire.Event
	hashes eventHashes
	err    error
}
