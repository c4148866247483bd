package segments

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// questions are what analysts ask about many coupons. Those of ANALYSTS.md are added.
var questions = map[string]string{
	"redemption rate by category and week": `
		SELECT c.category, date_trunc('week', k.claimed_at) AS week, count(*), count(*) FILTER (WHERE k.status = 'redeemed')
		FROM scrip.coupon k JOIN scrip.campaign c USING (campaign) GROUP BY 1, 2`,
	"claim to redemption, by channel": `
		SELECT attributes::jsonb ->> 'channel' AS channel, count(*), avg(redeemed_at - claimed_at)
		FROM scrip.coupon WHERE redeemed_at IS NOT NULL GROUP BY 1`,
	"cohorts of customers": `
		WITH f AS (SELECT customer_id, date_trunc('week', min(claimed_at)) AS week FROM scrip.coupon GROUP BY 1)
		SELECT f.week, date_trunc('week', k.claimed_at) AS later, count(DISTINCT k.customer_id)
		FROM f JOIN scrip.coupon k USING (customer_id) GROUP BY 1, 2`,
	"top attributes": `
		SELECT attribute, value, sum(claimed) FROM scrip.campaign_stats
		WHERE attribute <> '' GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10`,
	"breakage, and its value": `
		SELECT c.category, c.benefit, count(*) FILTER (WHERE k.status = 'expired') AS expired, count(*)
		FROM scrip.coupon k JOIN scrip.campaign c USING (campaign) GROUP BY 1, 2`,
	"by campaign and status": `
		SELECT campaign, status, count(*) FROM scrip.coupon GROUP BY 1, 2`,
	"redemptions of an order": `
		SELECT k.status, r.* FROM scrip.redemption r JOIN scrip.coupon k USING (campaign, n)
		WHERE r.order_id = 'order-1-21'`,
	"coupons of a campaign in some days": `
		SELECT code, customer_id FROM scrip.coupon
		WHERE campaign = 'k1' AND claimed_at >= '2026-01-11Z' AND claimed_at < '2026-01-21Z'`,
	"loops of redeem and roll back": `
		SELECT k.customer_id, count(*) FROM scrip.redemption r JOIN scrip.coupon k USING (campaign, n)
		WHERE r.rolled_back_at IS NOT NULL GROUP BY 1`,
	"effect of reminders": `
		SELECT r.state, count(*) FILTER (WHERE k.status = 'redeemed'), count(*)
		FROM scrip.reminder r JOIN scrip.coupon k USING (campaign, n) GROUP BY 1`,
	"redeemed in a week": `
		SELECT campaign, count(*) FROM scrip.coupon
		WHERE redeemed_at >= '2026-02-01Z' AND redeemed_at < '2026-02-08Z' GROUP BY 1`,
}

// What the planner expects of joins of coupons is what they have, within a factor of 3, with few campaigns and with many.
func TestJoinsAreEstimated(t *testing.T) {
	for _, campaigns := range []int{3, 300} {
		t.Run(fmt.Sprint(campaigns), func(t *testing.T) {
			r := newRig(t)
			s := r.open(Options{Rows: 5000})
			stop := r.run(s)
			r.fillUneven(s, campaigns)
			stop()
			// As autovacuum does. All statistics are of few rows, as those of large tables are.
			r.exec(strings.ReplaceAll("ALTER TABLE ONLY scrip_1.coupon_claim ALTER COLUMN campaign SET STATISTICS %, "+
				"ALTER COLUMN customer_id SET STATISTICS %", "%", fmt.Sprint(detail)))
			r.exec(fmt.Sprintf("SET default_statistics_target = %d; ANALYZE scrip_1.campaign, scrip_1.coupon_state, "+
				"scrip_1.redemption_row, scrip_1.reminder, scrip_1.day_stats; RESET default_statistics_target", detail))
			streamtest.Must(t, s.Analyze(t.Context()))
			tx, err := r.pool.BeginTx(t.Context(), pgx.TxOptions{
				BeginQuery: "BEGIN; SET LOCAL max_parallel_workers_per_gather = 0"})
			streamtest.Must(t, err)
			defer tx.Rollback(t.Context()) //nolint:errcheck
			all := map[string]string{}
			for _, sql := range analystsQueries(t) {
				if strings.Contains(sql, "scrip.coupon") || strings.Contains(sql, "scrip.redemption") {
					all[sql] = strings.ReplaceAll(sql, "'summer'", "'k1'")
				}
			}
			for what, sql := range questions {
				all[what] = sql
			}
			for what, sql := range all {
				estimates, plan := projtest.Estimates(t, tx, sql)
				for _, e := range estimates {
					if f := e.Factor(); f > 3 {
						t.Errorf("%s: %s is expected to have %.0f rows, and has %.0f: a factor of %.1f:\n%s",
							what, e.Step, e.Expected, e.Actual, f, plan)
					}
				}
			}
		})
	}
}

// fillUneven fills all tables that questions are about. Campaigns are k1, k2 and so on: of three they have 70, 25 and 5 in a
// hundred coupons, and of many the first has half of all. Segments follow each other in time.
func (r *rig) fillUneven(s *Set, campaigns int) {
	r.t.Helper()
	const coupons, segments = 20_000, 4
	r.exec(fmt.Sprintf(`CREATE TABLE public.size AS
		SELECT i, (%[2]d * CASE WHEN %[1]d = 3 THEN (ARRAY[0.7, 0.25, 0.05])[i] WHEN i = 1 THEN 0.5
			ELSE 0.5 / %[1]d END)::bigint AS size
		FROM generate_series(1, %[1]d) i`, campaigns, coupons))
	r.exec(`INSERT INTO scrip_1.campaign (campaign, status, category, claimed, redeemed, voided, opens_at, expires_at,
			expired_through, created_at, lane, number, per_customer, max_redemptions, benefit, generated_codes,
			imported_codes, highest, inheriting_live, inheriting_redeemed)
		SELECT 'k' || i, 'active', (ARRAY['food', 'books', 'toys'])[i % 3 + 1], size, 0, 0, '2026-01-01Z', '2026-04-01Z',
			CASE i % 2 WHEN 0 THEN '2026-04-01Z'::timestamptz END, '2026-01-01Z', 0, i + 2, 0, 1,
			'{"percent":' || 5 * (i % 4) || '}', size, 0, size, 0, 0 FROM public.size`)
	for part := range segments {
		segment, done, err := s.Take(r.t.Context(), coupons/segments)
		streamtest.Must(r.t, err)
		_, err = r.pool.Exec(r.t.Context(), fmt.Sprintf(`
			INSERT INTO scrip_1.coupon_claim (n, claimed_at, claimed_place, segment, campaign, code, customer_id, attributes)
			SELECT n, '2026-01-01Z'::timestamptz + interval '60 days' * n / size, n * 1048576, $1, 'k' || i, md5(i || '-' || n),
				'customer-' || (n * 7919 + i * 104729) %% 15000,
				CASE n %% 4 WHEN 0 THEN '{"channel":"web"}' WHEN 1 THEN '{"channel":"app"}' END
			FROM public.size, generate_series(size * $2::bigint / %[1]d + 1, size * ($2::bigint + 1) / %[1]d) n`,
			segments), segment, part)
		streamtest.Must(r.t, err)
		done()
	}
	streamtest.Must(r.t, s.Finish(r.t.Context()))
	for _, sql := range []string{
		`INSERT INTO scrip_1.coupon_state (campaign, n, redeemed_count, redeemed_at, voided_at)
			SELECT campaign, n, (n % 20 < 6)::int, CASE WHEN n % 20 < 6 THEN claimed_at + interval '1 hour' * (n % 100) END,
				CASE WHEN n % 20 = 7 THEN claimed_at + interval '1 day' END
			FROM scrip_1.coupon_claim WHERE n % 20 < 8`,
		`INSERT INTO scrip_1.redemption_row (n, redeemed_at, rolled_back_at, sequence, line, campaign, code, customer_id,
				order_id)
			SELECT n, claimed_at + interval '1 hour' * (n % 100), CASE n % 20 WHEN 6 THEN claimed_at + interval '5 days' END,
				n, 1, campaign, code, '', 'order-' || substr(campaign, 2) || '-' || n
			FROM scrip_1.coupon_claim WHERE n % 20 < 7`,
		`INSERT INTO scrip_1.reminder (r, n, before_us, due_at, set_at, settled_at, campaign, customer_id, kind, state,
				set_place)
			SELECT n, n, 3600000000, '2026-03-31 23:00Z', claimed_at, CASE n % 8 WHEN 0 THEN claimed_at END, campaign,
				customer_id, 'expires', CASE n % 8 WHEN 0 THEN 'cancelled' ELSE 'pending' END, n
			FROM scrip_1.coupon_claim WHERE n % 4 = 0`,
		`INSERT INTO scrip_1.day_stats (day, claimed, redeemed, rolled_back, voided, campaign, attribute, value)
			SELECT '2026-01-01Z'::timestamptz + d * interval '1 day', 1 + d, 0, 0, 0, 'k' || i,
				CASE WHEN v > 0 THEN 'channel' ELSE '' END, CASE WHEN v > 0 THEN 'way-' || v ELSE '' END
			FROM public.size, generate_series(0, 19) d, generate_series(0, 3) v`,
	} {
		r.exec(sql)
	}
}

// All segments together are analyzed when the number of rows has changed by a fifth and a thousand, in a quiet moment.
func TestAnalysesWhenRowsHaveChanged(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 100_000})
	claim := func(many int) {
		t.Helper()
		for ; many > 0; many -= 1000 {
			r.claim(s, 0, 1000)
		}
	}
	for _, step := range []struct {
		what    string
		do      func()
		counted string
	}{
		{"nothing", func() {}, "-1"},
		{"few rows", func() { claim(1000) }, "-1"},
		{"a rush", func() { claim(1000); s.rotated = time.Now() }, "-1"},
		{"a quiet moment", func() { s.rotated = time.Time{} }, "2000"},
		{"few more rows", func() { claim(1000) }, "2000"},
		{"many more", func() { claim(1000) }, "4000"},
		{"many more while the last one was long", func() { claim(4000); s.analyzing = time.Hour }, "4000"},
		{"a long time", func() {}, "8000"},
		{"rows that left", func() { r.exec("DELETE FROM scrip_1.coupon_claim WHERE n > 1000"); s.young.rows = 1000 }, "1000"},
	} {
		s.analyzing = 0
		step.do()
		streamtest.Must(t, s.analyzeChanged(t.Context()))
		streamtest.Equal(t, "rows at the last analysis, after "+step.what,
			r.text("SELECT reltuples::bigint::text FROM pg_class WHERE oid = 'scrip_1.coupon_claim'::regclass"), step.counted)
	}
}
