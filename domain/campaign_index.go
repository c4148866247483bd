package domain

import (
	"slices"

	"github.com/seed-4a2410e3/scrip/domain/table"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// recordClaim makes the next coupon the customer's, who had the previous one (0 = none) before.
func (c *campaign) recordClaim(customer customerHash, previous uint32, id uint64, own wire.Instant) {
	i, rec := c.claims.Add(c.total())
	rec.customer, rec.id = customer, id
	if c.indexes == nil {
		c.indexMany()
	} else {
		c.link(i, customer, previous)
		c.indexes.ids.Add(id, claimRef(i), c.idHash)
	}
	if own != 0 {
		c.setOwnExpiry(c.couponAt(i), own)
	}
	c.countAt(own, +1)
}

// indexMany makes the indexes once there are more than scanLimit claims and acts.
func (c *campaign) indexMany() {
	if c.claims.Len()+c.acts.Len() > uint32(c.scanLimit) {
		c.index()
	}
}

// index makes the indexes. False if two commands have the same id.
func (c *campaign) index() bool {
	x := new(indexes)
	c.indexes = x
	claimed, twice := c.claims.Len(), false
	x.ids.Fill(claimed+c.acts.Len(), func(k uint32) uint32 {
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
	x.customers.Fill(claimed, func(i uint32) uint32 { return i }, c.customerHash, func(i, earlier uint32) bool {
		if c.claims.At(i).customer != c.claims.At(earlier).customer {
			return false
		}
		*x.links.edit(i) = linkRecord{c.couponAt(earlier), c.held(c.couponAt(earlier))}
		return true
	})
	if c.settings.MaxRedemptions > manyRedemptions {
		c.indexOrders()
		for !c.ordered() { // no command waits for it yet
		}
	}
	return true
}

// link makes claim i the customer's newest after coupon previous.
func (c *campaign) link(i uint32, customer customerHash, previous uint32) {
	x := c.indexes
	if previous == 0 {
		x.customers.Add(customer[0], i, c.customerHash)
		return
	}
	x.customers.Replace(customer[0], c.claimAt(previous), i)
	*x.links.edit(i) = linkRecord{previous, c.held(previous)}
}

// drop counts coupon n, which becomes void, no longer among those of its holder.
func (c *campaign) drop(n uint32) {
	c.voided++
	if c.indexes == nil || c.allotted.of(n) != nil {
		return
	}
	if newest, _ := c.newestOf(c.coupon(n).customer); newest != n {
		c.indexes.links.edit(c.claimAt(newest)).others--
	}
}

// reindex derives from claims and acts what a snapshot does not hold. False if two of them have the same command id.
func (c *campaign) reindex() bool {
	for i := range c.acts.Len() {
		c.linkAct(i)
	}
	c.recount()
	if c.claims.Len()+c.acts.Len() > uint32(c.scanLimit) {
		return c.index()
	}
	return !c.idTwice()
}

// idTwice reports whether two of the few claims and acts have the same id.
func (c *campaign) idTwice() bool {
	var ids [linearScanLimit]uint64
	known := ids[:0]
	for i := range c.claims.Len() {
		known = append(known, c.claims.At(i).id)
	}
	for i := range c.acts.Len() {
		known = append(known, c.acts.At(i).id)
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
	i, slot := c.acts.Add(maxActs)
	*slot = a
	c.linkAct(i)
	switch x := c.indexes; {
	case x == nil:
		c.indexMany()
	default:
		x.ids.Add(a.id, actRef(i), c.idHash)
		c.ordered()
	}
}

// linkAct makes act i its coupon's newest.
func (c *campaign) linkAct(i uint32) {
	if a := c.acts.Edit(i); a.n != 0 {
		rec := c.editCoupon(a.n)
		a.previous = rec.act
		rec.act = i + 1
		rolled := uint32(0)
		if a.previous != 0 {
			rolled = c.acts.At(a.previous - 1).rollbacks()
		}
		if a.kind == wire.Rollback {
			rolled++
		}
		a.setRollbacks(rolled)
	}
}

// indexOrders starts the index of orders, without acts: to add a million at once would stop the lane for a tenth of a second.
func (c *campaign) indexOrders() {
	if c.indexes.orders == nil {
		c.indexes.orders = new(table.Index)
	}
}

// orderedAtOnce is how many acts are added to the index of orders by one command, some 30 µs. It is above one, so that the
// index catches up.
const orderedAtOnce = 256

// ordered adds some acts to the index of orders, if there is one, in their order: the newest of equal orders counts. It
// reports whether all acts are in the index; until then the coupon's acts are scanned.
func (c *campaign) ordered() bool {
	x := c.indexes
	if x == nil || x.orders == nil {
		return false
	}
	end := min(c.acts.Len(), x.ordered+orderedAtOnce)
	for ; x.ordered < end; x.ordered++ {
		if c.acts.At(x.ordered).kind == wire.Redeem {
			c.indexOrder(x.ordered)
		}
	}
	return x.ordered == c.acts.Len()
}

func (c *campaign) indexOrder(i uint32) {
	a := c.acts.At(i)
	key := orderKey(a.n, a.arg)
	orders := c.indexes.orders
	old, known := orders.Find(key, func(o uint32) bool {
		prior := c.acts.At(o)
		return prior.n == a.n && prior.arg == a.arg
	})
	if known {
		orders.Replace(key, old, i)
		return
	}
	orders.Add(key, i, func(i uint32) uint64 { a := c.acts.At(i); return orderKey(a.n, a.arg) })
}

// manyRedemptions is the number of uses of a coupon above which redemptions are found by an index and not by scanning the
// coupon's acts.
const manyRedemptions = 8

// setSettings replaces the settings and updates what depends on them.
func (c *campaign) setSettings(s *wire.Settings) {
	recount := c.claimed() > 0 && s.MaxRedemptions != c.settings.MaxRedemptions
	c.settings = s
	if s.MaxRedemptions > manyRedemptions && c.indexes != nil {
		c.indexOrders()
	}
	if recount {
		// Rare, and about 10 ns a coupon: which coupons are spent may change for all of them.
		c.recount()
	}
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
	for next := c.coupon(n).act; next != 0; steps++ {
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

// redeemedFor is the redemption of coupon n for an order that is in force, nil if there is none.
func (c *campaign) redeemedFor(n uint32, order uint64) *actRecord {
	if _, act := c.redemption(n, order); act != nil && act.flags&flagRolledBack == 0 {
		return act
	}
	return nil
}

// manyActs is from how many acts on those of one coupon are no longer scanned: a client that redeems and rolls back the same
// coupon again and again would make each time more expensive.
const manyActs = 1000

func orderKey(n uint32, order uint64) uint64 { return order ^ uint64(n)*0x9e3779b97f4a7c15 }
