package readmodel

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// session is a connection until the end of the test: it keeps its plans.
func session(t *testing.T, pool *pgxpool.Pool) *pgxpool.Conn {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	streamtest.Must(t, err)
	t.Cleanup(conn.Release)
	return conn
}

// begin opens a transaction with the settings of a look-up.
func begin(t *testing.T, conn *pgxpool.Conn) (tx pgx.Tx, end func()) {
	t.Helper()
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{BeginQuery: beginSQL})
	streamtest.Must(t, err)
	return tx, func() { _ = tx.Rollback(context.Background()) }
}

// A page of a coupon reads a page, wherever it is among many redemptions and rollbacks, before the coupon was extended and
// after; so does the first page of its customer. Pages together give each entry once. Plans are those made while the tables were empty,
// with rows and no statistics, and with statistics.
func TestManyRedemptions(t *testing.T) {
	pool := database(t)
	const many, limit = 50_000, 100
	read := func(conn *pgxpool.Conn, sql, before, of string, more ...any) {
		t.Helper()
		at, ok := parseCursor(before, 4)
		if !ok {
			t.Fatal(before)
		}
		tx, end := begin(t, conn)
		defer end()
		execute, with := projtest.Execute(t, tx, sql, slices.Concat([]any{of, limit + 1}, at, more)...)
		n, plan := projtest.Reads(t, tx, execute, with...)
		if n > 6*limit {
			t.Errorf("the page before %q reads %d rows:\n%s", before, n, plan)
		}
	}
	pages := func(conn *pgxpool.Conn) {
		t.Helper()
		read(conn, customerSQL, "", "agency")
		for _, before := range []string{"", cursor(minute(700), 0, 84001*positionLines+1, 1, 0), cursor(minute(300), 0, 36000*positionLines+1, 1, 0)} {
			read(conn, couponSQL, before, "c0", 1)
		}
	}
	early := session(t, pool)
	pages(early)
	for _, sql := range []string{
		`INSERT INTO scrip_tables.campaign (campaign, status, claimed, redeemed, voided, opens_at, created_at, lane, number, per_customer,
			max_redemptions, generated_codes, imported_codes, inheriting_live, inheriting_redeemed, expired_through)
			SELECT 'c' || i, 'active', 1, 0, 0, 'epoch', 'epoch', i, i, 0, 25000, 1000, 0, 0, 0, '2026-02-01Z' FROM generate_series(0, 1) i`,
		`INSERT INTO scrip_1.coupon_claim (n, claimed_at, claimed_place, segment, campaign, code, customer_id, expires_at)
			SELECT 1, '2026-01-01Z', 1048577, 0, 'c' || i, 'code-' || i, 'agency', '2026-01-01 06:00Z' FROM generate_series(0, 1) i`,
		`INSERT INTO scrip_1.coupon_state (campaign, n, redeemed_count, redeemed_at, expires_at, voided_at)
			SELECT 'c' || i, 1, 25000, '2026-01-02Z', '2026-01-02Z', '2026-01-03Z' FROM generate_series(0, 1) i`,
		// A redemption each second. All are rolled back one by one, until the second half: those count.
		`INSERT INTO scrip_tables.redemption_row (n, redeemed_at, rolled_back_at, sequence, line, campaign, code, customer_id, order_id, redeemed_count)
			SELECT 1, '2026-01-01Z'::timestamptz + k * interval '1 s', CASE WHEN k <= 25000 THEN '2026-01-01Z'::timestamptz + k * interval '1 s' END,
				2 * k, 1, 'c' || i, 'code-' || i, 'agency', 'o' || k, greatest(1, k - 25000)
			FROM generate_series(0, 1) i, generate_series(1, 50000) k WHERE i = 0 OR k % 50 = 0`,
		`INSERT INTO scrip_tables.coupon_event (n, place, at, order_id, campaign, what)
			SELECT 1, (2 * k + 1) * 1048576::bigint + 1, '2026-01-01Z'::timestamptz + k * interval '1 s', 'o' || k, 'c' || i, 'rolled_back'
			FROM generate_series(0, 1) i, generate_series(1, 25000) k WHERE i = 0 OR k % 50 = 0`,
		`INSERT INTO scrip_tables.coupon_event (n, place, at, expires_at, own_before, reason, campaign, what)
			SELECT 1, 43201 * 1048576::bigint + e.line, '2026-01-01 06:00Z'::timestamptz + e.hours * interval '1 hour', e.expires_at, e.before, e.reason, 'c' || i, e.what
			FROM generate_series(0, 1) i, (VALUES (3, 0, '2026-01-01 12:00Z'::timestamptz, '2026-01-01 06:00Z'::timestamptz, NULL, 'extended'),
				(56800::bigint * 1048576, 8, '2026-01-02Z', '2026-01-01 12:00Z', NULL, 'extended'), (302401::bigint * 1048576, 42, NULL, NULL, 'over', 'voided'))
				e (line, hours, expires_at, before, reason, what)`,
		`INSERT INTO scrip_tables.expiry_event (through, at, place, campaign)
			SELECT '2026-01-01Z'::timestamptz + h * interval '6 hours', '2026-01-01Z'::timestamptz + h * interval '6 hours', (h * 43200 + 1) * 1048576::bigint + 2, 'c' || i
			FROM generate_series(0, 1) i, generate_series(1, 60) h`,
	} {
		exec(t, pool, sql)
	}
	pages(early)
	pages(session(t, pool))
	exec(t, pool, "ANALYZE")
	pages(early)
	s := NewHistory(pool, nil)
	var all []Entry
	for page, before := (historyPage{more: true}), ""; page.more; before = all[len(all)-1].cursor() {
		var err error
		page, err = s.read(t.Context(), couponSQL, MostEntries, before, "c0", 1)
		streamtest.Must(t, err)
		all = append(all, page.entries...)
	}
	kinds := map[string]int{}
	for i, e := range all {
		kinds[e.What]++
		if i > 0 && (e.At.After(all[i-1].At) || e.Sequence > all[i-1].Sequence || e.Sequence == all[i-1].Sequence && e.Line >= all[i-1].Line) {
			t.Fatalf("entry %d: %+v after %+v", i, e, all[i-1])
		}
	}
	// It was used up at 13:53, and could not expire after that.
	streamtest.Equal(t, "entries", fmt.Sprint(kinds), fmt.Sprintf("map[claimed:1 expired:2 extended:2 redeemed:%d rolled_back:%d voided:1]", many, many/2))
}

// What happened at one instant in several lanes is in pages once, also if there is more of it in a lane than a page holds.
func TestPagesOfOneInstant(t *testing.T) {
	pool := database(t)
	for _, sql := range []string{
		`INSERT INTO scrip_tables.campaign (campaign, status, claimed, redeemed, voided, opens_at, created_at, lane, number, per_customer,
			max_redemptions, generated_codes, imported_codes, inheriting_live, inheriting_redeemed)
			SELECT 'c' || i, 'active', 1, 0, 0, 'epoch', 'epoch', i, i, 0, 9, 1000, 0, 0, 0 FROM generate_series(0, 2) i`,
		`INSERT INTO scrip_1.coupon_claim (n, claimed_at, claimed_place, segment, campaign, code, customer_id)
			SELECT 1, '2026-01-01Z', 1048577, 0, 'c' || i, 'code-' || i, 'agency' FROM generate_series(0, 2) i`,
		`INSERT INTO scrip_tables.redemption_row (n, redeemed_at, rolled_back_at, sequence, line, campaign, code, customer_id, order_id, redeemed_count)
			SELECT 1, '2026-01-02Z'::timestamptz + (k / 10) * interval '1 s', '2026-01-03Z', 10 + k, 1, 'c' || i, 'code-' || i, 'agency', 'o' || k, 1
			FROM generate_series(0, 2) i, generate_series(1, 20) k`,
		`INSERT INTO scrip_tables.coupon_event (n, place, at, order_id, campaign, what)
			SELECT 1, (40 + k) * 1048576::bigint + 1, '2026-01-03Z', 'o' || k, 'c' || i, 'rolled_back' FROM generate_series(0, 2) i, generate_series(1, 20) k`,
	} {
		exec(t, pool, sql)
	}
	s := NewHistory(pool, nil)
	whole, err := s.read(t.Context(), customerSQL, MostEntries, "", "agency")
	if err != nil || len(whole.entries) != 3+60+60 {
		t.Fatalf("%d entries, %v", len(whole.entries), err)
	}
	for _, limit := range []int{2, 7} {
		var all []Entry
		for page, before := (historyPage{more: true}), ""; page.more; before = all[len(all)-1].cursor() {
			page, err = s.read(t.Context(), customerSQL, limit, before, "agency")
			streamtest.Must(t, err)
			if all = append(all, page.entries...); len(page.entries) == 0 || len(all) > len(whole.entries) {
				t.Fatalf("pages of %d: %d entries", limit, len(all))
			}
		}
		streamtest.Equal(t, fmt.Sprintf("pages of %d", limit), lines(all), lines(whole.entries))
	}
}
