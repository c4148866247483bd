package domain

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain/siphash"
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
// keyed hashes; generated codes are not kept at all.
type campaign struct {
	name     string
	number   uint32
	created  Instant
	state    campaignState
	settings Settings
	imported *importedCodes // nil unless codes are imported

	claims    pages[claimRecord] // coupon n is record n-1
	links     pages[linkRecord]  // beside claims, once customers may have several
	acts      pages[actRecord]
	customers index // customer → newest coupon
	ids       index // command id → claim or act
	orders    index // (coupon, order) → newest redemption; kept only while coupons may be redeemed often
	byOrder   bool
	odd       map[uint32]Instant // expiries of their own that do not fit a record, by n

	expiredThrough Instant // coupons that expire up to it have been announced
	inheriting     int64   // live coupons that fall at the campaign's end
	due            dueCounts
	redeemed       uint32 // coupons with all uses spent, voided ones left out
	voided         uint32
	reminders      Reminders[customerHash]
	lastReminder   uint64
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
	kind     CommandType
	flags    uint8
}

const (
	flagVoided     = 1 << iota // the coupon is void from this act on
	flagRolledBack             // this redemption was taken back
)

// Claims and acts share one index of ids: acts have the top bit set.
const actBit = 1 << 31

func (c *campaign) idHash(ref uint32) uint64 {
	if ref&actBit != 0 {
		return c.acts.at(ref &^ actBit).id
	}
	return c.claims.at(ref).id
}

// seen finds the accepted command with that id.
func (c *campaign) seen(id uint64) (ref uint32, ok bool) {
	return c.ids.find(id, func(ref uint32) bool { return c.idHash(ref) == id })
}

// seenAct finds the accepted command, other than a claim, with that id.
func (c *campaign) seenAct(id uint64) (act *actRecord, known bool) {
	ref, ok := c.seen(id)
	if !ok {
		return nil, false
	}
	if ref&actBit == 0 {
		return nil, true
	}
	return c.acts.at(ref &^ actBit), true
}

func (c *campaign) customerHash(i uint32) uint64 { return c.claims.at(i).customer[0] }

// newestOf finds the newest coupon of a customer; 0 and false if there is none.
func (c *campaign) newestOf(customer customerHash) (n uint32, ok bool) {
	i, ok := c.customers.find(customer[0], func(i uint32) bool { return c.claims.at(i).customer == customer })
	if !ok {
		return 0, false
	}
	return i + 1, true
}

// ordinal is how many coupons the holder of coupon n had, that one included.
func (c *campaign) ordinal(n uint32) uint32 {
	if c.links.len() < n {
		return 1
	}
	return c.links.at(n - 1).ordinal
}

// claimed is the number of coupons handed out.
func (c *campaign) claimed() uint32 { return c.claims.len() }

// total is the number of coupons there are to hand out.
func (c *campaign) total() uint32 {
	if c.imported != nil {
		return c.imported.len()
	}
	return c.settings.Codes
}

// own is the expiry of its own of coupon n, 0 if it inherits the campaign's end.
func (c *campaign) own(n uint32) Instant {
	switch e := c.claims.at(n - 1).expiry; e {
	case inherits:
		return 0
	case oddExpiry:
		return c.odd[n]
	default:
		return Instant(e) * 1e6
	}
}

func (c *campaign) setOwn(n uint32, at Instant) {
	rec := c.claims.edit(n - 1)
	delete(c.odd, n)
	switch secs := at / 1e6; {
	case at == 0:
		rec.expiry = inherits
	case at%1e6 == 0 && secs < oddExpiry:
		rec.expiry = uint32(secs)
	default:
		rec.expiry = oddExpiry
		if c.odd == nil {
			c.odd = make(map[uint32]Instant)
		}
		c.odd[n] = at
	}
}

// expires is when coupon n falls, Never if it does not.
func (c *campaign) expires(n uint32) Instant {
	if own := c.own(n); own != 0 {
		return own
	}
	return c.settings.Expires()
}

// lastAct is the newest act of coupon n, nil if there is none.
func (c *campaign) lastAct(n uint32) *actRecord {
	if a := c.claims.at(n - 1).act; a != 0 {
		return c.acts.at(a - 1)
	}
	return nil
}

// standing says how often coupon n has been redeemed and whether it is void.
func (c *campaign) standing(n uint32) (count uint32, voided bool) {
	if a := c.lastAct(n); a != nil {
		return a.count, a.flags&flagVoided != 0
	}
	return 0, false
}

// statusOf is the status of coupon n as the read tables would show it with everything announced up to now.
func (c *campaign) statusOf(n uint32, now Instant) string {
	count, voided := c.standing(n)
	switch {
	case voided:
		return StatusVoided
	case count >= c.settings.MaxRedemptions:
		return StatusRedeemed
	case now >= c.expires(n):
		return StatusExpired
	}
	return StatusClaimed
}

// redemption finds the newest redemption of coupon n for an order.
func (c *campaign) redemption(n uint32, order uint64) (index uint32, act *actRecord) {
	if c.byOrder {
		i, ok := c.orders.find(orderKey(n, order), func(i uint32) bool {
			a := c.acts.at(i)
			return a.n == n && a.arg == order
		})
		if !ok {
			return 0, nil
		}
		return i, c.acts.at(i)
	}
	steps := 0
	for next := c.claims.at(n - 1).act; next != 0; steps++ {
		a := c.acts.at(next - 1)
		if a.kind == Redeem && a.arg == order {
			return next - 1, a
		}
		next = a.previous
	}
	if steps > manyActs {
		c.indexOrders()
	}
	return 0, nil
}

// manyActs is from how many acts of one coupon on they are not walked any more: somebody redeems and rolls back the same
// coupon over and over, and each time would cost more than the one before.
const manyActs = 1000

func orderKey(n uint32, order uint64) uint64 { return order ^ uint64(n)*0x9e3779b97f4a7c15 }

// live reports whether coupon n still falls when it expires: not void, not spent.
func (c *campaign) live(n uint32) bool {
	count, voided := c.standing(n)
	return !voided && count < c.settings.MaxRedemptions
}

// count adds delta to the number of live coupons that fall when n does. One that has been announced already is not
// counted again.
func (c *campaign) count(n uint32, delta int64) {
	switch own := c.own(n); {
	case own == 0:
		c.inheriting += delta
	case own > c.expiredThrough:
		c.due.add(own, delta)
	}
}

func (c *campaign) anchors() Anchors {
	return Anchors{Opens: c.settings.OpensAt, Expires: c.settings.ExpiresAt}
}

// recordClaim makes the next coupon the customer's, who had the previous one (0 = none) before.
func (c *campaign) recordClaim(customer customerHash, previous uint32, id uint64, own Instant) {
	i, rec := c.claims.add()
	rec.customer, rec.id = customer, id
	c.link(i, customer, previous)
	c.ids.add(id, i, c.idHash)
	if own != 0 {
		c.setOwn(i+1, own)
	}
	c.count(i+1, +1)
}

// link makes claim i the customer's newest after coupon previous.
func (c *campaign) link(i uint32, customer customerHash, previous uint32) {
	had := previous != 0
	if had {
		c.backfillLinks(i)
		c.customers.replace(customer[0], previous-1, i)
	} else {
		c.customers.add(customer[0], i, c.customerHash)
	}
	if c.links.len() > 0 {
		_, link := c.links.add()
		link.ordinal = 1
		if had {
			link.previous, link.ordinal = previous, c.links.at(previous-1).ordinal+1
		}
	}
}

// backfillLinks starts keeping links: none of the first claims was a customer's second.
func (c *campaign) backfillLinks(claims uint32) {
	if c.links.len() > 0 {
		return
	}
	for range claims {
		_, link := c.links.add()
		link.ordinal = 1
	}
}

// reindex finds again what follows from claims and acts, which is all that a snapshot does not hold. False if one
// command id stands in two of them.
func (c *campaign) reindex() bool {
	c.ids.reserve(c.claimed() + c.acts.len())
	c.customers.reserve(c.claimed())
	for i := range c.claimed() {
		rec := c.claims.at(i)
		if _, twice := c.seen(rec.id); twice {
			return false
		}
		c.ids.add(rec.id, i, c.idHash)
		previous, _ := c.newestOf(rec.customer)
		c.link(i, rec.customer, previous)
	}
	for i := range c.acts.len() {
		if _, twice := c.seen(c.acts.at(i).id); twice {
			return false
		}
		c.linkAct(i)
	}
	c.recount()
	return true
}

// record remembers an accepted command that is not a claim.
func (c *campaign) record(a actRecord) {
	i, slot := c.acts.add()
	*slot = a
	c.linkAct(i)
}

// linkAct makes act i its coupon's newest and findable by its id.
func (c *campaign) linkAct(i uint32) {
	a := c.acts.edit(i)
	if a.n != 0 {
		rec := c.claims.edit(a.n - 1)
		a.previous = rec.act
		rec.act = i + 1
	}
	c.ids.add(a.id, i|actBit, c.idHash)
	if c.byOrder && a.kind == Redeem {
		c.indexOrder(i)
	}
}

// indexOrders starts to keep the index of orders.
func (c *campaign) indexOrders() {
	if c.byOrder {
		return
	}
	c.byOrder = true
	for i := range c.acts.len() {
		if c.acts.at(i).kind == Redeem {
			c.indexOrder(i)
		}
	}
}

func (c *campaign) indexOrder(i uint32) {
	a := c.acts.at(i)
	key := orderKey(a.n, a.arg)
	old, known := c.orders.find(key, func(o uint32) bool {
		prior := c.acts.at(o)
		return prior.n == a.n && prior.arg == a.arg
	})
	if known {
		c.orders.replace(key, old, i)
		return
	}
	c.orders.add(key, i, func(i uint32) uint64 { a := c.acts.at(i); return orderKey(a.n, a.arg) })
}

// manyRedemptions is from how many uses a coupon may have on that redemptions are found by an index and not by walking
// the coupon's acts.
const manyRedemptions = 8

// setSettings replaces the settings and brings what hangs on them in line.
func (c *campaign) setSettings(s Settings) {
	recount := c.claimed() > 0 && s.MaxRedemptions != c.settings.MaxRedemptions
	c.settings = s
	if s.MaxRedemptions > manyRedemptions {
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
	c.due.reset()
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

// hasher makes the keyed hashes kept instead of customers, orders and ids. Keyed, so that nobody outside can choose ids
// that collide.
type hasher struct{ key [16]byte }

func (h hasher) customer(s string) customerHash { return siphash.Sum128(h.key, s) }
func (h hasher) text(s string) uint64           { return siphash.Sum64(h.key, s) }

// reminder is the argument hash of a remind or unremind command.
func (h hasher) reminder(customer customerHash, kind string, before time.Duration) uint64 {
	x := customer[0] ^ customer[1]*0x9e3779b97f4a7c15 ^ uint64(before)*0xff51afd7ed558ccd
	if kind == KindExpires {
		x = ^x
	}
	return x
}
