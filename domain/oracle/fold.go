package oracle

import (
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Fold is the state of a whole log, folded from its lines.
type Fold struct {
	Campaigns  map[string]*Campaign
	Violations []string // promises that the log breaks, in the order found
	Events     int
	Rejected   int                                // dead letters
	Refused    map[string]map[wire.Refusal]uint64 // by campaign
	Firings    []Firing                           // of reminders, in the order of the events
	Expiries   []Expiry                           // of coupons, in the same order

	// Clock is the lane time of the newest event. Whoever folds several lanes keeps one for each and sets it before a lane's
	// events.
	Clock wire.Instant
	// Fired is called for each reminder that fires, in the order in which they must be published. nil = nobody is told.
	Fired func(c *Campaign, r uint64)

	codes   map[string]string // generated code → campaign/n
	numbers map[uint32]string // campaign number → campaign
}

// Campaign is one campaign.
type Campaign struct {
	Name       string
	Status     string
	Settings   wire.Settings
	Codes      uint32 // to claim
	Created    wire.Instant
	Coupons    []*Coupon // n-1 → coupon
	Allotments []Allotment
	Through    wire.Instant
	Reminders  []Reminder // r-1 → reminder
	Changes    []Change

	imported map[string]bool
	batches  map[string]bool
	holders  map[string]holder
	ids      map[uint64]struct{} // hashes: a million ids as text are most of the memory
	pending  map[uint64]uint64   // Reminder.key → r
	events   Tally               // by reminder events; Pending and Published stay 0
}

// Change is an event that changed the campaign as a whole.
type Change struct {
	Type string
	At   wire.Instant
}

// holder is a customer who claimed.
type holder struct {
	held   int    // coupons that are not void
	newest uint32 // coupon
}

// Coupon is one claimed coupon.
type Coupon struct {
	N           uint32 // 0 = a printed one to which nothing happened: all of a batch are one
	Code        string
	Customer    string
	Batch       string // "" = claimed
	ClaimedAt   wire.Instant
	OwnExpiry   wire.Instant // expiry of its own; 0 = the campaign's
	Voided      bool
	Count       uint32
	Redemptions []*Redemption

	reminders []uint64 // those of kind expires for it, in all states
}

// Redemption is one use of a coupon.
type Redemption struct {
	Order        string
	Customer     string // who held the coupon
	At           wire.Instant
	RolledBackAt wire.Instant
}

// New returns the fold of an empty log.
func New() *Fold {
	return &Fold{Campaigns: map[string]*Campaign{}, Refused: map[string]map[wire.Refusal]uint64{}, codes: map[string]string{},
		numbers: map[uint32]string{}}
}

// maxViolations bounds Violations: after one error every later line may be one.
const maxViolations = 1000

// Violate adds a violation that is found outside of the events.
func (f *Fold) Violate(format string, args ...any) {
	if len(f.Violations) < maxViolations {
		f.Violations = append(f.Violations, fmt.Sprintf(format, args...))
	}
}

// Holders maps the codes of a campaign to their holders.
func (f *Fold) Holders(campaign string) map[string]string {
	held := map[string]string{}
	if c := f.Campaigns[campaign]; c != nil {
		for _, k := range c.Coupons {
			if k.Batch == "" {
				held[k.Code] = k.Customer
			}
		}
	}
	return held
}

// Expires is a coupon's expiry instant, Never if it has none.
func (c *Campaign) Expires(k *Coupon) wire.Instant {
	if k.OwnExpiry != 0 {
		return k.OwnExpiry
	}
	return c.Settings.Expires()
}

// StatusOf is a coupon's status as of the announced expiries.
func (c *Campaign) StatusOf(k *Coupon) string { return c.statusAt(k, c.Through) }

// statusAt is a coupon's status if what expires at now or before has expired.
func (c *Campaign) statusAt(k *Coupon, now wire.Instant) string {
	switch {
	case k.Voided:
		return wire.StatusVoided
	case k.Count >= c.Settings.MaxRedemptions:
		return wire.StatusRedeemed
	case c.Expires(k) <= now:
		return wire.StatusExpired
	}
	return wire.StatusClaimed
}

// ByStatus counts all coupons.
func (f *Fold) ByStatus() map[string]int {
	counts := map[string]int{}
	for _, c := range f.Campaigns {
		for status, n := range c.ByStatus() {
			counts[status] += n
		}
	}
	return counts
}

// Apply folds one event. where is its position, formatted with %s for a violation.
func (f *Fold) Apply(where any, ev *wire.Event) {
	f.Events++
	if ev.At < f.Clock {
		f.Violate("%s: %s of %s, after an event of %s: lane time ran back", where, ev.Type, ev.At, f.Clock)
	}
	f.Clock = max(f.Clock, ev.At)
	switch ev.Type {
	case wire.CommandsRefused:
		if f.Refused[ev.Campaign] == nil {
			f.Refused[ev.Campaign] = map[wire.Refusal]uint64{}
		}
		for _, r := range ev.Refused {
			f.Refused[ev.Campaign][r.Refusal] += r.Count
		}
		return
	case wire.CommandRejected:
		f.Rejected++
		return
	case wire.CampaignCreated:
		if f.Campaigns[ev.Campaign] != nil {
			f.Violate("%s: campaign %s is created twice", where, ev.Campaign)
			return
		}
		s := ev.Settings
		s.Benefit = append([]byte(nil), s.Benefit...)
		c := &Campaign{Name: ev.Campaign, Status: "active", Settings: s, Codes: s.Codes, Created: ev.At,
			imported: map[string]bool{}, batches: map[string]bool{}, holders: map[string]holder{}, ids: map[uint64]struct{}{}, pending: map[uint64]uint64{}}
		f.Campaigns[ev.Campaign] = c
		if other, taken := f.numbers[ev.Number]; taken {
			f.Violate("%s: campaigns %s and %s have the number %d: their codes are the same", where, other, c.Name, ev.Number)
		}
		f.numbers[ev.Number] = c.Name
		c.accept(ev.ID)
		c.Changes = append(c.Changes, Change{ev.Type.Spec().Name, ev.At})
		return
	}
	c := f.Campaigns[ev.Campaign]
	if c == nil {
		f.Violate("%s: %s of campaign %s, which was never created", where, ev.Type, ev.Campaign)
		return
	}
	// An expire of the scheduler may be accepted again, with a later through; the ids of other commands are unique.
	if cmd := ev.Accepts(); cmd != wire.NoCommand && cmd.Spec().Scope != wire.ScopeScheduler && !c.accept(ev.ID) {
		f.Violate("%s: id %s is accepted twice in %s", where, ev.ID, c.Name)
	}
	if ev.Type.ChangesCoupon() {
		if ev.N == 0 || int(ev.N) > len(c.Coupons) {
			f.Violate("%s: %s of coupon %d of %s, which was never claimed", where, ev.Type, ev.N, c.Name)
			return
		}
		k := c.Coupons[ev.N-1]
		if k.N == 0 {
			printed := *k
			k, c.Coupons[ev.N-1] = &printed, &printed
			k.N, k.Code = ev.N, ev.Code
			f.issue(where, c, ev)
		}
		f.applyChange(where, c, k, ev)
		return
	}
	if ev.Type.Spec().Campaign {
		c.Changes = append(c.Changes, Change{ev.Type.Spec().Name, ev.At})
	}
	switch ev.Type {
	case wire.CampaignSoldOut:
		if len(c.Coupons) != int(c.Codes) {
			f.Violate("%s: %s is sold out with %d of %d coupons claimed", where, c.Name, len(c.Coupons), c.Codes)
		}
	case wire.CampaignUpdated:
		if c.Settings.Codes > ev.Settings.Codes {
			f.Violate("%s: the codes of %s shrink", where, c.Name)
		}
		if c.Settings.Codes != 0 {
			c.Codes = ev.Settings.Codes
		}
		c.Settings = ev.Settings
		c.Settings.Benefit = append([]byte(nil), ev.Settings.Benefit...)
		c.replanAll()
	case wire.CampaignPausedEvent:
		c.Status = "paused"
	case wire.CampaignResumed:
		c.Status = "active"
	case wire.CampaignEndedEvent:
		c.Status = "ended"
	case wire.CodesImported:
		for _, code := range ev.Codes {
			if c.imported[code] {
				f.Violate("%s: code %s is imported twice", where, code)
			}
			c.imported[code] = true
		}
		c.Codes += uint32(len(ev.Codes))
	case wire.CouponsAllotted:
		f.applyAllotment(where, c, ev)
	case wire.CouponClaimed:
		f.applyClaim(where, c, ev)
	case wire.CouponsExpired:
		if ev.Through > ev.At {
			f.Violate("%s: %s expires through %s, which is after %s", where, c.Name, ev.Through, ev.At)
		}
		if ev.Through <= c.Through {
			f.Violate("%s: the watermark of %s does not rise", where, c.Name)
		}
		if expired := c.expiring(ev.Through); expired != ev.Count {
			f.Violate("%s: %d coupons of %s expired, the event has %d", where, expired, c.Name, ev.Count)
		}
		c.Through = ev.Through
		f.Expiries = append(f.Expiries, Expiry{Campaign: c.Name, At: ev.At, Through: ev.Through, Count: ev.Count})
	case wire.ReminderSet, wire.ReminderCancelled, wire.RemindersDue:
		f.applyReminder(where, c, ev)
	default:
		f.Violate("%s: %s", where, unchecked(ev.Type))
	}
}

// unchecked is the violation of an event that this fold has no rule for: no event may pass without one.
func unchecked(t wire.EventType) string { return fmt.Sprintf("%s is not checked", t) }

// Expiry is one coupons.expired event.
type Expiry struct {
	Campaign    string
	At, Through wire.Instant
	Count       uint64
}

// accept stores the id of an accepted command; it returns false if the id is stored already.
func (c *Campaign) accept(id string) bool {
	h := maphash.String(seed, id)
	if _, known := c.ids[h]; known {
		return false
	}
	c.ids[h] = struct{}{}
	return true
}

// seed of the hashes that replace texts. A collision, once in ten million runs with a million texts, would report a false
// violation, never hide one.
var seed = maphash.MakeSeed()

// expiring counts the coupons whose status becomes expired when the watermark rises.
func (c *Campaign) expiring(through wire.Instant) (n uint64) {
	for _, k := range c.Coupons {
		if at := c.Expires(k); at > c.Through && at <= through && !k.Voided && k.Count < c.Settings.MaxRedemptions {
			n++
		}
	}
	return n
}

// ByStatus counts the campaign's coupons.
func (c *Campaign) ByStatus() map[string]int {
	counts := map[string]int{}
	for _, k := range c.Coupons {
		counts[c.StatusOf(k)]++
	}
	return counts
}

// applyClaim checks promises 1 and 2: one holder per code, one coupon per customer and id.
func (f *Fold) applyClaim(where any, c *Campaign, ev *wire.Event) {
	if int(ev.N) != len(c.Coupons)+1 {
		f.Violate("%s: coupon %d of %s follows %d", where, ev.N, c.Name, len(c.Coupons))
	}
	if ev.N > c.Codes {
		f.Violate("%s: coupon %d of %s, which has %d", where, ev.N, c.Name, c.Codes)
	}
	f.issue(where, c, ev)
	had := c.holders[ev.CustomerID]
	if c.Settings.PerCustomer != 0 && had.held >= int(c.Settings.PerCustomer) {
		f.Violate("%s: customer %s holds %d coupons of %s", where, ev.CustomerID, had.held+1, c.Name)
	}
	replaces := uint32(0)
	if n := int(had.newest); n > 0 && n <= len(c.Coupons) && c.Coupons[n-1].Voided {
		replaces = had.newest
	}
	if ev.Replaces != replaces {
		f.Violate("%s: coupon %d of %s replaces %d, the event has %d", where, ev.N, c.Name, replaces, ev.Replaces)
	}
	c.holders[ev.CustomerID] = holder{had.held + 1, ev.N}
	if ev.At < c.Settings.OpensAt || ev.At >= c.Settings.Closes() || c.Status != "active" {
		f.Violate("%s: claimed outside of the claim window of %s", where, c.Name)
	}
	c.Coupons = append(c.Coupons, &Coupon{N: ev.N, Code: ev.Code, Customer: ev.CustomerID, ClaimedAt: ev.At, OwnExpiry: ev.ExpiresAt})
}

// issue checks that the code of a coupon is that of no other.
func (f *Fold) issue(where any, c *Campaign, ev *wire.Event) {
	coupon := fmt.Sprintf("%s/%d", c.Name, ev.N)
	key := ev.Code
	if c.Settings.Codes == 0 {
		key = c.Name + "/" + ev.Code
		if !c.imported[ev.Code] {
			f.Violate("%s: code %s was never imported", where, ev.Code)
		}
	} else if len(key) > 14 {
		key = key[len(key)-14:] // without the prefix
	}
	if other, taken := f.codes[key]; taken {
		f.Violate("%s: code %s is claimed as %s and as %s", where, ev.Code, other, coupon)
	}
	f.codes[key] = coupon
}

// applyAllotment adds the coupons of a batch.
func (f *Fold) applyAllotment(where any, c *Campaign, ev *wire.Event) {
	if int(ev.FromN) != len(c.Coupons)+1 || ev.ThroughN < ev.FromN || ev.ThroughN > c.Codes || c.Settings.Codes == 0 {
		f.Violate("%s: coupons %d to %d of %s follow %d, of %d", where, ev.FromN, ev.ThroughN, c.Name, len(c.Coupons), c.Codes)
		return
	}
	if c.batches[ev.Batch] {
		f.Violate("%s: batch %s of %s is there twice", where, ev.Batch, c.Name)
	}
	c.batches[ev.Batch] = true
	if ev.At >= c.Settings.Closes() || c.Status != "active" {
		f.Violate("%s: allotted outside of the claim window of %s", where, c.Name)
	}
	untouched := &Coupon{Batch: ev.Batch, ClaimedAt: ev.At, OwnExpiry: ev.ExpiresAt}
	c.Allotments = append(c.Allotments, Allotment{ev.Batch, ev.FromN, ev.ThroughN, ev.At, ev.ExpiresAt})
	for range ev.ThroughN - ev.FromN + 1 {
		c.Coupons = append(c.Coupons, untouched)
	}
}

// Allotment is a batch of printed coupons.
type Allotment struct {
	Batch         string
	From, Through uint32
	At, OwnExpiry wire.Instant
}

// applyChange checks promise 3: no redemption too late or too often.
func (f *Fold) applyChange(where any, c *Campaign, k *Coupon, ev *wire.Event) {
	switch ev.Type {
	case wire.CouponRedeemed:
		if k.Voided || ev.At >= c.Expires(k) || k.Count >= c.Settings.MaxRedemptions || c.Status == "paused" {
			f.Violate("%s: coupon %d of %s is redeemed while %s (expires %s, %d of %d uses)", where, k.N, c.Name, c.StatusOf(k), c.Expires(k), k.Count, c.Settings.MaxRedemptions)
		}
		if k.Batch != "" && k.Customer == "" {
			k.Customer = ev.CustomerID // the first who is named
		}
		if ev.CustomerID != "" && ev.CustomerID != k.Customer {
			f.Violate("%s: coupon %d of %s is %s's and redeemed by %s", where, k.N, c.Name, k.Customer, ev.CustomerID)
		}
		for _, r := range k.Redemptions {
			if r.Order == ev.OrderID && r.RolledBackAt == 0 {
				f.Violate("%s: coupon %d of %s is redeemed twice for order %s", where, k.N, c.Name, ev.OrderID)
			}
		}
		k.Count++
		k.Redemptions = append(k.Redemptions, &Redemption{Order: ev.OrderID, Customer: k.Customer, At: ev.At})
	case wire.CouponRolledBack:
		k.Count--
		found := false
		for i := len(k.Redemptions) - 1; i >= 0 && !found; i-- {
			if r := k.Redemptions[i]; r.Order == ev.OrderID && r.RolledBackAt == 0 {
				r.RolledBackAt, found = ev.At, true
			}
		}
		if !found {
			f.Violate("%s: coupon %d of %s is rolled back for order %s, for which it was not redeemed", where, k.N, c.Name, ev.OrderID)
		}
	case wire.CouponVoided:
		if k.Voided {
			f.Violate("%s: coupon %d of %s is voided twice", where, k.N, c.Name)
		}
		k.Voided = true
		if k.Batch == "" {
			had := c.holders[k.Customer]
			c.holders[k.Customer] = holder{had.held - 1, had.newest}
		}
	case wire.CouponExtended:
		if k.Voided {
			f.Violate("%s: coupon %d of %s is extended after it was voided", where, k.N, c.Name)
		}
		if ev.ExpiresAt <= ev.At {
			f.Violate("%s: coupon %d of %s is extended into the past", where, k.N, c.Name)
		}
		k.OwnExpiry = ev.ExpiresAt
		c.replan(k.reminders)
	default:
		f.Violate("%s: %s", where, unchecked(ev.Type))
	}
	if !strings.HasSuffix(ev.Code, k.Code[max(len(k.Code)-14, 0):]) { // without the prefix, which may change
		f.Violate("%s: coupon %d of %s has the code %s, the event has %s", where, k.N, c.Name, k.Code, ev.Code)
	}
	if status := c.statusAt(k, ev.At); ev.Type != wire.CouponRedeemed && ev.Status != status {
		f.Violate("%s: coupon %d of %s is %s after it, the event has %s", where, k.N, c.Name, status, ev.Status)
	}
	if (ev.Type == wire.CouponRedeemed || ev.Type == wire.CouponRolledBack) && ev.RedeemedCount != k.Count {
		f.Violate("%s: coupon %d of %s has been redeemed %d times, the event has %d", where, k.N, c.Name, k.Count, ev.RedeemedCount)
	}
}
