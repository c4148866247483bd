package domain

// CouponPlace is a place in the order of a customer's coupons: by campaign name, the newest first within each. The zero
// place is the beginning.
type CouponPlace struct {
	Campaign string
	// N is the coupon that the place is behind; it need not be there any more, nor be the customer's.
	N uint32
}

// CustomerAfter shows up to limit coupons of a customer behind a place, having looked at up to campaigns campaigns (both
// at least 1). next is where to go on, unless done.
func (l *Lane) CustomerAfter(id string, now Instant, at CouponPlace, limit, campaigns int) (views []CouponView, next CouponPlace, done bool) {
	customer := l.hash.customer(id)
	next = at
	look := func(c *campaign) bool {
		n, ok := c.newestOf(customer)
		for ok && n != 0 {
			if c.name != at.Campaign || at.N == 0 || n < at.N {
				if len(views) == limit {
					return false
				}
				views = append(views, l.couponView(c, n, now))
				next = CouponPlace{c.name, n}
			}
			n = c.before(n)
		}
		// Behind all of this campaign: coupons are counted from 1.
		next = CouponPlace{c.name, 1}
		campaigns--
		return campaigns > 0
	}
	if at.N > 1 {
		if c := l.campaigns[at.Campaign]; c != nil && !look(c) {
			return views, next, false
		}
	}
	return views, next, l.walk(at.Campaign, look)
}
