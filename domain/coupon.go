package domain

import "github.com/seed-4a2410e3/scrip/domain/wire"

// ordinal is how many coupons the holder of coupon n had, that one included.
func (c *campaign) ordinal(n uint32) (count uint32) {
	if x := c.indexes; x == nil {
		for customer := c.claims.At(n - 1).customer; n != 0; n = c.newestUpTo(n-1, customer) {
			count++
		}
		return count
	} else if x.links.Len() < n {
		return 1
	}
	return c.indexes.links.At(n - 1).ordinal
}

// before is the coupon that the holder of coupon n got before it, 0 if it is the first.
func (c *campaign) before(n uint32) uint32 {
	if x := c.indexes; x == nil {
		return c.newestUpTo(n-1, c.claims.At(n-1).customer)
	} else if x.links.Len() < n {
		return 0
	}
	return c.indexes.links.At(n - 1).previous
}

// ownExpiry is the own expiry of coupon n, 0 if it inherits the campaign's end.
func (c *campaign) ownExpiry(n uint32) wire.Instant {
	switch e := c.claims.At(n - 1).expiry; e {
	case inherits:
		return 0
	case irregularExpiry:
		return c.sparse.irregular.get(n)
	default:
		return wire.Instant(e) * 1e6
	}
}

func (c *campaign) setOwnExpiry(n uint32, at wire.Instant) {
	rec := c.claims.Edit(n - 1)
	if rec.expiry == irregularExpiry {
		c.sparse.irregular.delete(n)
	}
	switch secs := at / 1e6; {
	case at == 0:
		rec.expiry = inherits
	case at%1e6 == 0 && secs < irregularExpiry:
		rec.expiry = uint32(secs)
	default:
		rec.expiry = irregularExpiry
		c.ensureSparse().irregular.set(n, at)
	}
}

// expires is when coupon n expires, Never if it does not.
func (c *campaign) expires(n uint32) wire.Instant {
	if own := c.ownExpiry(n); own != 0 {
		return own
	}
	return c.settings.Expires()
}

// lastAct is the newest act of coupon n, nil if there is none.
func (c *campaign) lastAct(n uint32) *actRecord {
	if a := c.claims.At(n - 1).act; a != 0 {
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

// maxRollbacks is how many rollbacks a coupon may have and still be redeemed: each pair of events stays in the log.
func (c *campaign) maxRollbacks() uint32 {
	return uint32(min(uint64(c.settings.MaxRedemptions)*wire.MaxRollbacks, maxRolled))
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

// redemption finds the newest redemption of coupon n for an order.
func (c *campaign) redemption(n uint32, order uint64) (index uint32, act *actRecord) {
	if c.ordered() {
		i, ok := c.indexes.orders.Find(orderKey(n, order), func(i uint32) bool {
			a := c.acts.At(i)
			return a.n == n && a.arg == order
		})
		if !ok {
			return 0, nil
		}
		return i, c.acts.At(i)
	}
	steps := 0
	for next := c.claims.At(n - 1).act; next != 0; steps++ {
		a := c.acts.At(next - 1)
		if a.kind == wire.Redeem && a.arg == order {
			return next - 1, a
		}
		next = a.previous
	}
	if steps > manyActs {
		c.indexOrders()
		for steps > 16*manyActs && !c.ordered() { // another scan as long would take longer
		}
	}
	return 0, nil
}

// manyActs is from how many acts on those of one coupon are no longer scanned: a client that redeems and rolls back the same
// coupon again and again would make each time more expensive.
const manyActs = 1000

func orderKey(n uint32, order uint64) uint64 { return order ^ uint64(n)*0x9e3779b97f4a7c15 }

// live reports whether coupon n counts as expired when its expiry passes: not void, not spent.
func (c *campaign) live(n uint32) bool {
	count, voided := c.redemptionState(n)
	return !voided && count < c.settings.MaxRedemptions
}

// count adds delta to the number of live coupons that expire when n does. One whose expiry has been announced is not counted
// again.
func (c *campaign) count(n uint32, delta int64) {
	switch own := c.ownExpiry(n); {
	case own == 0:
		c.inheriting += delta
	case own > c.expiredThrough:
		c.ensureSparse().due.add(own, delta)
	}
}
