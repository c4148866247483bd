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

func (s campaignState) String() string { return stateNames[s] }

// campaign is the state of one campaign, limited to what Decide needs. Customers, orders and ids are stored as keyed hashes;
// generated codes are not stored. A lane may hold a million campaigns, so what most do not need is behind a pointer.
//
// A campaign of which a snapshot is being written is not changed any more: the lane continues with a copy (see
// [Lane.writable]).
type campaign struct {
	name     string
	settings *wire.Settings // shared by campaigns with equal settings: never changed
	imported *importedCodes

	claims table.Pages[claimRecord] // coupon n is record n-1
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
	customers table.Index             // customer → newest coupon
	ids       table.Index             // command id → claim or act
	links     table.Pages[linkRecord] // beside claims, once customers have several
	orders    *table.Index            // (coupon, order) → newest redemption; kept only while coupons may be redeemed often
	ordered   uint32                  // acts that are in orders; the others are added some at a time
}

// linearScanLimit is how many claims and acts are scanned without an index: 32 of them take 1 KiB. Tests use less.
const linearScanLimit = 32

// sparse is what few campaigns need.
type sparse struct {
	irregular irregularExpiries // own expiries that do not fit a record
	due       dueCounts
	reminders reminder.Subscriptions // of kind opens, n is the act that set it + 1
	parked    reminder.Subscriptions // cancelled by a redemption; its rollback sets them again
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
		n = c.newestUpTo(c.claimed(), customer)
		return n, n != 0
	}
	i, ok := c.indexes.customers.Find(customer[0], func(i uint32) bool { return c.claims.At(i).customer == customer })
	if !ok {
		return 0, false
	}
	return i + 1, true
}

// newestUpTo scans coupon n and those before it for the customer's newest, 0 if there is none.
func (c *campaign) newestUpTo(n uint32, customer customerHash) uint32 {
	for ; n > 0; n-- {
		if c.claims.At(n-1).customer == customer {
			return n
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

// pendingReminder finds a subscription of a customer; n is its coupon, 0 for the opening.
func (l *Lane) pendingReminder(c *campaign, customer customerHash, kind string, before time.Duration, n uint32) (r uint64, ok bool) {
	if kind == wire.KindExpires {
		return c.reminders().FindOfCoupon(n, before)
	}
	return c.reminders().OfNote(reminded(customer), before, c)
}

// ensureSparse returns the sparse state for writing, made if it is missing.
func (c *campaign) ensureSparse() *sparse {
	if c.sparse == nil {
		c.sparse = new(sparse)
	}
	return c.sparse
}

// claimed is the number of coupons handed out.
func (c *campaign) claimed() uint32 { return c.claims.Len() }

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

// setSettings replaces the settings and updates what depends on them.
func (c *campaign) setSettings(s *wire.Settings) {
	recount := c.claimed() > 0 && s.MaxRedemptions != c.settings.MaxRedemptions
	c.settings = s
	if s.MaxRedemptions > manyRedemptions && c.indexes != nil {
		c.indexOrders()
	}
	if recount {
		// Rare, and about 10 ns a coupon: which coupons are spent may change for all of them.
		c.recount()
	}
}

// recount counts the live, spent and voided coupons from their records.
func (c *campaign) recount() {
	c.inheriting, c.redeemed, c.voided = 0, 0, 0
	if c.sparse != nil {
		c.sparse.due.reset()
	}
	for n := uint32(1); n <= c.claimed(); n++ {
		switch _, voided := c.redemptionState(n); {
		case voided:
			c.voided++
		case c.live(n):
			c.count(n, +1)
		default:
			c.redeemed++
		}
	}
}
