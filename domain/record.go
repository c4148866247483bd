package domain

import (
	"slices"

	"github.com/seed-4a2410e3/scrip/domain/table"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

type customerHash = [2]uint64

// claimRecord is what is kept of a claimed coupon: 32 bytes.
type claimRecord struct {
	customer customerHash
	id       uint64 // of the claim command
	expiry   uint32 // own expiry in seconds since 1970; inherits = none, irregularExpiry = in sparse.irregular
	act      uint32 // newest act + 1; 0 = none
}

const (
	inherits        = 0
	irregularExpiry = 1<<32 - 1
)

// linkRecord links the coupons of a customer who has several.
type linkRecord struct {
	previous uint32 // the customer's coupon before this one; 0 = none
	others   uint32 // of the customer's newest coupon: how many of the others are not void
}

// links are a link for each claim. Most customers have one coupon, whose link is zero: pages of nothing else are not made, so
// a second coupon among ten million claims costs no more than one among a hundred.
type links []*[linksOfPage]linkRecord

const linksOfPage = 64

// at is the link of claim i.
func (l links) at(i uint32) linkRecord {
	if k := i / linksOfPage; k < uint32(len(l)) && l[k] != nil {
		return l[k][i%linksOfPage]
	}
	return linkRecord{}
}

// edit returns the link of claim i for writing.
func (l *links) edit(i uint32) *linkRecord {
	k := int(i / linksOfPage)
	if k >= len(*l) {
		*l = append(*l, make(links, k+1-len(*l))...)
	}
	if (*l)[k] == nil {
		(*l)[k] = new([linksOfPage]linkRecord)
	}
	return &(*l)[k][i%linksOfPage]
}

// actRecord is an accepted command other than a claim: 32 bytes. The newest act of a coupon has its redemption state.
type actRecord struct {
	id       uint64
	arg      uint64 // what else must be equal for the same id to be the same command: order, settings, reminder
	n        uint32 // coupon, 0 = the campaign's
	previous uint32 // act of the same coupon before this one + 1
	count    uint32 // redeemed count after it; of an import: codes added; of a reminder: its coupon
	kind     wire.CommandType
	flags    uint8  // with the high bits of rolled
	rolled   uint16 // see rollbacks
}

const (
	flagVoided     = 1 << iota // the coupon is void from this act on
	flagRolledBack             // this redemption was taken back

	flagBits = 2
	flagMask = 1<<flagBits - 1
	// maxRolled is how many rollbacks can be counted.
	maxRolled = 1<<(8-flagBits+16) - 1
)

// rollbacks is how many redemptions of its coupon had been rolled back with this act, at most maxRolled. It follows from the
// acts before it, so a snapshot does not hold it.
func (a *actRecord) rollbacks() uint32 { return uint32(a.flags>>flagBits)<<16 | uint32(a.rolled) }

func (a *actRecord) setRollbacks(n uint32) {
	n = min(n, maxRolled)
	a.flags, a.rolled = a.flags&flagMask|uint8(n>>16)<<flagBits, uint16(n)
}

// A reference to a claim or an act is its index, shifted by one; acts have the lowest bit set, so references stay small.
func claimRef(i uint32) uint32 { return i << 1 }
func actRef(i uint32) uint32   { return i<<1 | 1 }

// maxActs is how many acts can be referred to.
const maxActs = 1<<31 - 2

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
		c.setOwnExpiry(i+1, own)
	}
	c.count(i+1, +1)
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
	claimed, twice := c.claimed(), false
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
		*x.links.edit(i) = linkRecord{earlier + 1, c.held(earlier + 1)}
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
	x.customers.Replace(customer[0], previous-1, i)
	*x.links.edit(i) = linkRecord{previous, c.held(previous)}
}

// drop counts coupon n, which becomes void, no longer among those of its holder.
func (c *campaign) drop(n uint32) {
	c.voided++
	if c.indexes == nil {
		return
	}
	if newest, _ := c.newestOf(c.claims.At(n - 1).customer); newest != n {
		c.indexes.links.edit(newest-1).others--
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
		rec := c.claims.Edit(a.n - 1)
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
