package segments

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Of campaign summer there are few coupons and counts among many, and few of the dead letters are about coupons that expire.
const (
	claimed, claimedSummer   = 40_000, 200
	counts, countsSummer     = 30_000, 300
	reminders                = 30_000
	events, eventsSummer     = 30_000, 300
	letters, lettersExpiring = 1000, 5
)

// reading is how many rows each query of ANALYSTS.md is about, by its beginning. It may read as many again as entries of an index,
// and half as many of what belongs to them. whole: it is about all of a table; every other one reads more if it uses no index.
var reading = []struct {
	query string
	rows  int
	whole bool
}{
	{"select category, sum(claimed) as claimed, sum(redeemed) as redeemed", 3, true},
	{"select status, count(*) from scrip.coupon where campaign = 'summer'", 2 * claimedSummer, false},
	{"select day, value as channel, claimed, redeemed from scrip.campaign_stats where campaign = 'summer'", countsSummer, false},
	{"select reason, sum(refused) as refused from scrip.refusal_stats where campaign = 'summer'", countsSummer, false},
	{"select c.category, date_trunc('week', s.day, 'UTC') as week, sum(s.claimed)", counts, true},
	{"select attributes::json->>'channel' as channel, count(*) as claimed", 2 * claimedSummer, false},
	{"with claims as (select customer_id,", 2 * claimedSummer, false},
	{"select attribute, value, sum(claimed) as claimed,", countsSummer, false},
	{"select campaign, claimed, expired, round(100.0 * expired", 10, true},
	{"with used as (select customer_id, max(redeemed_at)", claimedSummer / 3, false},
	{"select customer_id, count(*) as redemptions,", claimedSummer / 3, false},
	{"select campaign, state, count(*) from scrip.reminder", reminders, true},
	{"select campaign, n, redeemed_at, rolled_back_at from scrip.redemption where order_id", 1, false},
	{"select r.* from scrip.coupon k join scrip.redemption r using (campaign, n) where k.customer_id", 10, false},
	{"select at, what, by, n, expires_at, reason from scrip.coupon_event where campaign = 'summer'", eventsSummer, false},
	{"select at, by, n, expires_at from scrip.coupon_event where campaign = 'summer'", eventsSummer, false},
	{"select name, sum(delivered) as delivered,", 100, true},
	{"select customer_id, campaign, kind, reason, tries, at from scrip_meta.push_dead_letter", letters, true},
	{"select d.customer_id, d.reason, c.n, c.status, c.expires_at from scrip_meta.push_dead_letter d join scrip.coupon c", letters, false},
}

// Every query that ANALYSTS.md shows of the tables reads what it is about, in tables that have much else.
func TestAnalystsQueriesUseIndexes(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 10_000})
	stop := r.run(s)
	fillForAnalysts(r, s)
	stop()
	used := make([]int, len(reading))
	for _, query := range analystsQueries(t) {
		found := false
		for i, rule := range reading {
			if !strings.HasPrefix(query, rule.query) {
				continue
			}
			found = true
			used[i]++
			most := rule.rows * 5 / 2
			if n, plan := projtest.Reads(t, r.pool, query); n > most {
				t.Errorf("%s\nreads %d rows, %d are enough:\n%s", query, n, most, plan)
			}
			if rule.whole {
				continue
			}
			tx, err := r.pool.BeginTx(t.Context(), pgx.TxOptions{BeginQuery: "BEGIN; SET LOCAL enable_indexscan = off; " +
				"SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off"})
			streamtest.Must(t, err)
			if n, _ := projtest.Reads(t, tx, query); n <= 2*most {
				t.Errorf("%s\nreads %d rows without an index: the tables are too small for a bound of %d", query, n, most)
			}
			streamtest.Must(t, tx.Rollback(t.Context()))
		}
		if !found {
			t.Errorf("how many rows may it read?\n%s", query)
		}
	}
	for i, rule := range reading {
		if used[i] != 1 {
			t.Errorf("ANALYSTS.md has %d queries that begin with %s", used[i], rule.query)
		}
	}
}

// analystsQueries are all queries of our tables in blocks of code of ANALYSTS.md, with single spaces, and a customer and an
// order that are there.
func analystsQueries(t *testing.T) (queries []string) {
	t.Helper()
	page, err := os.ReadFile("../ANALYSTS.md")
	streamtest.Must(t, err)
	ours := regexp.MustCompile(`(?i)^(select|with|table)\b.*\bscrip(_meta)?\.`)
	for _, block := range regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		for query := range strings.SplitSeq(regexp.MustCompile(`--[^\n]*`).ReplaceAllString(block[1], ""), ";") {
			if query = strings.Join(strings.Fields(query), " "); ours.MatchString(query) {
				queries = append(queries, strings.NewReplacer("'alice'", "'customer-9'", "'A-1001'", "'order-9'").Replace(query))
			}
		}
	}
	return queries
}

// fillForAnalysts fills every table that ANALYSTS.md asks, and seals the segments.
func fillForAnalysts(r *rig, s *Set) {
	r.t.Helper()
	var created tables.Line
	created.Read(2, 1, []byte(strings.ReplaceAll(projtest.Created("summer", 9, ""), "@", "2026-01-01T00:00:00Z")), 0)
	streamtest.Must(r.t, created.Problem)
	streamtest.Must(r.t, r.apply(0, 0, []tables.Line{created}))
	const batch = 2000
	for from := 0; from < claimed; from += batch {
		segment, done, err := s.Take(r.t.Context(), batch)
		streamtest.Must(r.t, err)
		lines := make([]tables.Line, batch)
		for i := range lines {
			campaign, n := "c0", uint32(from+i+1)
			if i%(claimed/claimedSummer) == 0 {
				campaign = "summer"
			}
			lines[i].Sequence, lines[i].Number = uint64(n)+2, 1
			lines[i].Event = *projtest.Claimed(campaign, n, created.Event.At)
		}
		streamtest.Must(r.t, r.apply(0, segment, lines))
		done()
	}
	streamtest.Must(r.t, s.Finish(r.t.Context()))
	for sql, args := range map[string][]any{
		`INSERT INTO scrip_1.coupon_state (campaign, n, redeemed_count, redeemed_at)
			SELECT campaign, n, 1, claimed_at FROM scrip_1.coupon_claim WHERE n % 3 = 0`: nil,
		`INSERT INTO scrip_1.redemption_row (n, redeemed_at, sequence, line, campaign, code, customer_id, order_id)
			SELECT n, claimed_at, n, 1, campaign, code, '', 'order-' || n FROM scrip_1.coupon_claim WHERE n % 3 = 0`: nil,
		`INSERT INTO scrip_1.day_stats (day, claimed, redeemed, rolled_back, voided, campaign, attribute, value)
			SELECT '2026-01-01Z'::timestamptz + i / 3 * interval '1 day', 1, 0, 0, 0, CASE c WHEN 1 THEN 'summer' ELSE 'x' || c END, 'channel', 'way-' || i % 3
			FROM generate_series(1, $1 / $2::int) c, generate_series(1, $2) i`: {counts, countsSummer},
		`INSERT INTO scrip_1.refusal_stats (day, refused, lane, campaign, reason)
			SELECT '2026-01-01Z'::timestamptz + i / 3 * interval '1 day', 1, 0, CASE c WHEN 1 THEN 'summer' ELSE 'x' || c END, 'reason-' || i % 3
			FROM generate_series(1, $1 / $2::int) c, generate_series(1, $2) i`: {counts, countsSummer},
		`INSERT INTO scrip_1.reminder (r, before_us, set_at, campaign, customer_id, kind, state, set_place)
			SELECT i, 0, '2026-01-01Z', 'c0', 'customer-' || i, 'opens', 'pending', i FROM generate_series(1, $1::int) i`: {reminders},
		`INSERT INTO scrip_1.coupon_event (n, place, at, campaign, what, reason, by)
			SELECT i, i, '2026-01-01Z', CASE WHEN i <= $2::int THEN 'summer' ELSE 'c0' END, 'voided', 'fraud', 'ann' FROM generate_series(1, $1::int) i`: {events, eventsSummer},
		`INSERT INTO scrip_meta.push_dead_letter_row (message, line, id, name, lane, sequence, campaign, kind, customer_id, reason, tries, at)
			SELECT i, 1, i, 'mobile', 0, i, 'c0', CASE WHEN i <= $2::int THEN 'expires' ELSE 'opens' END, 'customer-' || 7 * i, 'gone', 1, '2026-01-01Z'
			FROM generate_series(1, $1::int) i`: {letters, lettersExpiring},
	} {
		_, err := r.pool.Exec(r.t.Context(), sql, args...)
		streamtest.Must(r.t, err)
	}
	_, err := r.pool.Exec(r.t.Context(), "ANALYZE")
	streamtest.Must(r.t, err)
}
