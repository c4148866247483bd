package domain

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// model is the contract written down a second time, as naively as it goes: customers, orders and ids in clear, everything
// found by looking at everything, every count made by counting. It knows nothing of hashes, indexes, pages or watermarks
// of groups.
type model struct {
	clock     Instant
	campaigns map[string]*mCampaign
	codes     map[string]*mCoupon // generated codes as learned from the claims' answers, folded
}

type mCampaign struct {
	name           string
	settings       Settings
	imported       bool
	state          string
	codes          []string // imported
	coupons        []*mCoupon
	accepted       map[string]mAccepted
	expiredThrough Instant
	reminders      []*mReminder
	parked         []*mReminder // that redemptions cancelled
	lastR          uint64
}

type mCoupon struct {
	c           *mCampaign
	n           uint32
	code        string
	customer    string
	own         Instant
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
	kind     CommandType
	customer string
	n        uint32
	order    string
	count    uint32
	settings Settings
	reminder string
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

func (k *mCoupon) expires() Instant {
	switch {
	case k.own != 0:
		return k.own
	case k.c.settings.ExpiresAt != 0:
		return k.c.settings.ExpiresAt
	}
	return Never
}

func (k *mCoupon) live() bool { return !k.void && k.count() < k.c.settings.MaxRedemptions }

func (c *mCampaign) total() int {
	if c.imported {
		return len(c.codes)
	}
	return int(c.settings.Codes)
}

func (c *mCampaign) newest(customer string) *mCoupon {
	for i := len(c.coupons) - 1; i >= 0; i-- {
		if c.coupons[i].customer == customer {
			return c.coupons[i]
		}
	}
	return nil
}

func (c *mCampaign) due(r *mReminder) Instant {
	anchor := c.settings.OpensAt
	if r.kind == KindExpires {
		anchor = r.coupon.expires()
	}
	if anchor == 0 || anchor == Never {
		return Never
	}
	return anchor - Instant(r.before.Microseconds())
}

// restore sets a reminder again that a redemption cancelled, if it is still ahead and there is room for it.
func (c *mCampaign) restore(r *mReminder, now Instant) {
	ofCoupon := 0
	for _, o := range c.reminders {
		if o.coupon == r.coupon {
			if ofCoupon++; o.before == r.before {
				return
			}
		}
	}
	if due := c.due(r); due > now && due != Never && ofCoupon < 3 {
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

func refused(cmd *Command, campaign string, r Refusal) Outcome {
	return Outcome{ID: cmd.ID, Campaign: campaign, Status: StatusRefused, Refusal: r}
}

// find is the coupon a code stands for, nil if it is malformed, unclaimed or forged.
func (m *model) find(cmd *Command) *mCoupon {
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
func (m *model) decide(cmd *Command, at Instant) Outcome {
	m.clock = max(m.clock, at)
	if cmd.Type.HasCode() {
		return m.onCoupon(cmd)
	}
	c := m.campaigns[cmd.Campaign]
	if cmd.Type == CreateCampaign {
		return m.create(cmd, c)
	}
	if c == nil {
		return refused(cmd, cmd.Campaign, CampaignNotFound)
	}
	no := func(r Refusal) Outcome { return refused(cmd, c.name, r) }
	was, known := c.accepted[cmd.ID]
	if cmd.Type == Expire || cmd.Type == RemindDue {
		known = false
	}
	if known && was.kind != cmd.Type {
		return no(IdempotencyKeyReused)
	}
	out := Outcome{ID: cmd.ID, Campaign: c.name, Repeat: known}
	accept := func(a mAccepted) { a.kind = cmd.Type; c.accepted[cmd.ID] = a }
	switch cmd.Type {
	case Claim:
		return m.claim(cmd, c, was, known)
	case PauseCampaign, ResumeCampaign, EndCampaign:
		to := map[CommandType]string{PauseCampaign: "paused", ResumeCampaign: "active", EndCampaign: "ended"}[cmd.Type]
		out.Status = map[CommandType]string{PauseCampaign: "paused", ResumeCampaign: "resumed", EndCampaign: "ended"}[cmd.Type]
		switch {
		case known:
		case c.state == to:
			out.Repeat = true
		case c.state == "ended":
			return no(CampaignEnded)
		default:
			c.state = to
			accept(mAccepted{})
		}
		return out
	case UpdateCampaign:
		out.Status = StatusUpdated
		if known {
			return out
		}
		s := cmd.Patch.onto(c.settings)
		switch {
		case c.state == "ended":
			return no(CampaignEnded)
		case s.check() != nil, c.imported && s.Codes != 0, s.Codes < c.settings.Codes,
			s.ExpiresAt != c.settings.ExpiresAt && s.ExpiresAt != 0 && s.ExpiresAt <= m.clock:
			return no(Invalid)
		case s.Equal(&c.settings):
			out.Repeat = true
			return out
		}
		c.settings = s
		accept(mAccepted{})
		return out
	case ImportCodes:
		out.Status = StatusImported
		if known {
			out.Count = uint64(was.count)
			return out
		}
		if c.state == "ended" {
			return no(CampaignEnded)
		}
		if !c.imported {
			return no(Invalid)
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
	case Expire:
		out.Status = StatusExpired
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
	case RemindDue:
		out.Status, out.Kind, out.DueAt = StatusReminderSet, cmd.Kind, cmd.DueAt
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

func (m *model) create(cmd *Command, c *mCampaign) Outcome {
	s := cmd.Patch.onto(defaultSettings())
	out := Outcome{ID: cmd.ID, Campaign: cmd.Campaign, Status: StatusCreated}
	if c != nil {
		was, known := c.accepted[cmd.ID]
		switch {
		case known && (was.kind != CreateCampaign || !was.settings.Equal(&s)):
			return refused(cmd, c.name, IdempotencyKeyReused)
		case known || s.Equal(&c.settings):
			out.Repeat = true
			return out
		}
		return refused(cmd, c.name, CampaignExists)
	}
	if s.check() != nil || s.Closes() <= m.clock {
		return refused(cmd, cmd.Campaign, Invalid)
	}
	c = &mCampaign{name: cmd.Campaign, settings: s, imported: s.Codes == 0, state: "active", accepted: make(map[string]mAccepted)}
	c.accepted[cmd.ID] = mAccepted{kind: CreateCampaign, settings: s}
	m.campaigns[c.name] = c
	return out
}

func (m *model) claim(cmd *Command, c *mCampaign, was mAccepted, known bool) Outcome {
	no := func(r Refusal) Outcome { return refused(cmd, c.name, r) }
	answer := func(k *mCoupon, repeat bool) Outcome {
		out := Outcome{ID: cmd.ID, Status: StatusClaimed, Campaign: c.name, N: k.n, Code: k.shown(), CustomerID: cmd.CustomerID, Repeat: repeat}
		if e := k.expires(); e != Never {
			out.ExpiresAt = e
		}
		return out
	}
	if known {
		if was.customer != cmd.CustomerID {
			return no(IdempotencyKeyReused)
		}
		return answer(c.coupons[was.n-1], true)
	}
	had := uint32(0)
	for _, k := range c.coupons {
		if k.customer == cmd.CustomerID {
			had++
		}
	}
	s := &c.settings
	switch {
	case had > 0 && s.PerCustomer == 1:
		return answer(c.newest(cmd.CustomerID), true)
	case c.state == "ended":
		return no(CampaignEnded)
	case c.state == "paused":
		return no(CampaignPaused)
	case m.clock < s.OpensAt:
		return no(ClaimNotOpen)
	case s.ClosesAt != 0 && m.clock >= s.ClosesAt, s.ClosesAt == 0 && s.ExpiresAt != 0 && m.clock >= s.ExpiresAt:
		return no(ClaimClosed)
	case s.PerCustomer != 0 && had >= s.PerCustomer:
		return no(ClaimLimitReached)
	case len(c.coupons) >= c.total():
		return no(SoldOut)
	}
	k := &mCoupon{c: c, n: uint32(len(c.coupons) + 1), customer: cmd.CustomerID}
	if s.ValidFor != 0 {
		unit := int64(time.Second)
		if s.ValidFor >= time.Hour {
			unit = int64(time.Minute)
		}
		end := m.clock.Time().Add(s.ValidFor).UnixNano()
		k.own = Instant((end + unit - 1) / unit * unit / 1000)
	}
	if c.imported {
		k.code = c.codes[k.n-1]
	}
	c.coupons = append(c.coupons, k)
	c.accepted[cmd.ID] = mAccepted{kind: Claim, customer: cmd.CustomerID, n: k.n}
	return answer(k, false)
}

// learn takes over the code of a new claim, which the model cannot know.
func (m *model) learn(out Outcome) error {
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

func (m *model) onCoupon(cmd *Command) Outcome {
	k := m.find(cmd)
	if k == nil {
		return refused(cmd, cmd.Campaign, CodeNotFound)
	}
	c := k.c
	no := func(r Refusal) Outcome { return refused(cmd, c.name, r) }
	was, known := c.accepted[cmd.ID]
	holder := cmd.CustomerID == "" || cmd.CustomerID == k.customer
	if known && (was.kind != cmd.Type || was.n != k.n || was.order != cmd.OrderID || !holder) {
		return no(IdempotencyKeyReused)
	}
	out := Outcome{ID: cmd.ID, Campaign: c.name, N: k.n, CustomerID: cmd.CustomerID, OrderID: cmd.OrderID, Repeat: known}
	out.Code = k.shown()
	var newest *mRedemption // for that order
	for _, r := range k.redemptions {
		if r.order == cmd.OrderID {
			newest = r
		}
	}
	finish := func(status string) Outcome {
		out.Status = status
		if e := k.expires(); e != Never {
			out.ExpiresAt = e
		}
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
	case Redeem:
		out.Benefit = c.settings.Benefit
		if known {
			out.RedeemedCount = was.count
			return finish(StatusRedeemed)
		}
		if holder && newest != nil && !newest.rolledBack {
			out.Repeat = true
			out.RedeemedCount = newest.count
			return finish(StatusRedeemed)
		}
		switch {
		case !holder:
			return no(NotHolder)
		case k.void:
			return no(Voided)
		case c.state == "paused":
			return no(CampaignPaused)
		case m.clock >= k.expires():
			return no(Expired)
		case k.count() >= c.settings.MaxRedemptions && c.settings.MaxRedemptions == 1:
			return no(AlreadyRedeemed)
		case k.count() >= c.settings.MaxRedemptions:
			return no(RedemptionLimitReached)
		}
		out.RedeemedCount = k.count() + 1
		k.redemptions = append(k.redemptions, &mRedemption{order: cmd.OrderID, count: out.RedeemedCount})
		accept(out.RedeemedCount)
		unpark()
		if !k.live() {
			cancel(true)
		}
		return finish(StatusRedeemed)
	case Rollback:
		switch {
		case known:
		case !holder:
			return no(NotHolder)
		case newest == nil:
			return no(NotRedeemed)
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
		return finish(StatusRolledBack)
	case Void:
		if k.void {
			out.Repeat = true
			return finish(StatusVoided)
		}
		k.void = true
		unpark()
		cancel(false)
		accept(0)
		return finish(StatusVoided)
	default: // Extend
		if !known {
			switch {
			case k.void:
				return no(Voided)
			case cmd.ExpiresAt <= m.clock:
				return no(Invalid)
			}
			k.own = cmd.ExpiresAt
			accept(0)
		}
		return finish(StatusExtended)
	}
}

func (m *model) remind(cmd *Command, c *mCampaign, was mAccepted, known bool) Outcome {
	no := func(r Refusal) Outcome { return refused(cmd, c.name, r) }
	what := fmt.Sprint(cmd.CustomerID, " ", cmd.Kind, " ", cmd.Before)
	if known && was.reminder != what {
		return no(IdempotencyKeyReused)
	}
	var k *mCoupon
	if known && was.n != 0 {
		k = c.coupons[was.n-1]
	} else if !known && cmd.Kind == KindExpires {
		if k = c.newest(cmd.CustomerID); k == nil {
			return no(NotHolder)
		}
	}
	due := c.due(&mReminder{kind: cmd.Kind, before: cmd.Before, coupon: k})
	out := Outcome{ID: cmd.ID, Status: StatusReminderCancelled, Campaign: c.name, CustomerID: cmd.CustomerID, Kind: cmd.Kind, Before: cmd.Before, Repeat: known}
	a := mAccepted{kind: cmd.Type, reminder: what}
	if k != nil {
		out.N, a.n = k.n, k.n
	}
	if cmd.Type == Remind {
		out.Status = StatusReminderSet
		if due != Never {
			out.DueAt = due
		}
	}
	if known {
		return out
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
	if cmd.Type == Unremind {
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
			return no(TooLate)
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
		return no(Voided)
	case k != nil && !k.live():
		return no(AlreadyRedeemed)
	case k == nil && c.state == "ended":
		return no(CampaignEnded)
	case due == Never && k == nil:
		return no(TooLate)
	case due == Never:
		return no(Invalid)
	case due <= m.clock:
		return no(TooLate)
	case k != nil && ofCoupon >= 3:
		return no(LimitReached)
	case k == nil && ofCustomer >= 8:
		return no(LimitReached)
	}
	c.lastR++
	c.reminders = append(c.reminders, &mReminder{r: c.lastR, customer: cmd.CustomerID, kind: cmd.Kind, before: cmd.Before, coupon: k})
	c.accepted[cmd.ID] = a
	return out
}
