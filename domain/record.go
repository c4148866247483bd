package domain

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
