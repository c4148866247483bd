package tables

import (
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

func (f *fold) claimed(c *campaign, l *Line) error {
	e := &l.Event
	switch {
	case e.N == 0:
		return fmt.Errorf("n: a coupon has a number")
	case c.claimedHere(e.N):
		return duplicateRow("coupon_row_key")
	}
	k := f.newCoupon()
	*k = coupon{
		n: e.N, code: e.Code, customer: e.CustomerID, attributes: e.Attributes, claimedAt: e.At, position: l.position(),
		ownExpiry: e.ExpiresAt, isNew: true,
	}
	if f.acts || c.coupons != nil {
		c.keep(k)
	}
	if c.newest == nil {
		c.claims = k
	} else {
		c.newest.next = k
	}
	c.newest = k
	f.claims++
	c.claimed++
	c.counted = true
	c.add(k, +1)
	f.count(c, k, e.At, stat{claimed: 1})
	return nil
}

// claimedHere reports whether coupon n was claimed in this batch, or before it if the coupon was loaded. Numbers rise
// in a log, so a batch with only claims needs no map of them.
func (c *campaign) claimedHere(n uint32) bool {
	if c.coupons == nil && n <= c.highest {
		for k := c.claims; k != nil; k = k.next {
			c.keep(k)
		}
	}
	c.highest = max(c.highest, n)
	return c.coupons[n] != nil
}

// couponChunk is how many coupons are allocated at once.
const couponChunk = 128

func (f *fold) newCoupon() *coupon {
	if len(f.chunk) == 0 {
		f.chunk = make([]coupon, couponChunk)
	}
	k := &f.chunk[0]
	f.chunk = f.chunk[1:]
	return k
}

// coupon folds an event of a claimed coupon: it subtracts the coupon from its counts, changes it, and adds it to the
// counts of its new state.
func (f *fold) coupon(c *campaign, l *Line) error {
	e := &l.Event
	k := c.coupons[e.N]
	if k == nil {
		return fmt.Errorf("%s of coupon %d of campaign %s, which is not in the tables", e.Type, e.N, c.name)
	}
	if e.Type == wire.CouponRedeemed && e.RedeemedCount == 0 {
		return fmt.Errorf("redeemed_count: a redeemed coupon has been redeemed at least once")
	}
	if e.Type == wire.CouponExtended && e.ExpiresAt == 0 {
		return fmt.Errorf("expires_at: an extended coupon has an expiry of its own")
	}
	c.add(k, -1)
	c.changed = true
	k.changed = true
	f.addCouponEvent(c, k, l, k.ownExpiry)
	switch e.Type {
	case wire.CouponRedeemed:
		f.redeem(c, k, l)
	case wire.CouponRolledBack:
		f.rollback(c, k, e)
	case wire.CouponVoided:
		k.voidedAt, k.voidReason = e.At, e.Reason
		f.count(c, k, e.At, stat{voided: 1})
	case wire.CouponExtended:
		k.ownExpiry = e.ExpiresAt
		f.remindersMove(c, reminderMove{kind: wire.KindExpires, n: e.N, anchor: e.ExpiresAt})
	default:
		c.add(k, +1)
		return fmt.Errorf("%s is not known to the read tables", e.Type)
	}
	c.add(k, +1)
	return nil
}

func (f *fold) redeem(c *campaign, k *coupon, l *Line) {
	e := &l.Event
	k.redeemedCount, k.redeemedAt = e.RedeemedCount, e.At
	r := &redemption{campaign: c.name, coupon: k, order: e.OrderID, at: e.At, sequence: l.Sequence, line: l.Number}
	f.redemptions = append(f.redemptions, r)
	if f.open == nil {
		f.open = make(map[orderKey]*redemption)
	}
	f.open[orderKey{c.name, k.n, e.OrderID}] = r
	f.count(c, k, e.At, stat{redeemed: 1})
}

func (f *fold) rollback(c *campaign, k *coupon, e *wire.Event) {
	k.redeemedCount = e.RedeemedCount
	if k.redeemedCount == 0 {
		k.redeemedAt = 0
	} else {
		k.recheck = true
	}
	key := orderKey{c.name, k.n, e.OrderID}
	if r := f.open[key]; r != nil {
		r.rolledBackAt = e.At
		delete(f.open, key)
	} else {
		f.rollbacks = append(f.rollbacks, rollback{key, e.At})
	}
	f.count(c, k, e.At, stat{rolledBack: 1})
}

// couponEvent is a new row of coupon_event.
type couponEvent struct {
	campaign, what    string
	n                 uint32
	position          int64
	at                wire.Instant
	expiresAt, before wire.Instant // extended
	order, reason     string
}

// addCouponEvent records an event of coupon k other than claim and redemption. before is k's own expiry before the
// event.
func (f *fold) addCouponEvent(c *campaign, k *coupon, l *Line, before wire.Instant) {
	e := &l.Event
	if e.Type == wire.CouponRedeemed {
		return // it has a row of redemption
	}
	h := couponEvent{campaign: c.name, n: k.n, position: l.position(), at: e.At, what: e.Type.Spec().Change,
		order: e.OrderID, reason: e.Reason, expiresAt: e.ExpiresAt}
	if h.expiresAt != 0 {
		h.before = before
	}
	f.couponEvents = append(f.couponEvents, h)
}
