package domain

// CustomerAfter shows up to limit coupons of a customer that follow a place, in the order of Customer: by campaign name,
// the newest first within each. The place is coupon n of a campaign, which need not be there any more, nor be the
// customer's; n = 0 is the beginning.
func (l *Lane) CustomerAfter(id string, now Instant, campaignName string, n uint32, limit int) []CouponView {
	if n == 0 {
		return l.Customer(id, now, limit)
	}
	views := []CouponView{}
	customer := l.hash.customer(id)
	for _, name := range l.names() {
		if name < campaignName || len(views) == limit {
			continue
		}
		c := l.campaigns[name]
		next, ok := c.newestOf(customer)
		for ok && next != 0 && len(views) < limit {
			if name > campaignName || next < n {
				views = append(views, l.couponView(c, next, now))
			}
			next = c.before(next)
		}
	}
	return views
}
