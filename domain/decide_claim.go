package domain

import "github.com/seed-4a2410e3/scrip/domain/wire"

// claim hands out the next coupon. CONTRACT.md has the order of the checks.
func (d *decision) claim() {
	if !d.campaign() {
		return
	}
	c, now := d.c, d.now
	customer := d.customer
	if ref, known := c.seen(d.id); known {
		if ref&1 != 0 || c.claims.At(ref>>1).customer != customer {
			d.reused()
			return
		}
		d.claimed(ref>>1+1, true)
		return
	}
	newest, has := c.newestOf(customer)
	s := c.settings
	switch {
	case has && s.PerCustomer == 1:
		d.claimed(newest, true)
	case c.state == ended:
		d.refuse(wire.CampaignEnded, "the campaign has ended")
	case c.state == paused:
		d.refuse(wire.CampaignPaused, "the campaign is paused; retry later")
	case now < s.OpensAt:
		d.refuse(wire.ClaimNotOpen, d.textTime("claims open at ", s.OpensAt, ""))
	case now >= s.Closes():
		d.refuse(wire.ClaimClosed, d.textTime("claims closed at ", s.Closes(), ""))
	case has && s.PerCustomer > 1 && c.ordinal(newest) >= s.PerCustomer:
		d.refuse(wire.ClaimLimitReached, d.textNumber("the customer has ", s.PerCustomer, " coupons, the most allowed"))
	case c.claimed() >= c.total():
		d.refuse(wire.SoldOut, "all coupons have been claimed")
	default:
		n := c.claimed() + 1
		ev := d.emit(wire.CouponClaimed)
		ev.N, ev.Code, ev.CustomerID, ev.Attributes = n, d.codeOf(n), d.cmd.CustomerID, d.cmd.Attributes
		ev.ExpiresAt = s.ExpiryOf(now)
		// Without Apply: the hashes are computed already, and this is the hottest path.
		c.recordClaim(customer, newest, d.id, ev.ExpiresAt)
		d.lane.list(c)
		d.first = len(d.events)
		if n == c.total() {
			d.emit(wire.CampaignSoldOut)
			d.first = len(d.events)
		}
		d.claimed(n, false)
	}
}

// claimed fills in the outcome of a claim of coupon n.
func (d *decision) claimed(n uint32, repeat bool) {
	d.out.Status, d.out.Campaign, d.out.N, d.out.Repeat = wire.StatusClaimed, d.c.name, n, repeat
	d.out.Code = d.codeOf(n)
	d.out.CustomerID = d.cmd.CustomerID
	if at := d.c.expires(n); at != wire.Never {
		d.out.ExpiresAt = at
	}
}
