package tables

import (
	"cmp"
	"slices"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// A claimed coupon counts in exactly one place:
//
//	void       campaign.voided
//	redeemed   campaign.redeemed and expiry_task(due).redeemed      all uses spent
//	live       expiry_task(due).live                                else; shown as pending or as expired
//
// and, if it has no expiry of its own, in one of campaign.inheriting_live and .inheriting_redeemed. Whether live ones
// have expired is not counted but follows from due_at <= campaign.expired_through. So every event takes a coupon from
// one place to another, these changes may be added up in any order, and announcing an expiry changes no count.
//
// campaign.expired is the sum of live over the tasks that have fallen. A batch changes it by what it adds to tasks that
// had fallen before, and by what stands in those that it lets fall.

// task is by how much a batch changes one row of expiry_task.
type task struct {
	due            wire.Instant
	live, redeemed int64
}

// crossing is one coupons.expired: tasks due up to through have fallen. end is the campaign's, if it was one of them.
type crossing struct {
	through, at, end wire.Instant
	place            int64
}

// place counts coupon k of c where it stands; sign -1 takes it away again.
func (c *campaign) place(k *coupon, sign int64) {
	due := k.own
	if due == 0 {
		due = c.expiresAt
	}
	switch {
	case k.voidedAt != 0:
		c.voided += sign
	case k.redeemedCount >= c.maxRedemptions:
		c.redeemed += sign
		if k.own == 0 {
			c.inheritingRedeemed += sign
		}
		if due != 0 {
			c.task(due).redeemed += sign
		}
	default:
		if k.own == 0 {
			c.inheritingLive += sign
		}
		if due != 0 {
			c.task(due).live += sign
		}
	}
}

// moveEnd gives the campaign another end: the coupons that inherit it go along.
func (c *campaign) moveEnd(to wire.Instant) {
	if to == c.expiresAt {
		return
	}
	if c.expiresAt != 0 {
		t := c.task(c.expiresAt)
		t.live -= c.inheritingLive
		t.redeemed -= c.inheritingRedeemed
	}
	if to != 0 {
		t := c.task(to)
		t.live += c.inheritingLive
		t.redeemed += c.inheritingRedeemed
	}
	c.expiresAt = to
}

// task finds or makes the one of an instant. A batch touches few of a campaign, mostly its end; where each coupon has an
// expiry of its own these are minutes apart at least, and neighbours in the log fall together.
func (c *campaign) task(due wire.Instant) *task {
	if c.last != nil && c.last.due == due {
		return c.last
	}
	i, found := slices.BinarySearchFunc(c.tasks, due, func(t *task, due wire.Instant) int { return cmp.Compare(t.due, due) })
	if !found {
		c.tasks = slices.Insert(c.tasks, i, &task{due: due})
	}
	c.last = c.tasks[i]
	return c.last
}

// expire moves the watermark.
func (c *campaign) expire(l *Line) {
	e := &l.Event
	if e.Through <= c.expiredThrough {
		return
	}
	x := crossing{through: e.Through, at: e.At, place: l.place()}
	if c.expiresAt > c.expiredThrough && c.expiresAt <= e.Through {
		x.end = c.expiresAt
	}
	c.expiredThrough = e.Through
	c.crossings = append(c.crossings, x)
}
