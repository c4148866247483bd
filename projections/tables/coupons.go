package tables

import (
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain"
)

func (f *fold) claimed(c *campaign, e *domain.Event) error {
	switch {
	case e.N == 0:
		return fmt.Errorf("n: a coupon has a number")
	case c.coupons[e.N] != nil:
		return alreadyThere("coupon_row_key")
	}
	k := &coupon{
		n: e.N, code: e.Code, customer: e.CustomerID, attributes: e.Attributes, claimedAt: e.At, own: e.ExpiresAt, isNew: true,
	}
	c.keep(k)
	f.claims = append(f.claims, claim{c, k})
	c.claimed++
	c.changed = true
	c.place(k, +1, e.At)
	f.count(c, k, e.At, func(s *stat) { s.claimed++ })
	return nil
}

// coupon folds what happened to a claimed coupon: it leaves its place, changes, and takes the place that is now its.
func (f *fold) coupon(c *campaign, l *Line) error {
	e := &l.Event
	k := c.coupons[e.N]
	if k == nil {
		return fmt.Errorf("%s of coupon %d of campaign %s, which is not in the tables", e.Type, e.N, c.name)
	}
	if e.Type == domain.CouponRedeemed && e.RedeemedCount == 0 {
		return fmt.Errorf("redeemed_count: a redeemed coupon has been redeemed at least once")
	}
	if e.Type == domain.CouponExtended && e.ExpiresAt == 0 {
		return fmt.Errorf("expires_at: an extended coupon has an expiry of its own")
	}
	c.place(k, -1, e.At)
	c.changed = true
	k.changed = true
	switch e.Type {
	case domain.CouponRedeemed:
		f.redeem(c, k, l)
	case domain.CouponRolledBack:
		f.rollback(c, k, e)
	case domain.CouponVoided:
		k.voidedAt, k.voidReason = e.At, e.Reason
		f.count(c, k, e.At, func(s *stat) { s.voided++ })
	case domain.CouponExtended:
		k.own = e.ExpiresAt
		f.remindersMove(c, reminderMove{kind: domain.KindExpires, n: e.N, anchor: e.ExpiresAt})
	}
	c.place(k, +1, e.At)
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
	f.count(c, k, e.At, func(s *stat) { s.redeemed++ })
}

func (f *fold) rollback(c *campaign, k *coupon, e *domain.Event) {
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
	f.count(c, k, e.At, func(s *stat) { s.rolledBack++ })
}
