package tables

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// model is a naive read of the log: everything in maps, every count taken by counting. It shares nothing with the fold
// but the events.
type model struct {
	campaigns map[string]*modelCampaign
	stats     map[string]*[4]int
	refusals  map[string]int
	letters   []string
	events    []string // of coupons, besides claims and redemptions
	midnight  wire.Instant
	retention wire.Instant
}

type modelCampaign struct {
	status    string
	number    uint32
	settings  wire.Settings
	created   wire.Instant
	soldOut   wire.Instant
	imported  int
	expiries  []crossing
	coupons   map[uint32]*modelCoupon
	reminders map[uint64]*modelReminder
}

type modelCoupon struct {
	claim  wire.Event
	place  int64
	own    wire.Instant
	count  uint32
	voided wire.Instant
	reason string
	uses   []modelUse
}

type modelUse struct {
	order    string
	at, back wire.Instant
	sequence uint64
	line     uint32
}

type modelReminder struct {
	set     wire.Event
	due     wire.Instant
	places  [2]int64 // of set and settled
	state   string
	settled wire.Instant
}

func newModel(retention wire.Instant) *model {
	return &model{campaigns: map[string]*modelCampaign{}, stats: map[string]*[4]int{}, refusals: map[string]int{}, retention: retention}
}

// message folds one step.
func (m *model) message(sequence uint64, msg message) {
	for n, raw := range bytes.Split(bytes.TrimRight(msg.lines, "\n"), []byte{'\n'}) {
		if len(raw) == 0 {
			continue
		}
		var e wire.Event
		if err := wire.ParseEvent(bytes.Clone(raw), &e); err != nil {
			panic(err)
		}
		m.event(sequence, uint32(n)+1, &e)
	}
	m.midnight = max(m.midnight, dayOf(msg.at))
}

func (m *model) event(sequence uint64, line uint32, e *wire.Event) {
	c := m.campaigns[e.Campaign]
	place := int64(sequence)<<20 + int64(line)
	event := func(what string, expires, before wire.Instant, order, reason string) {
		m.events = append(m.events, fmt.Sprintf("%s|%d|%d|%d|%s|%d|%d|%s|%s", e.Campaign, e.N, place, e.At, what, expires, before, order, reason))
	}
	switch e.Type {
	case wire.CampaignCreated:
		m.campaigns[e.Campaign] = &modelCampaign{status: "active", number: e.Number, settings: e.Settings, created: e.At,
			coupons: map[uint32]*modelCoupon{}, reminders: map[uint64]*modelReminder{}}
	case wire.CampaignUpdated:
		c.settings = e.Settings
		if int(e.Settings.Codes)+c.imported > len(c.coupons) {
			c.soldOut = 0
		}
	case wire.CampaignPausedEvent:
		c.status = "paused"
	case wire.CampaignResumed:
		c.status = "active"
	case wire.CampaignEndedEvent:
		c.status = "ended"
	case wire.CampaignSoldOut:
		c.soldOut = e.At
	case wire.CodesImported:
		c.imported += len(e.Codes)
		c.soldOut = 0
	case wire.CouponClaimed:
		c.coupons[e.N] = &modelCoupon{claim: *e, own: e.ExpiresAt, place: place}
		m.stat(e, c.coupons[e.N], 0)
	case wire.CouponRedeemed:
		k := c.coupons[e.N]
		k.count = e.RedeemedCount
		k.uses = append(k.uses, modelUse{e.OrderID, e.At, 0, sequence, line})
		m.stat(e, k, 1)
	case wire.CouponRolledBack:
		k := c.coupons[e.N]
		k.count = e.RedeemedCount
		for i := range k.uses {
			if k.uses[i].order == e.OrderID && k.uses[i].back == 0 {
				k.uses[i].back = e.At
			}
		}
		m.stat(e, k, 2)
		event("rolled_back", 0, 0, e.OrderID, "")
	case wire.CouponVoided:
		c.coupons[e.N].voided, c.coupons[e.N].reason = e.At, e.Reason
		m.stat(e, c.coupons[e.N], 3)
		event("voided", 0, 0, "", e.Reason)
	case wire.CouponExtended:
		event("extended", e.ExpiresAt, c.coupons[e.N].own, "", "")
		c.coupons[e.N].own = e.ExpiresAt
	case wire.CouponsExpired:
		x := crossing{through: e.Through, at: e.At, position: place}
		if end := c.settings.ExpiresAt; c.fell(end) == 0 && end != 0 && end <= e.Through {
			x.end = end
		}
		c.expiries = append(c.expiries, x)
	case wire.ReminderSet:
		set := *e
		if set.CustomerID == "" {
			set.CustomerID = c.coupons[e.N].claim.CustomerID
		}
		c.reminders[e.R] = &modelReminder{set: set, state: "pending", places: [2]int64{place}}
	case wire.ReminderCancelled:
		c.reminders[e.R].state, c.reminders[e.R].settled, c.reminders[e.R].places[1] = "cancelled", e.At, place
	case wire.RemindersDue:
		for r, s := range c.reminders {
			if s.state == "pending" && s.set.Kind == e.Kind && c.due(s) == e.DueAt && r >= e.FromR && r <= e.ThroughR &&
				(e.Passed == 0 || e.DueAt.Add(s.set.Before) <= e.Passed) {
				s.state, s.settled, s.places[1] = "fired", e.At, place
				if e.Dropped > 0 {
					s.state = "dropped"
				}
				s.due = e.DueAt
			}
		}
	case wire.CommandsRefused:
		for _, r := range e.Refused {
			m.refusals[fmt.Sprintf("%s|%d|%s", e.Campaign, dayOf(e.At), r.Refusal)] += int(r.Count)
		}
	case wire.CommandRejected:
		m.refusals[fmt.Sprintf("%s|%d|invalid", e.Campaign, dayOf(e.At))] += int(max(e.Count, 1))
		m.letters = append(m.letters, fmt.Sprintf("SCRIP_CMD_0|%d|%d|%s|%s|%d|%d|%d", e.Sequence, e.Line, e.Reason, e.Payload, e.At, sequence, line))
	}
	// A reminder that is pending follows its anchor; one that is settled stays where it was then.
	if c = m.campaigns[e.Campaign]; c != nil {
		for _, s := range c.reminders {
			if s.state == "pending" {
				s.due = c.due(s)
			}
		}
	}
}

func (c *modelCampaign) due(s *modelReminder) wire.Instant {
	anchor := c.settings.OpensAt
	if s.set.Kind == wire.KindExpires {
		anchor = c.ends(c.coupons[s.set.N])
	}
	if anchor == 0 {
		return 0
	}
	return anchor - wire.Instant(s.set.Before.Microseconds())
}

func (m *model) stat(e *wire.Event, k *modelCoupon, what int) {
	add := func(attribute, value string) {
		key := fmt.Sprintf("%s|%d|%s|%s", e.Campaign, dayOf(e.At), attribute, value)
		if m.stats[key] == nil {
			m.stats[key] = &[4]int{}
		}
		m.stats[key][what]++
	}
	add("", "")
	var attributes map[string]any
	_ = json.Unmarshal(k.claim.Attributes, &attributes)
	for name, value := range attributes {
		add(name, fmt.Sprint(value))
	}
}

func (c *modelCampaign) ends(k *modelCoupon) wire.Instant {
	if k.own != 0 {
		return k.own
	}
	return c.settings.ExpiresAt
}

// fell is when the log announced that what is due at an instant has fallen, 0 if it did not.
func (c *modelCampaign) fell(due wire.Instant) wire.Instant {
	for _, x := range c.expiries {
		if due != 0 && due <= x.through {
			return x.at
		}
	}
	return 0
}

func (c *modelCampaign) statusOf(k *modelCoupon) string {
	switch {
	case k.voided != 0:
		return "voided"
	case k.count >= c.settings.MaxRedemptions:
		return "redeemed"
	case c.fell(c.ends(k)) != 0:
		return "expired"
	}
	return "claimed"
}

// modelTables are the queries whose rows the model knows, in its format: fields joined by |, times in microseconds,
// NULL as 0 or empty.
var modelTables = map[string]string{
	"campaign": `SELECT concat_ws('|', campaign, status, codes, claimed, redeemed, expired, voided, us(opens_at), us(closes_at), us(expires_at),
		us(created_at), number, us(sold_out_at), max_redemptions, us(expired_through)) FROM scrip.campaign`,
	"coupon": `SELECT concat_ws('|', campaign, n, code, customer_id, status, us(claimed_at), us(expires_at), redeemed_count, us(redeemed_at),
		us(voided_at), coalesce(void_reason, ''), coalesce(attributes, '')) FROM scrip.coupon`,
	"coupon_row":   `SELECT concat_ws('|', campaign, n, claimed_place) FROM scrip.coupon_row`,
	"coupon_event": `SELECT concat_ws('|', campaign, n, place, us(at), what, us(expires_at), us(own_before), coalesce(order_id, ''), coalesce(reason, '')) FROM scrip.coupon_event`,
	"expiry_event": `SELECT concat_ws('|', campaign, us(through), us(at), place, us(campaign_end)) FROM scrip.expiry_event`,
	"redemption":   `SELECT concat_ws('|', campaign, n, code, customer_id, order_id, us(redeemed_at), us(rolled_back_at), sequence, line) FROM scrip.redemption`,
	"expiry_task":  `SELECT concat_ws('|', campaign, us(due_at), pending, redeemed, expired, state, us(processed_at)) FROM scrip.expiry_task`,
	"reminder": `SELECT concat_ws('|', campaign, customer_id, kind, us(due_at), state, r, coalesce(n, 0), before_us, us(set_at), us(settled_at),
		set_place, coalesce(settled_place, 0)) FROM scrip.reminder`,
	"campaign_stats": `SELECT concat_ws('|', campaign, us(day), attribute, value, claimed, redeemed, rolled_back, voided) FROM scrip.campaign_stats`,
	"refusal_stats":  `SELECT concat_ws('|', campaign, us(day), reason, refused) FROM scrip.refusal_stats`,
	"dead_letter":    `SELECT concat_ws('|', stream, sequence, line, reason, payload, us(at), event_sequence, event_line) FROM scrip.dead_letter`,
}

func (m *model) tables() map[string]string {
	out := map[string][]string{}
	row := func(table string, values ...any) {
		fields := make([]string, len(values))
		for i, v := range values {
			if at, ok := v.(wire.Instant); ok {
				v = int64(at)
			}
			fields[i] = fmt.Sprint(v)
		}
		out[table] = append(out[table], strings.Join(fields, "|"))
	}
	for name, c := range m.campaigns {
		c.rows(name, m, row)
	}
	for key, s := range m.stats {
		row("campaign_stats", key, s[0], s[1], s[2], s[3])
	}
	for key, n := range m.refusals {
		row("refusal_stats", key, n)
	}
	out["dead_letter"], out["coupon_event"] = m.letters, m.events
	flat := map[string]string{}
	for table := range modelTables {
		sort.Strings(out[table])
		flat[table] = strings.Join(out[table], "\n")
	}
	return flat
}

func (c *modelCampaign) rows(name string, m *model, row func(string, ...any)) {
	counts := map[string]int{}
	type task struct{ pending, redeemed, expired int }
	tasks := map[wire.Instant]*task{}
	for n, k := range c.coupons {
		status, due := c.statusOf(k), c.ends(k)
		counts[status]++
		newest := wire.Instant(0)
		for _, u := range k.uses {
			if u.back == 0 {
				newest = max(newest, u.at)
			}
			row("redemption", name, n, k.claim.Code, k.claim.CustomerID, u.order, u.at, u.back, u.sequence, u.line)
		}
		row("coupon", name, n, k.claim.Code, k.claim.CustomerID, status, k.claim.At, due, k.count, newest, k.voided, k.reason, string(k.claim.Attributes))
		row("coupon_row", name, n, k.place)
		if due == 0 || status == "voided" {
			continue
		}
		if tasks[due] == nil {
			tasks[due] = &task{}
		}
		switch status {
		case "claimed":
			tasks[due].pending++
		case "redeemed":
			tasks[due].redeemed++
		case "expired":
			tasks[due].expired++
		}
	}
	for due, t := range tasks {
		fell := c.fell(due)
		before := m.midnight - m.retention
		if fell != 0 && fell < before && due < before {
			continue // cleaned up
		}
		state := "pending"
		if fell != 0 {
			state = "processed"
		}
		row("expiry_task", name, due, t.pending, t.redeemed, t.expired, state, fell)
	}
	for r, s := range c.reminders {
		row("reminder", name, s.set.CustomerID, s.set.Kind, s.due, s.state, r, s.set.N, s.set.Before.Microseconds(), s.set.At, s.settled, s.places[0], s.places[1])
	}
	s := &c.settings
	through := wire.Instant(0)
	for _, x := range c.expiries {
		through = max(through, x.through)
		row("expiry_event", name, x.through, x.at, x.position, x.end)
	}
	opens, closes := s.OpensAt, s.ClosesAt
	if opens == 0 {
		opens = c.created
	}
	if closes == 0 {
		closes = s.ExpiresAt
	}
	row("campaign", name, c.status, int(s.Codes)+c.imported, len(c.coupons), counts["redeemed"], counts["expired"], counts["voided"],
		opens, closes, s.ExpiresAt, c.created, c.number, c.soldOut, s.MaxRedemptions, through)
}

// diff shows the lines that only one of two sorted tables has.
func diff(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	var out strings.Builder
	for _, line := range g {
		if !slices.Contains(w, line) {
			out.WriteString("  table " + line + "\n")
		}
	}
	for _, line := range w {
		if !slices.Contains(g, line) {
			out.WriteString("  model " + line + "\n")
		}
	}
	return out.String()
}
