package domain

import "slices"

// recordClaim makes the next coupon the customer's, who had the previous one (0 = none) before.
func (c *campaign) recordClaim(customer customerHash, previous uint32, id uint64, own Instant) {
	i, rec := c.claims.add(c.total())
	rec.customer, rec.id = customer, id
	if c.indexes == nil {
		c.indexMany()
	} else {
		c.link(i, customer, previous)
		c.indexes.ids.add(id, claimRef(i), c.idHash)
	}
	if own != 0 {
		c.setOwn(i+1, own)
	}
	c.count(i+1, +1)
}

// indexMany makes the indexes when there are no longer just a few claims and acts.
func (c *campaign) indexMany() {
	if c.claims.len()+c.acts.len() > uint32(c.few) {
		c.index()
	}
}

// index makes the indexes. False if one command id stands in two commands.
func (c *campaign) index() bool {
	x := new(indexes)
	c.indexes = x
	claimed, twice := c.claimed(), false
	x.ids.fill(claimed+c.acts.len(), func(k uint32) uint32 {
		if k < claimed {
			return claimRef(k)
		}
		return actRef(k - claimed)
	}, c.idHash, func(_, _ uint32) bool {
		twice = true // the hash is all there is of an id
		return true
	})
	if twice {
		return false
	}
	x.customers.fill(claimed, func(i uint32) uint32 { return i }, c.customerHash, func(i, earlier uint32) bool {
		if c.claims.at(i).customer != c.claims.at(earlier).customer {
			return false
		}
		c.backfillLinks(claimed)
		link := x.links.edit(i)
		link.previous, link.ordinal = earlier+1, x.links.at(earlier).ordinal+1
		return true
	})
	if c.settings.MaxRedemptions > manyRedemptions {
		c.indexOrders()
		for !c.ordered() { // nobody waits yet
		}
	}
	return true
}

// link makes claim i the customer's newest after coupon previous.
func (c *campaign) link(i uint32, customer customerHash, previous uint32) {
	x := c.indexes
	had := previous != 0
	if had {
		c.backfillLinks(i)
		x.customers.replace(customer[0], previous-1, i)
	} else {
		x.customers.add(customer[0], i, c.customerHash)
	}
	if x.links.len() > 0 {
		_, link := x.links.add(c.total())
		link.ordinal = 1
		if had {
			link.previous, link.ordinal = previous, x.links.at(previous-1).ordinal+1
		}
	}
}

// backfillLinks starts keeping links: none of the first claims was a customer's second.
func (c *campaign) backfillLinks(claims uint32) {
	if c.indexes.links.len() > 0 {
		return
	}
	for range claims {
		_, link := c.indexes.links.add(c.total())
		link.ordinal = 1
	}
}

// reindex finds again what follows from claims and acts, which is all that a snapshot does not hold. False if one
// command id stands in two of them.
func (c *campaign) reindex() bool {
	if c.claims.len()+c.acts.len() > uint32(c.few) {
		if !c.index() {
			return false
		}
	} else if c.idTwice() {
		return false
	}
	for i := range c.acts.len() {
		c.linkAct(i)
	}
	c.recount()
	return true
}

// idTwice looks through a few claims and acts for an id that stands in two.
func (c *campaign) idTwice() bool {
	var ids [few]uint64
	known := ids[:0]
	for i := range c.claims.len() {
		known = append(known, c.claims.at(i).id)
	}
	for i := range c.acts.len() {
		known = append(known, c.acts.at(i).id)
	}
	for i, id := range known {
		if slices.Contains(known[:i], id) {
			return true
		}
	}
	return false
}

// record remembers an accepted command that is not a claim.
func (c *campaign) record(a actRecord) {
	i, slot := c.acts.add(maxActs)
	*slot = a
	c.linkAct(i)
	switch x := c.indexes; {
	case x == nil:
		c.indexMany()
	default:
		x.ids.add(a.id, actRef(i), c.idHash)
		c.ordered()
	}
}

// linkAct makes act i its coupon's newest.
func (c *campaign) linkAct(i uint32) {
	if a := c.acts.edit(i); a.n != 0 {
		rec := c.claims.edit(a.n - 1)
		a.previous = rec.act
		rec.act = i + 1
		rolled := uint32(0)
		if a.previous != 0 {
			rolled = c.acts.at(a.previous - 1).rollbacks()
		}
		if a.kind == Rollback {
			rolled++
		}
		a.setRollbacks(rolled)
	}
}

// indexOrders starts to keep the index of orders. It knows of no act yet: to add a million at once would take a tenth of a
// second, for which the lane would stand still.
func (c *campaign) indexOrders() {
	if c.indexes.orders == nil {
		c.indexes.orders = new(index)
	}
}

// orderedAtOnce is how many acts are added to the index of orders by one command, some 30 µs. It is above one, so that the
// index catches up.
const orderedAtOnce = 256

// ordered adds some acts to the index of orders, if it is kept, in their order: the newest of equal orders counts. It
// reports whether the index knows of all acts; until then the coupon's acts are walked.
func (c *campaign) ordered() bool {
	x := c.indexes
	if x == nil || x.orders == nil {
		return false
	}
	end := min(c.acts.len(), x.ordered+orderedAtOnce)
	for ; x.ordered < end; x.ordered++ {
		if c.acts.at(x.ordered).kind == Redeem {
			c.indexOrder(x.ordered)
		}
	}
	return x.ordered == c.acts.len()
}

func (c *campaign) indexOrder(i uint32) {
	a := c.acts.at(i)
	key := orderKey(a.n, a.arg)
	orders := c.indexes.orders
	old, known := orders.find(key, func(o uint32) bool {
		prior := c.acts.at(o)
		return prior.n == a.n && prior.arg == a.arg
	})
	if known {
		orders.replace(key, old, i)
		return
	}
	orders.add(key, i, func(i uint32) uint64 { a := c.acts.at(i); return orderKey(a.n, a.arg) })
}

// manyRedemptions is from how many uses a coupon may have on that redemptions are found by an index and not by walking
// the coupon's acts.
const manyRedemptions = 8
