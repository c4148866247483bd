package domain

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/table"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// campaignState is the state of a campaign.
//
//	create ──> active <──resume/pause──> paused
//	             └───────end───────┬───────┘
//	                               v
//	                             ended            (claims are refused; claimed coupons stay valid)
//
// A campaign that is sold out or past its closing time is still active: codes may be added, the closing time moved.
type campaignState uint8

const (
	active campaignState = iota
	paused
	ended
)

var stateNames = [...]string{"active", "paused", "ended"}

// CampaignStatuses are what a campaign can be. Nothing changes them.
var CampaignStatuses = stateNames[:]

func (s campaignState) String() string { return stateNames[s] }

// campaign is the state of one campaign, limited to what Decide needs. Customers, orders and ids are stored as keyed hashes;
// generated codes are not stored. A lane may hold a million campaigns, so what most do not need is reached by a pointer.
//
// A campaign of which a snapshot is being written is not changed any more: the lane continues with a copy (see
// [Lane.writable]).
type campaign struct {
	name     string
	settings *wire.Settings // shared by campaigns with equal settings: never changed
	imported *importedCodes
	allotted *allotments // nil until there is one

	claims table.Pages[claimRecord] // coupon n is record n-1, less the coupons of blocks before it
	acts   table.Pages[actRecord]

	created        wire.Instant
	expiredThrough wire.Instant // coupons that expire up to it have been announced
	lastReminder   uint64
	number         uint32
	epoch          uint32 // of the lane when it was last copied
	state          campaignState
	scanLimit      uint8 // see linearScanLimit

	// The rest is derived from the above, and snapshots do not read it.
	indexes    *indexes // nil while scanning claims and acts is as fast
	sparse     *sparse  // nil until it is needed
	inheriting int64    // live coupons that expire at the campaign's end
	redeemed   uint32   // coupons without uses left, voided ones not counted
	voided     uint32
}

// indexes find coupons and commands of a campaign with more than linearScanLimit of them.
type indexes struct {
	customers table.Index  // customer → newest coupon
	ids       table.Index  // command id → claim or act
	links     links        // beside claims, where customers have several
	orders    *table.Index // (coupon, order) → newest redemption; kept only while coupons may be redeemed often
	ordered   uint32       // acts that are in orders; the others are added some at a time
}

// linearScanLimit is how many claims and acts are scanned without an index: 32 of them take 1 KiB. Tests use less.
const linearScanLimit = 32

// sparse is what few campaigns need.
type sparse struct {
	irregular irregularExpiries // own expiries that do not fit a record
	due       dueCounts
	reminders reminder.Subscriptions // of kind opens, n is the act that set it + 1
	parked    reminder.Subscriptions // cancelled by a redemption; its rollback sets them again
	packed    *packed                // instead of all else; see open
	listed    bool                   // in the lane's list of campaigns with maps that a snapshot must copy
}

func (c *campaign) idHash(ref uint32) uint64 {
	if ref&1 != 0 {
		return c.acts.At(ref >> 1).id
	}
	return c.claims.At(ref >> 1).id
}

// seen finds the accepted command with that id.
func (c *campaign) seen(id uint64) (ref uint32, ok bool) {
	if c.indexes != nil {
		return c.indexes.ids.Find(id, func(ref uint32) bool { return c.idHash(ref) == id })
	}
	for i := range c.claims.Len() {
		if c.claims.At(i).id == id {
			return claimRef(i), true
		}
	}
	for i := range c.acts.Len() {
		if c.acts.At(i).id == id {
			return actRef(i), true
		}
	}
	return 0, false
}

// seenAct finds the accepted command, other than a claim, with that id.
func (c *campaign) seenAct(id uint64) (act *actRecord, known bool) {
	ref, ok := c.seen(id)
	if !ok {
		return nil, false
	}
	if ref&1 == 0 {
		return nil, true
	}
	return c.acts.At(ref >> 1), true
}

func (c *campaign) customerHash(i uint32) uint64 { return c.claims.At(i).customer[0] }

// newestOf finds the newest coupon of a customer; 0 and false if there is none.
func (c *campaign) newestOf(customer customerHash) (n uint32, ok bool) {
	if c.indexes == nil {
		n = c.newestUpTo(c.claims.Len(), customer)
		return n, n != 0
	}
	i, ok := c.indexes.customers.Find(customer[0], func(i uint32) bool { return c.claims.At(i).customer == customer })
	if !ok {
		return 0, false
	}
	return c.couponAt(i), true
}

// newestUpTo scans the first claims for the customer's newest coupon, 0 if there is none.
func (c *campaign) newestUpTo(claims uint32, customer customerHash) uint32 {
	for i := claims; i > 0; i-- {
		if c.claims.At(i-1).customer == customer {
			return c.couponAt(i - 1)
		}
	}
	return 0
}

// noReminders are those of a campaign that never had any. Read-only.
var noReminders reminder.Subscriptions

// reminders returns the pending ones, for reading.
func (c *campaign) reminders() *reminder.Subscriptions {
	if c.sparse == nil {
		return &noReminders
	}
	return &c.sparse.reminders
}

// parked returns the reminders that redemptions cancelled, for reading.
func (c *campaign) parked() *reminder.Subscriptions {
	if c.sparse == nil {
		return &noReminders
	}
	return &c.sparse.parked
}

// NoteHash returns what a pending reminder of kind opens is found by: the customer, of whom and the lead time the act
// that set it remembers a hash. Storing the customer too would cost 16 bytes each.
func (c *campaign) NoteHash(act uint32, before time.Duration) uint64 {
	return c.acts.At(act-1).arg ^ leadHash(before)
}

// ensureSparse returns the sparse state for writing, made if it is missing.
func (c *campaign) ensureSparse() *sparse {
	if c.sparse == nil {
		c.sparse = new(sparse)
	}
	return c.sparse
}

// claimed is the number of coupons handed out.
func (c *campaign) claimed() uint32 {
	n := c.claims.Len()
	if a := c.allotted; a != nil {
		n += a.upTo(len(a.blocks))
	}
	return n
}

// total is the number of coupons there are to hand out.
func (c *campaign) total() uint32 {
	if c.imported != nil {
		return c.imported.len()
	}
	return c.settings.Codes
}

func (c *campaign) anchors() reminder.Anchors {
	return reminder.Anchors{Opens: c.settings.OpensAt, Expires: c.settings.ExpiresAt}
}

// recount counts the live, spent and voided coupons from their records.
func (c *campaign) recount() {
	c.inheriting, c.redeemed, c.voided = 0, 0, 0
	if c.sparse != nil {
		c.sparse.due.reset()
	}
	of := func(n uint32) {
		switch _, voided := c.redemptionState(n); {
		case voided:
			c.voided++
		case c.live(n):
			c.count(n, +1)
		default:
			c.redeemed++
		}
	}
	for i := range c.claims.Len() {
		of(c.couponAt(i))
	}
	if a := c.allotted; a != nil {
		for i := range a.touched.Len() {
			n := a.touched.At(i).n
			of(n)
			c.countAt(a.of(n).expires, -1) // it is counted with its block, too
		}
		for i := range a.blocks {
			c.countAt(a.blocks[i].expires, int64(a.blocks[i].size()))
		}
	}
}

// held is how many coupons that are not void a customer has whose newest is n.
func (c *campaign) held(n uint32) (count uint32) {
	if c.indexes == nil {
		for ; n != 0; n = c.before(n) {
			if !c.isVoid(n) {
				count++
			}
		}
		return count
	}
	count = c.indexes.links.at(c.claimAt(n)).others
	if !c.isVoid(n) {
		count++
	}
	return count
}

// before is the coupon that the holder of coupon n got before it, 0 if it is the first.
func (c *campaign) before(n uint32) uint32 {
	i := c.claimAt(n)
	if c.indexes == nil {
		return c.newestUpTo(i, c.claims.At(i).customer)
	}
	return c.indexes.links.at(i).previous
}

// isVoid reports whether coupon n is void. Most campaigns have no such coupon, so its acts are not read.
func (c *campaign) isVoid(n uint32) bool {
	if c.voided == 0 {
		return false
	}
	_, voided := c.redemptionState(n)
	return voided
}

// replaced is the coupon that a new one replaces whose holder's newest is n, 0 = none: coupon n, if it is void.
func (c *campaign) replaced(n uint32) uint32 {
	if n != 0 && c.isVoid(n) {
		return n
	}
	return 0
}

// ownExpiry is the own expiry of coupon n, 0 if it inherits the campaign's end.
func (c *campaign) ownExpiry(n uint32) wire.Instant {
	switch e := c.coupon(n).expiry; e {
	case inherits:
		return 0
	case irregularExpiry:
		if at := c.sparse.irregular.get(n); at != 0 {
			return at
		}
		return c.allotted.of(n).expires // of a coupon without a record
	default:
		return wire.Instant(e) * 1e6
	}
}

func (c *campaign) setOwnExpiry(n uint32, at wire.Instant) {
	rec := c.editCoupon(n)
	if rec.expiry == irregularExpiry {
		c.sparse.irregular.delete(n)
	}
	if rec.expiry = recordedExpiry(at); rec.expiry == irregularExpiry {
		c.ensureSparse().irregular.set(n, at)
	}
}

// recordedExpiry is how a record has an own expiry.
func recordedExpiry(at wire.Instant) uint32 {
	switch secs := at / 1e6; {
	case at == 0:
		return inherits
	case at%1e6 == 0 && secs < irregularExpiry:
		return uint32(secs)
	}
	return irregularExpiry
}

// expires is when coupon n expires, Never if it does not.
func (c *campaign) expires(n uint32) wire.Instant { return c.expiry(c.ownExpiry(n)) }

func (c *campaign) expiry(own wire.Instant) wire.Instant {
	if own != 0 {
		return own
	}
	return c.settings.Expires()
}

// lastAct is the newest act of coupon n, nil if there is none.
func (c *campaign) lastAct(n uint32) *actRecord {
	if a := c.coupon(n).act; a != 0 {
		return c.acts.At(a - 1)
	}
	return nil
}

// redemptionState returns how often coupon n has been redeemed and whether it is void.
func (c *campaign) redemptionState(n uint32) (count uint32, voided bool) {
	if a := c.lastAct(n); a != nil {
		return a.count, a.flags&flagVoided != 0
	}
	return 0, false
}

// rollbacks is how many redemptions of coupon n have been rolled back.
func (c *campaign) rollbacks(n uint32) uint32 {
	if a := c.lastAct(n); a != nil {
		return a.rollbacks()
	}
	return 0
}

// maxRollbacks is how many rollbacks a coupon may have and still be redeemed: each pair of events stays in the log. Above
// maxRolled they are not counted, so a word for hundreds of thousands does not end by orders that were not paid.
func (c *campaign) maxRollbacks() uint32 {
	return uint32(min(uint64(c.settings.MaxRedemptions)*wire.MaxRollbacks, maxRolled+1))
}

// statusOf is the status of coupon n as the read tables would show it with everything announced up to now.
func (c *campaign) statusOf(n uint32, now wire.Instant) string {
	count, voided := c.redemptionState(n)
	switch {
	case voided:
		return wire.StatusVoided
	case count >= c.settings.MaxRedemptions:
		return wire.StatusRedeemed
	case now >= c.expires(n):
		return wire.StatusExpired
	}
	return wire.StatusClaimed
}

// live reports whether coupon n counts as expired when its expiry passes: not void, not spent.
func (c *campaign) live(n uint32) bool {
	count, voided := c.redemptionState(n)
	return !voided && count < c.settings.MaxRedemptions
}

// count adds delta to the number of live coupons that expire when n does. One whose expiry has been announced is not counted
// again.
func (c *campaign) count(n uint32, delta int64) { c.countAt(c.ownExpiry(n), delta) }

func (c *campaign) countAt(own wire.Instant, delta int64) {
	switch {
	case own == 0:
		c.inheriting += delta
	case own > c.expiredThrough:
		c.ensureSparse().due.add(own, delta)
	}
}

// hasMaps reports whether there is something that Freeze must copy.
func (r *sparse) hasMaps() bool {
	return r.irregular.len() > 0 || r.reminders.Len() > 0 || r.parked.Len() > 0
}
