package domain

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// The queries read a lane's state and change nothing. Their results may depend on decisions that are not durable yet: the
// caller replies only when those are.

// CampaignView is a campaign as show and list return it.
type CampaignView struct {
	Campaign       string          `json:"campaign"`
	Number         uint32          `json:"number"`
	Status         string          `json:"status" doc:"active, paused or ended."`
	Version        string          `json:"version,omitempty" doc:"Of settings and status: the ETag. Claims and redemptions do not change it."`
	Codes          uint32          `json:"codes"`
	Imported       bool            `json:"imported,omitempty" doc:"Its codes are imported, not generated."`
	Claimed        uint32          `json:"claimed"`
	Redeemed       uint32          `json:"redeemed"`
	Voided         uint32          `json:"voided"`
	PerCustomer    uint32          `json:"per_customer"`
	MaxRedemptions uint32          `json:"max_redemptions"`
	OpensAt        *time.Time      `json:"opens_at,omitempty"`
	ClosesAt       *time.Time      `json:"closes_at,omitempty"`
	ExpiresAt      *time.Time      `json:"expires_at,omitempty"`
	ValidFor       string          `json:"valid_for,omitempty"`
	LateAfter      string          `json:"late_after,omitempty"`
	ExpiredThrough *time.Time      `json:"expired_through,omitempty" doc:"Coupons that expire up to it are announced as expired."`
	Prefix         string          `json:"prefix,omitempty"`
	Category       string          `json:"category,omitempty"`
	Priority       string          `json:"priority"`
	Benefit        json.RawMessage `json:"benefit,omitempty"`
	Reminders      int             `json:"reminders_pending"`
	MostReminders  uint32          `json:"reminders,omitempty"` // the setting
	CreatedAt      time.Time       `json:"created_at"`
}

// CouponView is a coupon as show returns it. It lacks the customer: the lane stores only a hash.
type CouponView struct {
	Campaign      string          `json:"campaign"`
	N             uint32          `json:"n"`
	Code          string          `json:"code"`
	Status        string          `json:"status"`
	ExpiresAt     *time.Time      `json:"expires_at,omitempty"`
	RedeemedCount uint32          `json:"redeemed_count"`
	Batch         string          `json:"batch,omitempty" doc:"Of a printed coupon: its allotment."`
	Benefit       json.RawMessage `json:"benefit,omitempty"`
	OrderStatus   string          `json:"order_status,omitempty"` // see OrderStatus
}

// OrderStatus is the state of the redemption of a claimed coupon for an order: redeemed, rolled_back, or "" = there was none.
func (l *Lane) OrderStatus(campaignName string, n uint32, order string) string {
	_, act := l.find(campaignName).redemption(n, l.hash.text(order))
	switch {
	case act == nil:
		return ""
	case act.flags&flagRolledBack != 0:
		return wire.StatusRolledBack
	}
	return wire.StatusRedeemed
}

// ReminderView is a reminder as show and list return it. The lane has pending ones, the read tables all.
type ReminderView struct {
	Campaign   string     `json:"campaign"`
	CustomerID string     `json:"customer_id"`
	Kind       string     `json:"kind"`
	Before     string     `json:"before"`
	N          uint32     `json:"n,omitempty" doc:"The coupon, of kind expires."`
	DueAt      *time.Time `json:"due_at,omitempty" doc:"Absent while there is nothing to remind of."`
	State      string     `json:"state" enum:"pending,fired,cancelled,dropped"`
	SettledAt  *time.Time `json:"settled_at,omitempty" doc:"When it fired, or was cancelled or dropped."`
}

// Reminder shows the pending reminder that a command names; false if it is not pending.
func (l *Lane) Reminder(cmd *wire.Command) (v ReminderView, pending bool) {
	p := [1]prepared{{cmd: cmd}}
	l.prepare(p[:])
	d := decision{prepared: &p[0], lane: l}
	if !d.campaign() {
		return v, false
	}
	n, ok := d.remindedOf(d.customer)
	if !ok {
		return v, false
	}
	_, pending = l.pendingReminder(d.c, d.customer, cmd.Kind, cmd.Before, n)
	v = ReminderView{Campaign: cmd.Campaign, CustomerID: cmd.CustomerID, Kind: cmd.Kind, Before: wire.Period(cmd.Before).String(), N: n, State: "pending"}
	if due := d.dueAt(n); due != wire.Never {
		v.DueAt = timeOf(due)
	}
	return v, pending
}

// Campaign shows one campaign; false if there is none of that name.
func (l *Lane) Campaign(name string) (CampaignView, bool) {
	c := l.campaigns[name]
	if c == nil {
		return CampaignView{}, false
	}
	return l.view(c), true
}

// List shows up to limit campaigns whose name follows after, by name.
func (l *Lane) List(after string, limit int) []CampaignView {
	views := []CampaignView{}
	l.walk(after, func(c *campaign) bool {
		if len(views) == limit {
			return false
		}
		views = append(views, l.view(c))
		return true
	})
	return views
}

func (l *Lane) view(c *campaign) CampaignView {
	s, counts := c.settings, c.counts()
	v := CampaignView{
		Campaign: c.name, Number: c.number, Status: c.state.String(), Version: l.version(c), Codes: counts.total, Imported: s.Codes == 0,
		Claimed: counts.claimed, Redeemed: counts.redeemed, Voided: counts.voided, PerCustomer: s.PerCustomer,
		MaxRedemptions: s.MaxRedemptions, OpensAt: timeOf(s.OpensAt), ClosesAt: timeOf(s.ClosesAt),
		ExpiresAt: timeOf(s.ExpiresAt), ExpiredThrough: timeOf(c.expiredThrough), Prefix: s.Prefix, Category: s.Category,
		Priority: s.Priority, Benefit: s.Benefit, Reminders: int(counts.reminders), MostReminders: s.Reminders, CreatedAt: c.created.Time(),
	}
	if s.ValidFor != 0 {
		v.ValidFor = wire.Period(s.ValidFor).String()
	}
	if s.LateAfter != 0 {
		v.LateAfter = wire.Period(s.LateAfter).String()
	}
	return v
}

// AllotmentView is an allotment as the list returns it.
type AllotmentView struct {
	Campaign   string     `json:"campaign"`
	Batch      string     `json:"batch"`
	FromN      uint32     `json:"from_n"`
	ThroughN   uint32     `json:"through_n"`
	Count      uint32     `json:"count"`
	AllottedAt time.Time  `json:"allotted_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
}

// Allotments shows up to limit allotments of a campaign: those after the batch named after, "" = from the first; or if batch is
// given, that one. next is the name to continue after, "" at the end. False if there is no such campaign.
func (l *Lane) Allotments(name, after, batch string, limit int) (views []AllotmentView, next string, ok bool) {
	views = []AllotmentView{}
	c := l.open(l.campaigns[name])
	if c == nil || c.allotted == nil {
		return views, "", c != nil
	}
	blocks := c.allotted.blocks
	if from := cmp.Or(batch, after); from != "" {
		k, there := c.allotted.named[from]
		if !there {
			return views, "", true
		}
		blocks = blocks[k:]
		if batch == "" {
			blocks = blocks[1:]
		} else {
			blocks = blocks[:1]
		}
	}
	for i := range blocks {
		if i == limit {
			return views, blocks[i-1].batch, true
		}
		b := &blocks[i]
		v := AllotmentView{Campaign: c.name, Batch: b.batch, FromN: b.from, ThroughN: b.through, Count: b.size(), AllottedAt: b.at.Time()}
		if at := c.expiry(b.expires); at != wire.Never {
			v.ExpiresAt = timeOf(at)
		}
		views = append(views, v)
	}
	return views, "", true
}

// Coupon shows the coupon with that code, or n of the campaign; false if there is none. Its status is that of the given time.
func (l *Lane) Coupon(campaignName, text string, n uint32, now wire.Instant) (CouponView, bool) {
	p := [1]prepared{{cmd: &wire.Command{Type: wire.Redeem, Campaign: campaignName, Code: text, N: n}}}
	l.prepare(p[:])
	c, n, ok := l.coupon(&p[0])
	if !ok {
		return CouponView{}, false
	}
	return l.couponView(c, n, now), true
}

func (l *Lane) couponView(c *campaign, n uint32, now wire.Instant) CouponView {
	count, _ := c.redemptionState(n)
	v := CouponView{
		Campaign: c.name, N: n, Code: l.codeOf(c, n), Status: c.statusOf(n, max(now, l.clock)),
		RedeemedCount: count, Benefit: c.settings.Benefit,
	}
	if at := c.expires(n); at != wire.Never {
		v.ExpiresAt = timeOf(at)
	}
	if b := c.allotted.of(n); b != nil {
		v.Batch = b.batch
	}
	return v
}

func timeOf(i wire.Instant) *time.Time {
	if i == 0 {
		return nil
	}
	t := i.Time()
	return &t
}

// CouponPlace is a position in the order of a customer's coupons: by campaign name, the newest first within each. The zero
// value is the beginning.
type CouponPlace struct {
	Campaign string
	// N is the coupon before the position. It need not exist, nor be the customer's.
	N uint32
}

// CustomerAfter shows up to limit coupons of a customer after a position, from up to campaigns campaigns (both at least 1).
// next is where to continue, unless done.
func (l *Lane) CustomerAfter(id string, now wire.Instant, at CouponPlace, limit, campaigns int) (views []CouponView, next CouponPlace, done bool) {
	customer := l.hash.customer(id)
	next = at
	visit := func(c *campaign) bool {
		if c.isPacked() {
			c, campaigns = l.open(c), 1 // that took long enough
		}
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
		// After all of this campaign: coupons are counted from 1.
		next = CouponPlace{c.name, 1}
		campaigns--
		return campaigns > 0
	}
	if at.N > 1 {
		if c := l.campaigns[at.Campaign]; c != nil && !visit(c) {
			return views, next, false
		}
	}
	return views, next, l.walk(at.Campaign, visit)
}

// Validate answers whether redeem would be accepted at the given time, changing nothing: the status is valid, or refused with redeem's
// refusal. If the coupon exists the outcome has what it is now.
func (l *Lane) Validate(cmd *wire.Command, now wire.Instant) wire.Outcome {
	p := [1]prepared{{cmd: cmd}}
	l.prepare(p[:])
	d := decision{prepared: &p[0], lane: l, now: max(now, l.clock)}
	d.out = wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign}
	_, _, act, ok := d.checkRedeem()
	c, n, exists := l.coupon(&p[0])
	if !exists {
		return d.out
	}
	status := d.out.Status
	if ok {
		status, d.out.OrderID, d.out.Repeat = wire.StatusValid, cmd.OrderID, act != nil
	}
	d.couponOutcome(status, n)
	if !ok {
		d.out.CustomerID = "" // it need not be the holder
	}
	d.out.RedeemedCount, _ = c.redemptionState(n)
	d.out.Benefit = c.settings.Benefit
	if is := c.statusOf(n, d.now); is != wire.StatusClaimed {
		d.out.CouponStatus = is
	}
	return d.out
}
