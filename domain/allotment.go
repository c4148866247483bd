package domain

import (
	"fmt"
	"sort"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/table"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// allotments are the blocks of a campaign: coupons that were claimed for print, without a holder. A block costs the same memory
// whatever its size; what happens to one of its coupons is kept in a record of that coupon.
//
// Claimed coupons and those of blocks have their numbers from one row, so the record of a claimed coupon is at its number less
// the coupons of the blocks before it.
type allotments struct {
	blocks  []block        // by number; one is never changed, so a frozen campaign shares them
	named   map[string]int // batch → block
	touched table.Pages[touchedRecord]
	byN     table.Index // coupon → touched
}

type block struct {
	from, through uint32
	before        uint32 // coupons of the blocks before it
	batch         string
	at            wire.Instant
	expires       wire.Instant // the expiry of its coupons' own; 0 = the campaign's
	untouched     claimRecord  // what is known of a coupon without a record
}

func (b *block) size() uint32 { return b.through - b.from + 1 }

// touchedRecord is what is kept of a coupon of a block; its customer is zero until a redemption names one.
type touchedRecord struct {
	n uint32
	claimRecord
}

func hashOfN(n uint32) uint64 { return uint64(n) * 0x9e3779b97f4a7c15 }

// upTo is how many coupons the first k blocks have.
func (a *allotments) upTo(k int) uint32 {
	if k == 0 {
		return 0
	}
	return a.blocks[k-1].before + a.blocks[k-1].size()
}

// search returns the first block that does not end before coupon n.
func (a *allotments) search(n uint32) int {
	return sort.Search(len(a.blocks), func(k int) bool { return a.blocks[k].through >= n })
}

// of is the block of coupon n, nil if it is in none.
func (a *allotments) of(n uint32) *block {
	if a != nil {
		if k := a.search(n); k < len(a.blocks) && a.blocks[k].from <= n {
			return &a.blocks[k]
		}
	}
	return nil
}

// batch is the block of that name, nil if there is none.
func (a *allotments) batch(name string) *block {
	if a != nil {
		if k, ok := a.named[name]; ok {
			return &a.blocks[k]
		}
	}
	return nil
}

func (a *allotments) find(n uint32) (i uint32, ok bool) {
	return a.byN.Find(hashOfN(n), func(i uint32) bool { return a.touched.At(i).n == n })
}

// touch makes the record of a coupon of a block.
func (a *allotments) touch(n uint32, rec claimRecord) *claimRecord {
	i, slot := a.touched.Add(wire.MaxCodes)
	*slot = touchedRecord{n, rec}
	a.byN.Add(hashOfN(n), i, func(i uint32) uint64 { return hashOfN(a.touched.At(i).n) })
	return &slot.claimRecord
}

// writable is the copy with which the lane goes on once the campaign is frozen.
func (a *allotments) writable() *allotments {
	if a == nil {
		return nil
	}
	own := *a
	own.touched.Freeze()
	return &own
}

// claimAt is the index of the claim of coupon n, which is in no block.
func (c *campaign) claimAt(n uint32) uint32 {
	if a := c.allotted; a != nil {
		n -= a.upTo(a.search(n))
	}
	return n - 1
}

// couponAt is the coupon of claim i.
func (c *campaign) couponAt(i uint32) uint32 {
	if a := c.allotted; a != nil {
		return i + 1 + a.upTo(sort.Search(len(a.blocks), func(k int) bool { return a.blocks[k].from-1-a.blocks[k].before > i }))
	}
	return i + 1
}

// coupon is what is kept of coupon n, for reading.
func (c *campaign) coupon(n uint32) *claimRecord {
	if c.allotted == nil {
		return c.claims.At(n - 1)
	}
	b := c.allotted.of(n)
	if b == nil {
		return c.claims.At(c.claimAt(n))
	}
	if i, ok := c.allotted.find(n); ok {
		return &c.allotted.touched.At(i).claimRecord
	}
	return &b.untouched
}

// recorded reports whether coupon n, which is claimed, has a record of its own.
func (c *campaign) recorded(n uint32) bool {
	b := c.allotted.of(n)
	return b == nil || c.coupon(n) != &b.untouched
}

// editCoupon is coupon for writing.
func (c *campaign) editCoupon(n uint32) *claimRecord {
	b := c.allotted.of(n)
	if b == nil {
		return c.claims.Edit(c.claimAt(n))
	}
	if i, ok := c.allotted.find(n); ok {
		return &c.allotted.touched.Edit(i).claimRecord
	}
	if b.untouched.expiry == irregularExpiry {
		c.sparse.irregular.set(n, b.expires)
	}
	return c.allotted.touch(n, b.untouched)
}

// addBlock adds a block after all others. An error changes nothing.
func (c *campaign) addBlock(b block) error {
	a := c.allotted
	switch {
	case c.imported != nil:
		return fmt.Errorf("its codes are imported")
	case b.from > b.through || b.through > c.total():
		return fmt.Errorf("coupons %d to %d of %d are no block", b.from, b.through, c.total())
	case a.batch(b.batch) != nil:
		return fmt.Errorf("batch %s is there already", b.batch)
	case a == nil:
		a = &allotments{named: make(map[string]int)}
		c.allotted = a
	}
	b.batch, b.before = strings.Clone(b.batch), a.upTo(len(a.blocks))
	if b.untouched.expiry = recordedExpiry(b.expires); b.untouched.expiry == irregularExpiry {
		c.ensureSparse()
	}
	a.named[b.batch] = len(a.blocks)
	a.blocks = append(a.blocks, b)
	return nil
}

// allot applies a coupons.allotted event.
func (c *campaign) allot(ev *wire.Event, id, batch uint64) error {
	if ev.FromN != c.claimed()+1 {
		return fmt.Errorf("coupon %d follows coupon %d", ev.FromN, c.claimed())
	}
	b := block{from: ev.FromN, through: ev.ThroughN, batch: ev.Batch, at: ev.At, expires: ev.ExpiresAt}
	if err := c.addBlock(b); err != nil {
		return err
	}
	c.record(actRecord{id: id, kind: wire.Allot, arg: batch, count: b.size()})
	c.countAt(b.expires, int64(b.size()))
	return nil
}

// allot decides the command.
func (d *decision) allot() {
	if !d.campaign() {
		return
	}
	c, s := d.c, d.c.settings
	act, known := c.seenAct(d.id)
	if known && (act == nil || act.kind != wire.Allot || act.arg != d.lane.hash.text(d.cmd.Batch) || uint64(act.count) != d.cmd.Count) {
		d.reused()
		return
	}
	left := c.total() - min(c.claimed(), c.total())
	switch b := c.allotted.batch(d.cmd.Batch); {
	case b != nil && uint64(b.size()) == d.cmd.Count:
		d.allotted(b, true)
	case b != nil:
		d.refuse(wire.BatchExists, d.textNumber("the batch has ", b.size(), " coupons; give an allotment of another count another name"))
	case c.imported != nil:
		d.refuse(wire.Invalid, d.text("campaign: the codes of ", c.name, " are imported: print the file that they came from"))
	case c.state == ended:
		d.refuse(wire.CampaignEnded, "the campaign has ended")
	case c.state == paused:
		d.refuse(wire.CampaignPaused, "the campaign is paused; retry later")
	case d.now >= s.Closes():
		d.refuse(wire.ClaimClosed, d.textTime("claims closed at ", s.Closes(), ""))
	case d.cmd.Count > uint64(left):
		d.refuse(wire.SoldOut, d.textNumber("", left, " coupons are left, and none was allotted"))
	default:
		ev := d.emit(wire.CouponsAllotted)
		ev.FromN, ev.ThroughN = c.claimed()+1, c.claimed()+uint32(d.cmd.Count)
		ev.Batch, ev.ExpiresAt = d.cmd.Batch, s.ExpiryOf(d.now)
		d.apply()
		if c.claimed() == c.total() {
			d.emit(wire.CampaignSoldOut)
			d.apply()
		}
		d.allotted(c.allotted.batch(d.cmd.Batch), false)
	}
}

func (d *decision) allotted(b *block, repeat bool) {
	d.campaignOutcome(wire.StatusAllotted, repeat)
	d.out.N, d.out.Count, d.out.Batch = b.from, uint64(b.size()), b.batch
	if at := d.c.expiry(b.expires); at != wire.Never {
		d.out.ExpiresAt = at
	}
}
