package domain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// model is the contract written down a second time, as naively as it goes: customers, orders and ids in clear, everything
// found by looking at everything, every count made by counting. It knows nothing of hashes, indexes, pages or watermarks
// of groups.
type model struct {
	clock     wire.Instant
	campaigns map[string]*mCampaign
	codes     map[string]*mCoupon // generated codes as learned from the claims' answers, folded
}

type mCampaign struct {
	name           string
	settings       wire.Settings
	imported       bool
	state          string
	codes          []string // imported
	coupons        []*mCoupon
	accepted       map[string]mAccepted
	blocks         map[string]wire.Instant // batch → own expiry of its coupons
	expiredThrough wire.Instant
	reminders      []*mReminder
	parked         []*mReminder // that redemptions cancelled
	lastR          uint64
}

type mCoupon struct {
	c           *mCampaign
	n           uint32
	code        string
	customer    string // of a printed one "" until a redemption names one
	batch       string // "" = claimed
	own         wire.Instant
	void        bool
	redemptions []*mRedemption
}

type mRedemption struct {
	order      string
	count      uint32 // as it was answered
	rolledBack bool
}

type mReminder struct {
	r        uint64
	customer string
	kind     string
	before   time.Duration
	coupon   *mCoupon // nil for the opening
}

// mAccepted is an accepted command and, where a repeat needs it, what it was answered.
type mAccepted struct {
	kind     wire.CommandType
	customer string
	n        uint32
	order    string
	count    uint32
	settings wire.Settings
	reminder string
	batch    string
}

func newModel() *model {
	return &model{campaigns: make(map[string]*mCampaign), codes: make(map[string]*mCoupon)}
}

func foldCode(s string) string {
	return strings.NewReplacer(" ", "", "-", "").Replace(strings.ToUpper(s))
}

func (k *mCoupon) count() (n uint32) {
	for _, r := range k.redemptions {
		if !r.rolledBack {
			n++
		}
	}
	return n
}

// shown is the code as people see it now; "" if it is not known yet.
func (k *mCoupon) shown() string {
	if prefix := k.c.settings.Prefix; prefix != "" && !k.c.imported && k.code != "" {
		return prefix + "-" + k.code
	}
	return k.code
}

func (k *mCoupon) expires() wire.Instant {
	switch {
	case k.own != 0:
		return k.own
	case k.c.settings.ExpiresAt != 0:
		return k.c.settings.ExpiresAt
	}
	return wire.Never
}

func (k *mCoupon) live() bool { return !k.void && k.count() < k.c.settings.MaxRedemptions }

func (k *mCoupon) status(now wire.Instant) string {
	switch {
	case k.void:
		return wire.StatusVoided
	case !k.live():
		return wire.StatusRedeemed
	case now >= k.expires():
		return wire.StatusExpired
	}
	return wire.StatusClaimed
}

// is says of a repeat what the coupon is now, unless that is what was done, or nothing happened to it since its claim.
func (k *mCoupon) is(out *wire.Outcome, now wire.Instant) {
	if status := k.status(now); out.Repeat && status != out.Status && status != wire.StatusClaimed {
		out.CouponStatus = status
	}
}

func (c *mCampaign) total() int {
	if c.imported {
		return len(c.codes)
	}
	return int(c.settings.Codes)
}

func (c *mCampaign) newest(customer string) *mCoupon {
	for i := len(c.coupons) - 1; i >= 0; i-- {
		if c.coupons[i].customer == customer && c.coupons[i].batch == "" {
			return c.coupons[i]
		}
	}
	return nil
}

func (c *mCampaign) due(r *mReminder) wire.Instant {
	anchor := c.settings.OpensAt
	if r.kind == wire.KindExpires {
		anchor = r.coupon.expires()
	}
	if anchor == 0 || anchor == wire.Never {
		return wire.Never
	}
	return anchor - wire.Instant(r.before.Microseconds())
}

// restore sets a reminder again that a redemption cancelled, if it is still ahead and there is room for it.
func (c *mCampaign) restore(r *mReminder, now wire.Instant) {
	ofCoupon := 0
	for _, o := range c.reminders {
		if o.coupon == r.coupon {
			if ofCoupon++; o.before == r.before {
				return
			}
		}
	}
	if due := c.due(r); due > now && due != wire.Never && ofCoupon < 3 {
		c.restoreOne(r)
	}
}

func (c *mCampaign) restoreOne(r *mReminder) {
	c.parked = slices.DeleteFunc(c.parked, func(o *mReminder) bool { return o == r })
	c.lastR++
	again := *r
	again.r = c.lastR
	c.reminders = append(c.reminders, &again)
}

func refused(cmd *wire.Command, campaign string, r wire.Refusal) wire.Outcome {
	return wire.Outcome{ID: cmd.ID, Campaign: campaign, Status: wire.StatusRefused, Refusal: r}
}

// find is the coupon of a code, nil if it is malformed, unclaimed or forged; or of a campaign and a number.
func (m *model) find(cmd *wire.Command) *mCoupon {
	if cmd.N != 0 {
		if c := m.campaigns[cmd.Campaign]; c != nil && int(cmd.N) <= len(c.coupons) {
			return c.coupons[cmd.N-1]
		}
		return nil
	}
	if c := m.campaigns[cmd.Campaign]; cmd.Campaign != "" && c != nil && c.imported {
		for i, code := range c.codes {
			if foldCode(code) == foldCode(cmd.Code) && i < len(c.coupons) {
				return c.coupons[i]
			}
		}
		return nil
	}
	folded := foldCode(cmd.Code)
	if len(folded) > 12 {
		folded = folded[len(folded)-12:]
	}
	k := m.codes[folded]
	if k == nil || cmd.Campaign != "" && k.c.name != cmd.Campaign {
		return nil
	}
	return k
}

// decide predicts the answer, without its message and, for a new claim of a generated code, without the code.
func (m *model) decide(cmd *wire.Command, at wire.Instant) wire.Outcome {
	m.clock = max(m.clock, at)
	if cmd.Type.HasCode() {
		return m.onCoupon(cmd)
	}
	c := m.campaigns[cmd.Campaign]
	if cmd.Type == wire.CreateCampaign {
		return m.create(cmd, c)
	}
	if c == nil {
		return refused(cmd, cmd.Campaign, wire.CampaignNotFound)
	}
	no := func(r wire.Refusal) wire.Outcome { return refused(cmd, c.name, r) }
	was, known := c.accepted[cmd.ID]
	if cmd.Type == wire.Expire || cmd.Type == wire.RemindDue {
		known = false
	}
	if known && was.kind != cmd.Type {
		return no(wire.IdempotencyKeyReused)
	}
	out := wire.Outcome{ID: cmd.ID, Campaign: c.name, Repeat: known}
	accept := func(a mAccepted) { a.kind = cmd.Type; c.accepted[cmd.ID] = a }
	switch cmd.Type {
	case wire.Claim:
		return m.claim(cmd, c, was, known)
	case wire.Allot:
		return m.allot(cmd, c, was, known)
	case wire.PauseCampaign, wire.ResumeCampaign, wire.EndCampaign:
		to := map[wire.CommandType]string{wire.PauseCampaign: "paused", wire.ResumeCampaign: "active", wire.EndCampaign: "ended"}[cmd.Type]
		out.Status = map[wire.CommandType]string{wire.PauseCampaign: "paused", wire.ResumeCampaign: "resumed", wire.EndCampaign: "ended"}[cmd.Type]
		switch {
		case c.state == to:
			out.Repeat = true
		case known:
			return no(wire.Outdated)
		case c.state == "ended":
			return no(wire.CampaignEnded)
		case cmd.IfVersion != "": // histories have none that exists
			return no(wire.VersionMismatch)
		default:
			c.state = to
			accept(mAccepted{})
		}
		return out
	case wire.UpdateCampaign:
		out.Status = wire.StatusUpdated
		s := cmd.Patch.Onto(c.settings)
		switch {
		case known && s.Equal(&c.settings):
			return out
		case known:
			return no(wire.Outdated)
		case c.state == "ended":
			return no(wire.CampaignEnded)
		case s.Check() != nil, c.imported && s.Codes != 0, s.Codes < c.settings.Codes,
			s.ExpiresAt != c.settings.ExpiresAt && s.ExpiresAt != 0 && s.ExpiresAt <= m.clock:
			return no(wire.Invalid)
		case s.Equal(&c.settings):
			out.Repeat = true
			return out
		case cmd.IfVersion != "":
			return no(wire.VersionMismatch)
		}
		c.settings = s
		accept(mAccepted{})
		return out
	case wire.ImportCodes:
		out.Status = wire.StatusImported
		if known {
			out.Count = uint64(was.count)
			return out
		}
		if c.state == "ended" {
			return no(wire.CampaignEnded)
		}
		if !c.imported {
			return no(wire.Invalid)
		}
		for _, code := range cmd.Codes {
			there := false
			for _, old := range c.codes {
				there = there || foldCode(old) == foldCode(code)
			}
			if !there {
				c.codes = append(c.codes, code)
				out.Count++
			}
		}
		if out.Count == 0 {
			out.Repeat = true
			return out
		}
		accept(mAccepted{count: uint32(out.Count)})
		return out
	case wire.Expire:
		out.Status = wire.StatusExpired
		through := min(cmd.Through, m.clock)
		if through <= c.expiredThrough {
			out.Repeat = true
			return out
		}
		c.parked = slices.DeleteFunc(c.parked, func(r *mReminder) bool { return c.due(r) <= through })
		for _, k := range c.coupons {
			if e := k.expires(); k.live() && e > c.expiredThrough && e <= through {
				out.Count++
			}
		}
		c.expiredThrough = through
		return out
	case wire.RemindDue:
		out.Status, out.Kind, out.DueAt = wire.StatusReminderSet, cmd.Kind, cmd.DueAt
		if cmd.DueAt <= m.clock {
			var left []*mReminder
			for _, r := range c.reminders {
				if r.kind == cmd.Kind && c.due(r) == cmd.DueAt && r.r <= cmd.ThroughR {
					out.Count++
				} else {
					left = append(left, r)
				}
			}
			c.reminders = left
		}
		out.Repeat = out.Count == 0
		return out
	}
	return m.remind(cmd, c, was, known)
}

func (m *model) create(cmd *wire.Command, c *mCampaign) wire.Outcome {
	s := cmd.Patch.Onto(wire.DefaultSettings(0))
	out := wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign, Status: wire.StatusCreated}
	if c != nil {
		was, known := c.accepted[cmd.ID]
		switch {
		case known && (was.kind != wire.CreateCampaign || !was.settings.Equal(&s)):
			return refused(cmd, c.name, wire.IdempotencyKeyReused)
		case known || s.Equal(&c.settings):
			out.Repeat = true
			return out
		}
		return refused(cmd, c.name, wire.CampaignExists)
	}
	if s.Check() != nil || s.Closes() <= m.clock {
		return refused(cmd, cmd.Campaign, wire.Invalid)
	}
	c = &mCampaign{name: cmd.Campaign, settings: s, imported: s.Codes == 0, state: "active", accepted: make(map[string]mAccepted), blocks: make(map[string]wire.Instant)}
	c.accepted[cmd.ID] = mAccepted{kind: wire.CreateCampaign, settings: s}
	m.campaigns[c.name] = c
	return out
}

func (m *model) claim(cmd *wire.Command, c *mCampaign, was mAccepted, known bool) wire.Outcome {
	no := func(r wire.Refusal) wire.Outcome { return refused(cmd, c.name, r) }
	answer := func(k *mCoupon, repeat bool) wire.Outcome {
		out := wire.Outcome{ID: cmd.ID, Status: wire.StatusClaimed, Campaign: c.name, N: k.n, Code: k.shown(), CustomerID: cmd.CustomerID, Repeat: repeat}
		if e := k.expires(); e != wire.Never {
			out.ExpiresAt = e
		}
		k.is(&out, m.clock)
		return out
	}
	if known {
		if was.customer != cmd.CustomerID {
			return no(wire.IdempotencyKeyReused)
		}
		return answer(c.coupons[was.n-1], true)
	}
	had := uint32(0)
	var newest *mCoupon
	for _, k := range c.coupons {
		if k.customer == cmd.CustomerID && !k.void && k.batch == "" {
			had++
			newest = k
		}
	}
	s := &c.settings
	switch {
	case had > 0 && s.PerCustomer == 1:
		return answer(newest, true)
	case c.state == "ended":
		return no(wire.CampaignEnded)
	case c.state == "paused":
		return no(wire.CampaignPaused)
	case m.clock < s.OpensAt:
		return no(wire.ClaimNotOpen)
	case s.ClosesAt != 0 && m.clock >= s.ClosesAt, s.ClosesAt == 0 && s.ExpiresAt != 0 && m.clock >= s.ExpiresAt:
		return no(wire.ClaimClosed)
	case s.PerCustomer != 0 && had >= s.PerCustomer:
		return no(wire.ClaimLimitReached)
	case len(c.coupons) >= c.total():
		return no(wire.SoldOut)
	}
	k := &mCoupon{c: c, n: uint32(len(c.coupons) + 1), customer: cmd.CustomerID, own: c.validFrom(m.clock)}
	if c.imported {
		k.code = c.codes[k.n-1]
	}
	c.coupons = append(c.coupons, k)
	c.accepted[cmd.ID] = mAccepted{kind: wire.Claim, customer: cmd.CustomerID, n: k.n}
	return answer(k, false)
}

func (c *mCampaign) validFrom(now wire.Instant) wire.Instant {
	s := &c.settings
	if s.ValidFor == 0 {
		return 0
	}
	unit := int64(time.Second)
	if s.ValidFor >= time.Hour {
		unit = int64(time.Minute)
	}
	end := now.Time().Add(s.ValidFor).UnixNano()
	return wire.Instant((end + unit - 1) / unit * unit / 1000)
}

func (m *model) allot(cmd *wire.Command, c *mCampaign, was mAccepted, known bool) wire.Outcome {
	no := func(r wire.Refusal) wire.Outcome { return refused(cmd, c.name, r) }
	out := wire.Outcome{ID: cmd.ID, Campaign: c.name, Status: wire.StatusAllotted, Batch: cmd.Batch}
	if known && (was.batch != cmd.Batch || uint64(was.count) != cmd.Count) {
		return no(wire.IdempotencyKeyReused)
	}
	for _, k := range c.coupons {
		if k.batch == cmd.Batch {
			out.Count++
			out.N = cmp.Or(out.N, k.n)
		}
	}
	s := &c.settings
	switch {
	case out.Count == cmd.Count:
		out.Repeat = true
	case out.Count != 0:
		return no(wire.BatchExists)
	case c.imported:
		return no(wire.Invalid)
	case c.state == "ended":
		return no(wire.CampaignEnded)
	case c.state == "paused":
		return no(wire.CampaignPaused)
	case s.ClosesAt != 0 && m.clock >= s.ClosesAt, s.ClosesAt == 0 && s.ExpiresAt != 0 && m.clock >= s.ExpiresAt:
		return no(wire.ClaimClosed)
	case len(c.coupons)+int(cmd.Count) > c.total():
		return no(wire.SoldOut)
	default:
		out.N, out.Count = uint32(len(c.coupons)+1), cmd.Count
		for range cmd.Count {
			c.coupons = append(c.coupons, &mCoupon{c: c, n: uint32(len(c.coupons) + 1), batch: cmd.Batch, own: c.validFrom(m.clock)})
		}
		c.accepted[cmd.ID] = mAccepted{kind: cmd.Type, batch: cmd.Batch, count: uint32(cmd.Count)}
	}
	// The expiry of the block: that of its coupons, but for those that were extended since.
	if at, there := c.blocks[cmd.Batch]; !there {
		c.blocks[cmd.Batch] = c.coupons[out.N-1].own
		out.ExpiresAt = c.blocks[cmd.Batch]
	} else {
		out.ExpiresAt = at
	}
	out.ExpiresAt = cmp.Or(out.ExpiresAt, s.ExpiresAt)
	return out
}

// learn takes over the code of a new claim or of a printed coupon, which the model cannot know.
func (m *model) learn(out wire.Outcome) error {
	c := m.campaigns[out.Campaign]
	k := c.coupons[out.N-1]
	if c.imported {
		return nil
	}
	if prefix := c.settings.Prefix; prefix != "" && !strings.HasPrefix(out.Code, prefix+"-") {
		return fmt.Errorf("code %s does not begin with %s", out.Code, prefix)
	}
	folded := foldCode(out.Code)
	folded = folded[len(folded)-12:]
	if other := m.codes[folded]; other != nil {
		return fmt.Errorf("code %s of coupon %d is that of coupon %d too", out.Code, k.n, other.n)
	}
	k.code = out.Code[len(out.Code)-14:]
	m.codes[folded] = k
	return nil
}

func (m *model) onCoupon(cmd *wire.Command) wire.Outcome {
	k := m.find(cmd)
	if k == nil {
		return refused(cmd, cmd.Campaign, wire.CodeNotFound)
	}
	c := k.c
	no := func(r wire.Refusal) wire.Outcome { return refused(cmd, c.name, r) }
	was, known := c.accepted[cmd.ID]
	holder := cmd.CustomerID == "" || cmd.CustomerID == k.customer || k.customer == ""
	if known && (was.kind != cmd.Type || was.n != k.n || was.order != cmd.OrderID || !holder) {
		return no(wire.IdempotencyKeyReused)
	}
	out := wire.Outcome{ID: cmd.ID, Campaign: c.name, N: k.n, CustomerID: cmd.CustomerID, OrderID: cmd.OrderID, Repeat: known}
	out.Code = k.shown()
	var newest *mRedemption // for that order
	for _, r := range k.redemptions {
		if r.order == cmd.OrderID {
			newest = r
		}
	}
	finish := func(status string) wire.Outcome {
		out.Status = status
		if e := k.expires(); e != wire.Never {
			out.ExpiresAt = e
		}
		k.is(&out, m.clock)
		return out
	}
	accept := func(count uint32) {
		c.accepted[cmd.ID] = mAccepted{kind: cmd.Type, n: k.n, order: cmd.OrderID, count: count}
	}
	cancel := func(park bool) {
		var left []*mReminder
		for _, r := range c.reminders {
			switch {
			case r.coupon != k:
				left = append(left, r)
			case park:
				c.parked = append(c.parked, r)
			}
		}
		c.reminders = left
	}
	unpark := func() { c.parked = slices.DeleteFunc(c.parked, func(r *mReminder) bool { return r.coupon == k }) }
	switch cmd.Type {
	case wire.Redeem:
		out.Benefit = c.settings.Benefit
		if known && newest.rolledBack {
			return no(wire.RedemptionRolledBack)
		}
		if holder && newest != nil && !newest.rolledBack {
			out.Repeat = true
			out.RedeemedCount = newest.count
			return finish(wire.StatusRedeemed)
		}
		switch {
		case !holder:
			return no(wire.NotHolder)
		case k.void:
			return no(wire.Voided)
		case c.state == "paused":
			return no(wire.CampaignPaused)
		case m.clock >= k.expires():
			return no(wire.Expired)
		case k.count() >= c.settings.MaxRedemptions && c.settings.MaxRedemptions == 1:
			return no(wire.AlreadyRedeemed)
		case k.count() >= c.settings.MaxRedemptions:
			return no(wire.RedemptionLimitReached)
		}
		out.RedeemedCount = k.count() + 1
		k.redemptions = append(k.redemptions, &mRedemption{order: cmd.OrderID, count: out.RedeemedCount})
		accept(out.RedeemedCount)
		k.customer = cmp.Or(k.customer, cmd.CustomerID)
		unpark()
		if !k.live() {
			cancel(true)
		}
		return finish(wire.StatusRedeemed)
	case wire.Rollback:
		switch {
		case known && !newest.rolledBack:
			return no(wire.Outdated)
		case known:
		case !holder:
			return no(wire.NotHolder)
		case newest == nil:
			return no(wire.NotRedeemed)
		case newest.rolledBack:
			out.Repeat = true
		default:
			newest.rolledBack = true
			accept(0)
			if k.live() && m.clock < k.expires() {
				for _, r := range slices.Clone(c.parked) {
					if r.coupon == k {
						c.restore(r, m.clock)
					}
				}
			}
		}
		out.RedeemedCount = k.count()
		return finish(wire.StatusRolledBack)
	case wire.Void:
		if k.void {
			out.Repeat = true
			return finish(wire.StatusVoided)
		}
		k.void = true
		unpark()
		cancel(false)
		accept(0)
		return finish(wire.StatusVoided)
	default: // Extend
		if !known {
			switch {
			case k.void:
				return no(wire.Voided)
			case cmd.ExpiresAt <= m.clock:
				return no(wire.Invalid)
			}
			k.own = cmd.ExpiresAt
			accept(0)
		}
		return finish(wire.StatusExtended)
	}
}

func (m *model) remind(cmd *wire.Command, c *mCampaign, was mAccepted, known bool) wire.Outcome {
	no := func(r wire.Refusal) wire.Outcome { return refused(cmd, c.name, r) }
	what := fmt.Sprint(cmd.CustomerID, " ", cmd.Kind, " ", cmd.Before)
	if known && was.reminder != what {
		return no(wire.IdempotencyKeyReused)
	}
	var k *mCoupon
	if known && was.n != 0 {
		k = c.coupons[was.n-1]
	} else if !known && cmd.Kind == wire.KindExpires {
		if k = c.newest(cmd.CustomerID); k == nil {
			return no(wire.NotHolder)
		}
	}
	due := c.due(&mReminder{kind: cmd.Kind, before: cmd.Before, coupon: k})
	out := wire.Outcome{ID: cmd.ID, Status: wire.StatusReminderCancelled, Campaign: c.name, CustomerID: cmd.CustomerID, Kind: cmd.Kind, Before: cmd.Before, Repeat: known}
	a := mAccepted{kind: cmd.Type, reminder: what}
	if k != nil {
		out.N, a.n = k.n, k.n
	}
	if cmd.Type == wire.Remind {
		out.Status = wire.StatusReminderSet
		if due != wire.Never {
			out.DueAt = due
		}
	}
	pending, ofCoupon, ofCustomer := -1, 0, 0
	for i, r := range c.reminders {
		if r.customer == cmd.CustomerID && r.kind == cmd.Kind && r.before == cmd.Before && r.coupon == k {
			pending = i
		}
		if k != nil && r.coupon == k {
			ofCoupon++
		}
		if r.coupon == nil && r.customer == cmd.CustomerID {
			ofCustomer++
		}
	}
	if known {
		if (pending >= 0) != (cmd.Type == wire.Remind) {
			return no(wire.Outdated)
		}
		return out
	}
	if cmd.Type == wire.Unremind {
		if parked := slices.IndexFunc(c.parked, func(r *mReminder) bool { return r.coupon == k && r.before == cmd.Before }); pending < 0 && k != nil && parked >= 0 {
			if c.due(c.parked[parked]) > m.clock {
				c.restoreOne(c.parked[parked])
				pending = len(c.reminders) - 1
			}
		}
		switch {
		case pending >= 0:
			c.reminders = append(c.reminders[:pending:pending], c.reminders[pending+1:]...)
			c.accepted[cmd.ID] = a
		case due <= m.clock:
			return no(wire.TooLate)
		default:
			out.Repeat = true
		}
		return out
	}
	switch {
	case pending >= 0:
		out.Repeat = true
		return out
	case k != nil && k.void:
		return no(wire.Voided)
	case k != nil && !k.live():
		return no(wire.AlreadyRedeemed)
	case k == nil && c.state == "ended":
		return no(wire.CampaignEnded)
	case due == wire.Never && k == nil:
		return no(wire.TooLate)
	case due == wire.Never:
		return no(wire.Invalid)
	case due <= m.clock:
		return no(wire.TooLate)
	case k != nil && ofCoupon >= 3:
		return no(wire.LimitReached)
	case k == nil && ofCustomer >= 8:
		return no(wire.LimitReached)
	case c.settings.Reminders != 0 && len(c.reminders) >= int(c.settings.Reminders): // too few codes for the default
		return no(wire.LimitReached)
	}
	c.lastR++
	c.reminders = append(c.reminders, &mReminder{r: c.lastR, customer: cmd.CustomerID, kind: cmd.Kind, before: cmd.Before, coupon: k})
	c.accepted[cmd.ID] = a
	return out
}
