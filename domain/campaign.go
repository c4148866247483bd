package domain

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/table"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// campaignState is where a campaign stands.
//
//	create ──> active <──resume/pause──> paused
//	             └───────end───────┬───────┘
//	                               v
//	                             ended            (claims refused; coupons already claimed live on)
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

// campaign is the state of one campaign: what Decide needs to know, and no more. Customers, orders and ids are kept as
// keyed hashes; generated codes are not kept at all. There may be a million of them, so what most do not need hangs on a
// pointer.
//
// A campaign that a snapshot is being written of is not written any more: the lane goes on with a copy (see [Lane.own]).
type campaign struct {
	name     string
	settings *wire.Settings // shared with others that have the same: never written
	imported *importedCodes

	claims table.Pages[claimRecord] // coupon n is record n-1
	acts   table.Pages[actRecord]

	created        wire.Instant
	expiredThrough wire.Instant // coupons that expire up to it have been announced
	lastReminder   uint64
	number         uint32
	epoch          uint32 // of the lane when it was last copied
	state          campaignState
	few            uint8 // see few

	// What follows can be worked out, and a snapshot does not look at it.
	indexes    *indexes // nil while a walk over claims and acts finds things as fast
	rare       *rare    // nil until it is needed
	inheriting int64    // live coupons that fall at the campaign's end
	redeemed   uint32   // coupons with all uses spent, voided ones left out
	voided     uint32
}

// indexes find coupons and commands of a campaign that has more than a few.
type indexes struct {
	customers table.Index             // customer → newest coupon
	ids       table.Index             // command id → claim or act
	links     table.Pages[linkRecord] // beside claims, once customers have several
	orders    *table.Index            // (coupon, order) → newest redemption; kept only while coupons may be redeemed often
	ordered   uint32                  // acts that orders knows of; the others are added a few at a time
}

// few is how many claims and acts are looked through one by one: 32 of them lie in 1 KiB. Tests take less.
const few = 32

// rare is what few campaigns need.
type rare struct {
	odd       oddExpiries // expiries of their own that do not fit a record
	due       dueCounts
	reminders reminder.Subscriptions // of kind opens, n is the act that set it + 1
	parked    reminder.Subscriptions // that a redemption cancelled: set again where it is rolled back
	listed    bool                   // in the lane's list of campaigns with maps that a snapshot must copy
}

type customerHash = [2]uint64

// claimRecord is what is kept of a claimed coupon: 32 bytes.
type claimRecord struct {
	customer customerHash
	id       uint64 // of the claim command
	expiry   uint32 // seconds since 1970 of its own expiry; inherits, or oddExpiry = look into odd
	act      uint32 // newest act + 1; 0 = none
}

const (
	inherits  = 0
	oddExpiry = 1<<32 - 1
)

// linkRecord ties the coupons of a customer together where one may have several.
type linkRecord struct {
	previous uint32 // the customer's coupon before this one; 0 = none
	ordinal  uint32 // how many the customer had with this one
}

// actRecord is an accepted command other than a claim: 32 bytes. The newest act of a coupon says how it stands.
type actRecord struct {
	id       uint64
	arg      uint64 // what else must be equal for the same id to be the same command: order, settings, reminder
	n        uint32 // coupon, 0 = the campaign's
	previous uint32 // act of the same coupon before this one + 1
	count    uint32 // redeemed count after it; of an import: codes added; of a reminder: its coupon
	kind     wire.CommandType
	flags    uint8  // with the high bits of rolled
	rolled   uint16 // see rollbacks
}

const (
	flagVoided     = 1 << iota // the coupon is void from this act on
	flagRolledBack             // this redemption was taken back

	flagBits = 2
	flagMask = 1<<flagBits - 1
	// maxRolled is how many rollbacks can be counted.
	maxRolled = 1<<(8-flagBits+16) - 1
)

// rollbacks is how many redemptions of its coupon had been rolled back with this act, at most maxRolled. It follows from the
// acts before it, so a snapshot does not hold it.
func (a *actRecord) rollbacks() uint32 { return uint32(a.flags>>flagBits)<<16 | uint32(a.rolled) }

func (a *actRecord) setRollbacks(n uint32) {
	n = min(n, maxRolled)
	a.flags, a.rolled = a.flags&flagMask|uint8(n>>16)<<flagBits, uint16(n)
}

// A command of either kind is known by its place: acts have the lowest bit set. Low, so that the numbers stay small.
func claimRef(i uint32) uint32 { return i << 1 }
func actRef(i uint32) uint32   { return i<<1 | 1 }

// maxActs is how many acts can be told apart from claims.
const maxActs = 1<<31 - 2

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

// newestUpTo walks coupons n and before for the customer's newest, 0 if there is none.
func (c *campaign) newestUpTo(n uint32, customer customerHash) uint32 {
	for ; n > 0; n-- {
		if c.claims.At(n-1).customer == customer {
			return n
		}
	}
	return 0
}

// noReminders are those of a campaign that never had any: only looked at.
var noReminders reminder.Subscriptions

// reminders are the pending ones, to be looked at.
func (c *campaign) reminders() *reminder.Subscriptions {
	if c.rare == nil {
		return &noReminders
	}
	return &c.rare.reminders
}

// parked are the reminders that redemptions cancelled, to be looked at.
func (c *campaign) parked() *reminder.Subscriptions {
	if c.rare == nil {
		return &noReminders
	}
	return &c.rare.parked
}

// noteHash says what a pending reminder of kind opens is looked for by: the customer, of whom and the lead time the act
// that set it remembers a hash. Were the customer kept for it as well, each would cost 16 bytes more.
func (c *campaign) NoteHash(act uint32, before time.Duration) uint64 {
	return c.acts.At(act-1).arg ^ leadHash(before)
}

// pendingReminder finds what a customer has subscribed to; n is the coupon it hangs on, 0 for the opening.
func (l *Lane) pendingReminder(c *campaign, customer customerHash, kind string, before time.Duration, n uint32) (r uint64, ok bool) {
	if kind == wire.KindExpires {
		return c.reminders().FindOfCoupon(n, before)
	}
	return c.reminders().OfNote(reminded(customer), before, c)
}

// rarely is what the campaign needs from now on.
func (c *campaign) rarely() *rare {
	if c.rare == nil {
		c.rare = new(rare)
	}
	return c.rare
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

// setSettings replaces the settings and brings what hangs on them in line.
func (c *campaign) setSettings(s *wire.Settings) {
	recount := c.claimed() > 0 && s.MaxRedemptions != c.settings.MaxRedemptions
	c.settings = s
	if s.MaxRedemptions > manyRedemptions && c.indexes != nil {
		c.indexOrders()
	}
	if recount {
		// Rare, and about 10 ns a coupon: which coupons are spent changes for all of them at once.
		c.recount()
	}
}

// recount works out from the coupons how many live, are spent and are void.
func (c *campaign) recount() {
	c.inheriting, c.redeemed, c.voided = 0, 0, 0
	if c.rare != nil {
		c.rare.due.reset()
	}
	for n := uint32(1); n <= c.claimed(); n++ {
		switch _, voided := c.standing(n); {
		case voided:
			c.voided++
		case c.live(n):
			c.count(n, +1)
		default:
			c.redeemed++
		}
	}
}
