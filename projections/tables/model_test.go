package tables

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// model is the oracle, and naively what the tables hold besides: places in the log, times, counts by day. It shares nothing
// with the fold of this package but the events.
type model struct {
	*oracle.Fold
	extras    map[string]*extra // "campaign", "campaign/coupon" and "campaign#reminder" → what the oracle does not keep
	stats     map[string]*[4]int
	refusals  map[string]int
	letters   []string
	events    []string // of coupons, besides claims and redemptions
	midnight  wire.Instant
	retention wire.Instant
	removed   int   // coupons
	keep      int64 // days of coupons of ended campaigns; 0 = for ever
}

type extra struct {
	first, last   wire.Event // of a campaign: created, sold out; of a coupon: claimed, voided; of a reminder: set, settled
	places        [2]int64   // of those two
	redemptions   []string   // sequence and line
	announcements []crossing // of a campaign
	gone          gone
}

// gone is what of a campaign has left the tables: the first so many, and how many of the coupons had which status.
type gone struct {
	coupons, reminders, allotments, announcements int
	counts                                        map[string]int
	all                                           bool // since the settings changed
}

func newModel(retention time.Duration, keep int64) *model {
	return &model{Fold: oracle.New(), extras: map[string]*extra{}, stats: map[string]*[4]int{}, refusals: map[string]int{},
		retention: wire.Instant(retention.Microseconds()), keep: keep}
}

// message folds one step.
func (m *model) message(sequence uint64, msg message) {
	if today := dayOf(msg.at); today > m.midnight && m.keep != 0 {
		for _, c := range m.Campaigns {
			m.remove(c, today)
		}
	}
	for n, raw := range bytes.Split(bytes.TrimRight(msg.lines, "\n"), []byte{'\n'}) {
		if len(raw) == 0 {
			continue
		}
		var e wire.Event
		if err := wire.ParseEvent(bytes.Clone(raw), &e); err != nil {
			panic(err)
		}
		m.event(sequence, n+1, &e)
	}
	m.midnight = max(m.midnight, dayOf(msg.at))
}

// remove removes the coupons of a campaign if it ended long ago and no task of an expiry of their own is left.
func (m *model) remove(c *oracle.Campaign, today wire.Instant) {
	ended, end := wire.Instant(0), c.Settings.ExpiresAt
	if end != 0 {
		ended = max(end, m.fell(c, end))
	}
	for _, change := range c.Changes {
		if end == 0 && change.Type == wire.CampaignEndedEvent.String() {
			ended = change.At
		}
	}
	x := m.extras[c.Name]
	if x.gone.all || ended == 0 || ended >= today-wire.Instant(m.keep)*dayLength || end != 0 && m.fell(c, end) == 0 {
		return
	}
	counts := m.counts(c)
	for _, k := range c.Coupons[x.gone.coupons:] {
		fell, before := m.fell(c, k.OwnExpiry), today-m.retention
		switch {
		case k.Voided:
		case k.OwnExpiry == 0 && end == 0 && c.StatusOf(k) == wire.StatusClaimed:
			return
		case k.OwnExpiry != 0 && (fell == 0 || fell >= before || k.OwnExpiry >= before):
			return
		}
	}
	m.events = slices.DeleteFunc(m.events, func(e string) bool { return strings.HasPrefix(e, c.Name+"|") })
	m.removed += len(c.Coupons) - x.gone.coupons
	x.gone = gone{len(c.Coupons), len(c.Reminders), len(c.Allotments), len(x.announcements), counts, true}
}

// left is of which campaigns the coupons have left, also where there were none.
func (m *model) left() map[string]bool {
	all := map[string]bool{}
	for name, c := range m.Campaigns {
		all[c.Name] = m.extras[name].gone.all
	}
	return all
}

// counts counts the coupons of a campaign by status, those that have left as they were then.
func (m *model) counts(c *oracle.Campaign) map[string]int {
	g := m.extras[c.Name].gone
	counts := maps.Clone(g.counts)
	if counts == nil {
		counts = map[string]int{}
	}
	for _, k := range c.Coupons[g.coupons:] {
		counts[c.StatusOf(k)]++
	}
	return counts
}

func couponName(campaign string, n uint32) string   { return fmt.Sprint(campaign, "/", n) }
func reminderName(campaign string, r uint64) string { return fmt.Sprint(campaign, "#", r) }

func (m *model) event(sequence uint64, line int, e *wire.Event) {
	place := int64(sequence)<<20 + int64(line)
	open := func(name string) { m.extras[name] = &extra{first: *e, places: [2]int64{place}} }
	end := func(name string) { m.extras[name].last, m.extras[name].places[1] = *e, place }
	has := func() bool { return int(e.N) > m.extras[e.Campaign].gone.coupons }
	happened := func(expires, before wire.Instant) {
		m.events = append(m.events, fmt.Sprintf("%s|%d|%d|%d|%s|%d|%d|%s|%s", e.Campaign, e.N, place, e.At, strings.TrimPrefix(e.Type.String(), "coupon."), expires, before, e.OrderID, e.Reason))
	}
	c := m.Campaigns[e.Campaign]
	m.Fired = func(c *oracle.Campaign, r uint64) { end(reminderName(c.Name, r)) }
	var dropped []uint64
	if e.Type == wire.RemindersDue && e.Dropped > 0 {
		for i := range c.Reminders {
			if c.Reminders[i].State == oracle.Pending {
				dropped = append(dropped, uint64(i)+1)
			}
		}
	}
	var own wire.Instant
	if e.Type == wire.CouponExtended {
		own = c.Coupons[e.N-1].OwnExpiry
	}
	m.Apply(place, e)
	for _, r := range dropped {
		if c.Reminder(r).State == oracle.Dropped {
			end(reminderName(c.Name, r))
		}
	}
	switch e.Type {
	case wire.CampaignCreated:
		open(e.Campaign)
	case wire.CampaignSoldOut:
		end(e.Campaign)
	case wire.CampaignUpdated, wire.CodesImported:
		m.extras[e.Campaign].gone.all = m.extras[e.Campaign].gone.all && e.Type == wire.CodesImported
		if int(c.Codes) > len(c.Coupons) {
			m.extras[e.Campaign].last.At = 0
		}
	case wire.CouponsAllotted:
		for n := e.FromN; n <= e.ThroughN; n++ {
			open(couponName(e.Campaign, n))
			m.stat(&wire.Event{Campaign: e.Campaign, At: e.At, N: n}, 0)
		}
	case wire.CouponClaimed:
		open(couponName(e.Campaign, e.N))
		m.stat(e, 0)
	case wire.CouponRedeemed:
		x := m.extras[couponName(e.Campaign, e.N)]
		x.redemptions = append(x.redemptions, fmt.Sprint(sequence, "|", line))
		if has() {
			m.stat(e, 1)
		}
	case wire.CouponRolledBack:
		if has() {
			m.stat(e, 2)
			happened(0, 0)
		}
	case wire.CouponVoided:
		end(couponName(e.Campaign, e.N))
		if has() {
			m.stat(e, 3)
			happened(0, 0)
		}
	case wire.CouponExtended:
		if has() {
			happened(e.ExpiresAt, own)
		}
	case wire.CouponsExpired:
		x := crossing{through: e.Through, at: e.At, position: place}
		if end := c.Settings.ExpiresAt; m.fell(c, end) == 0 && end != 0 && end <= e.Through {
			x.end = end
		}
		m.extras[c.Name].announcements = append(m.extras[c.Name].announcements, x)
	case wire.ReminderSet:
		open(reminderName(e.Campaign, e.R))
	case wire.ReminderCancelled:
		end(reminderName(e.Campaign, e.R))
	case wire.CommandsRefused:
		for _, r := range e.Refused {
			m.refusals[fmt.Sprintf("%s|%d|%s", e.Campaign, dayOf(e.At), r.Refusal)] += int(r.Count)
		}
	case wire.CommandRejected:
		m.refusals[fmt.Sprintf("%s|%d|invalid", e.Campaign, dayOf(e.At))] += int(max(e.Count, 1))
		m.letters = append(m.letters, fmt.Sprintf("SCRIP_CMD_0|%d|%d|%s|%s|%d|%d|%d", e.Sequence, e.Line, e.Reason, e.Payload, e.At, sequence, line))
	}
}

func (m *model) stat(e *wire.Event, what int) {
	add := func(attribute, value string) {
		key := fmt.Sprintf("%s|%d|%s|%s", e.Campaign, dayOf(e.At), attribute, value)
		if m.stats[key] == nil {
			m.stats[key] = &[4]int{}
		}
		m.stats[key][what]++
	}
	add("", "")
	var attributes map[string]any
	_ = json.Unmarshal(m.extras[couponName(e.Campaign, e.N)].first.Attributes, &attributes)
	for name, value := range attributes {
		add(name, fmt.Sprint(value))
	}
}

// fell is when the log announced that what is due at an instant has fallen, 0 if it did not.
func (m *model) fell(c *oracle.Campaign, due wire.Instant) wire.Instant {
	for _, x := range m.extras[c.Name].announcements {
		if due != 0 && due <= x.through {
			return x.at
		}
	}
	return 0
}

// modelTables are the queries whose rows the model knows, in its format: fields joined by |, times in microseconds,
// NULL as 0 or empty.
var modelTables = map[string]string{
	"campaign": `SELECT concat_ws('|', campaign, status, codes, claimed, redeemed, expired, voided, us(opens_at), us(closes_at), us(expires_at),
		us(created_at), number, us(sold_out_at), max_redemptions, us(expired_through)) FROM scrip_tables.campaign`,
	"coupon": `SELECT concat_ws('|', campaign, n, code, customer_id, status, us(claimed_at), us(expires_at), redeemed_count, us(redeemed_at),
		us(voided_at), coalesce(void_reason, ''), coalesce(attributes, '')) FROM scrip.coupon`,
	"coupon_row":   `SELECT concat_ws('|', campaign, n, claimed_place) FROM scrip_tables.coupon_row`,
	"coupon_event": `SELECT concat_ws('|', campaign, n, place, us(at), what, us(expires_at), us(own_before), coalesce(order_id, ''), coalesce(reason, '')) FROM scrip_tables.coupon_event`,
	"expiry_event": `SELECT concat_ws('|', campaign, us(through), us(at), place, us(campaign_end)) FROM scrip_tables.expiry_event`,
	"allotment":    `SELECT concat_ws('|', campaign, batch, from_n, through_n, us(allotted_at), us(expires_at)) FROM scrip_tables.allotment`,
	"redemption":   `SELECT concat_ws('|', campaign, n, code, customer_id, order_id, us(redeemed_at), us(rolled_back_at), sequence, line) FROM scrip_tables.redemption_row`,
	"expiry_task":  `SELECT concat_ws('|', campaign, us(due_at), pending, redeemed, expired, state, us(processed_at)) FROM scrip_tables.expiry_task`,
	"reminder": `SELECT concat_ws('|', campaign, customer_id, kind, us(due_at), state, r, coalesce(n, 0), before_us, us(set_at), us(settled_at),
		set_place, coalesce(settled_place, 0)) FROM scrip_tables.reminder`,
	"campaign_stats": `SELECT concat_ws('|', campaign, us(day), attribute, value, claimed, redeemed, rolled_back, voided) FROM scrip.campaign_stats`,
	"refusal_stats":  `SELECT concat_ws('|', campaign, us(day), reason, refused) FROM scrip.refusal_stats`,
	"dead_letter":    `SELECT concat_ws('|', stream, sequence, line, reason, payload, us(at), event_sequence, event_line) FROM scrip_tables.dead_letter`,
}

func (m *model) tables() map[string]string {
	out := map[string][]string{}
	row := func(table string, values ...any) {
		fields := make([]string, len(values))
		for i, v := range values {
			if at, ok := v.(wire.Instant); ok {
				if v = int64(at); at == wire.Never {
					v = 0
				}
			}
			fields[i] = fmt.Sprint(v)
		}
		out[table] = append(out[table], strings.Join(fields, "|"))
	}
	for _, c := range m.Campaigns {
		m.rows(c, row)
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

func (m *model) rows(c *oracle.Campaign, row func(string, ...any)) {
	counts, gone := m.counts(c), m.extras[c.Name].gone
	tasks := map[wire.Instant]map[string]int{}
	for _, k := range c.Coupons[gone.coupons:] {
		x, status, due := m.extras[couponName(c.Name, k.N)], c.StatusOf(k), c.Expires(k)
		newest := wire.Instant(0)
		for i, u := range k.Redemptions {
			if u.RolledBackAt == 0 {
				newest = max(newest, u.At)
			}
			row("redemption", c.Name, k.N, k.Code, u.Customer, u.Order, u.At, u.RolledBackAt, x.redemptions[i])
		}
		if k.N != 0 {
			row("coupon_row", c.Name, k.N, x.places[0])
			row("coupon", c.Name, k.N, k.Code, k.Customer, status, k.ClaimedAt, due, k.Count, newest, x.last.At, x.last.Reason, string(x.first.Attributes))
		}
		if due == wire.Never || status == wire.StatusVoided {
			continue
		}
		if tasks[due] == nil {
			tasks[due] = map[string]int{}
		}
		tasks[due][status]++
	}
	for due, n := range tasks {
		fell, before := m.fell(c, due), m.midnight-m.retention
		if fell != 0 && fell < before && due < before {
			continue // cleaned up
		}
		state := "pending"
		if fell != 0 {
			state = "processed"
		}
		row("expiry_task", c.Name, due, n[wire.StatusClaimed], n[wire.StatusRedeemed], n[wire.StatusExpired], state, fell)
	}
	for i := range c.Reminders {
		r, x := &c.Reminders[i], m.extras[reminderName(c.Name, uint64(i)+1)]
		if i < gone.reminders || r.N != 0 && int(r.N) <= gone.coupons {
			continue
		}
		row("reminder", c.Name, r.Customer, r.Kind(), r.Due, r.State, i+1, r.N, int64(r.Before), x.first.At, x.last.At, x.places[0], x.places[1])
	}
	x, s := m.extras[c.Name], &c.Settings
	for _, a := range c.Allotments[gone.allotments:] {
		row("allotment", c.Name, a.Batch, a.From, a.Through, a.At, a.OwnExpiry)
	}
	for _, a := range x.announcements[gone.announcements:] {
		row("expiry_event", c.Name, a.through, a.at, a.position, a.end)
	}
	opens, closes := s.OpensAt, s.ClosesAt
	if opens == 0 {
		opens = c.Created
	}
	if closes == 0 {
		closes = s.ExpiresAt
	}
	row("campaign", c.Name, c.Status, c.Codes, len(c.Coupons), counts[wire.StatusRedeemed], counts[wire.StatusExpired], counts[wire.StatusVoided],
		opens, closes, s.ExpiresAt, c.Created, x.first.Number, x.last.At, s.MaxRedemptions, c.Through)
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
