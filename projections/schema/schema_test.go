package schema

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) { os.Exit(projtest.Main(m)) }

var quiet = slog.New(slog.DiscardHandler)

func pool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	url := projtest.URL(t)
	projtest.SessionLocks(t, url)
	return projtest.Pool(t, url)
}

func ensured(t *testing.T, p *pgxpool.Pool) (fresh bool) {
	t.Helper()
	fresh, err := Ensure(t.Context(), p, quiet)
	streamtest.Must(t, err)
	return fresh
}

func exec(t *testing.T, p *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := p.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestManyEnsureAtOnce(t *testing.T) {
	p := pool(t)
	url := p.Config().ConnString()
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			own, err := pgxpool.New(context.Background(), url)
			if err == nil {
				defer own.Close()
				_, err = Ensure(context.Background(), own, quiet)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	streamtest.Must(t, errors.Join(errs...))
}

func TestDroppedTablesAreCreatedAgain(t *testing.T) {
	for name, drop := range map[string]string{
		"schema": "DROP SCHEMA scrip CASCADE",
		"tables": "DROP SCHEMA scrip_1 CASCADE",
	} {
		t.Run(name, func(t *testing.T) {
			p := pool(t)
			if !ensured(t, p) || ensured(t, p) {
				t.Error("an empty database was not reported as fresh, or tables that are there were")
			}
			exec(t, p, drop)
			if !ensured(t, p) {
				t.Error("tables created again were not reported as fresh")
			}
			if text := projtest.Digest(t, p); strings.Count(text, "\n") != 13 {
				t.Errorf("digests after it: %s", text)
			}
		})
	}
}

func TestUnusableDatabases(t *testing.T) {
	for name, c := range map[string]struct{ spoil, want string }{
		"one table dropped": {"DROP VIEW scrip.redemption", "redemption is missing from schema scrip; run `scrip rebuild`, or `DROP SCHEMA scrip CASCADE`"},
		"newer scrip":       {"UPDATE scrip_meta.format SET version = 2", "created by a newer scrip (format 2, this program knows 1): use that one, or `DROP SCHEMA scrip CASCADE`"},
		"older scrip":       {"UPDATE scrip_meta.format SET version = -1", "they have format -1, and this program needs 1: run `scrip rebuild`"},
		"not ours":          {"DROP SCHEMA scrip_meta CASCADE", "has tables that scrip did not create (allotment, campaign"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pool(t)
			ensured(t, p)
			exec(t, p, c.spoil)
			_, err := Ensure(t.Context(), p, quiet)
			if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want ErrUnusable with %q", err, c.want)
			}
			// What the text advises helps.
			exec(t, p, "DROP SCHEMA scrip CASCADE")
			ensured(t, p)
		})
	}
}

func TestUserWhoMayNotCreate(t *testing.T) {
	p := pool(t)
	weak := projtest.Pool(t, projtest.Role(t, p.Config().ConnString(), "weak"))
	_, err := Ensure(t.Context(), weak, quiet)
	if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "GRANT CREATE ON DATABASE") {
		t.Errorf("error %v, want ErrUnusable and what to do", err)
	}
}

// Queries for one coupon, one customer or one order use an index, through the view.
func TestViewKeepsIndexes(t *testing.T) {
	p := pool(t)
	ensured(t, p)
	exec(t, p, `INSERT INTO scrip_tables.campaign (campaign, status, claimed, redeemed, voided, opens_at, created_at, lane, number, per_customer,
		max_redemptions, generated_codes, imported_codes, highest, inheriting_live, inheriting_redeemed)
		SELECT 'c' || i, 'active', 1000, 0, 0, 'epoch', 'epoch', 0, i, 1, 1, 1000, 0, 1000, 0, 0 FROM generate_series(1, 20) i`)
	exec(t, p, `INSERT INTO scrip_1.coupon_claim (n, claimed_place, claimed_at, segment, campaign, code, customer_id)
		SELECT n, n, 'epoch', 0, 'c' || i, 'code-' || i || '-' || n, 'customer-' || n FROM generate_series(1, 20) i, generate_series(1, 1000) n`)
	exec(t, p, `INSERT INTO scrip_tables.redemption_row (n, redeemed_at, sequence, line, campaign, code, customer_id, order_id)
		SELECT n, 'epoch', n, 1, 'c' || i, '', '', 'order-' || i || '-' || n FROM generate_series(1, 20) i, generate_series(1, 1000) n`)
	exec(t, p, "ANALYZE scrip_1.coupon_claim, scrip_1.campaign, scrip_1.redemption_row")
	for where, index := range map[string]string{
		"coupon WHERE (campaign, n) IN (SELECT campaign, n FROM scrip.redemption WHERE order_id = 'order-7-7')": "redemption_row_order",
		"coupon WHERE code = 'code-7-7'":                              "coupon_claim_0_code",
		"coupon WHERE customer_id = 'customer-7'":                     "coupon_claim_0_customer",
		"coupon WHERE campaign = 'c7' AND n = 7":                      "coupon_claim_0_key",
		"coupon WHERE campaign = 'c7' AND n > 990 ORDER BY n LIMIT 5": "coupon_claim_0_key",
		"redemption WHERE order_id = 'order-7-7'":                     "redemption_row_order",
	} {
		rows, err := p.Query(t.Context(), "EXPLAIN (COSTS off) SELECT * FROM scrip."+where)
		streamtest.Must(t, err)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		streamtest.Must(t, err)
		text := strings.Join(plan, "\n")
		if !strings.Contains(text, index) || regexp.MustCompile(`Seq Scan on (coupon_claim|redemption_row)`).MatchString(text) {
			t.Errorf("scrip.%s does not use %s:\n%s", where, index, text)
		}
	}
}

func TestDigestSeesContentOnly(t *testing.T) {
	p := pool(t)
	ensured(t, p)
	digest := func() string { return projtest.Digest(t, p) }
	insert := func(reasons ...string) {
		for _, r := range reasons {
			exec(t, p, "INSERT INTO scrip_tables.refusal_stats VALUES ('2026-01-01Z', 1, 0, 'c', '"+r+"')")
		}
	}
	empty := digest()
	insert("a", "b")
	ab := digest()
	exec(t, p, "TRUNCATE scrip_1.refusal_stats")
	if digest() != empty {
		t.Error("an emptied table has another digest than an empty one")
	}
	insert("b", "a")
	if digest() != ab || ab == empty {
		t.Error("the digest depends on the order of rows, or does not see them")
	}
	exec(t, p, "INSERT INTO scrip_tables.checkpoint VALUES ('tables', 0, 5, now(), 'log', 'd')")
	exec(t, p, "INSERT INTO scrip_1.expiry_own (due_at, live, redeemed, lane, processed_at, campaign) VALUES ('epoch', 1, 0, 0, 'epoch', 'c')")
	if got := query(t, p, "SELECT concat_ws(' ', lane, behind, behind_seconds) FROM scrip.lag"); len(got) != 1 || got[0] != "0" {
		t.Errorf("how late the lane is: %q", got)
	}
	if digest() != ab {
		t.Error("checkpoint or processed tasks are part of the digest")
	}
	exec(t, p, "INSERT INTO scrip_1.expiry_own (due_at, live, redeemed, lane, campaign) VALUES ('2026-01-01Z', 1, 0, 0, 'c')")
	pending := digest()
	if pending == ab {
		t.Error("pending tasks are not part of the digest")
	}
	exec(t, p, "ALTER ROLE CURRENT_USER SET timezone = 'Asia/Tokyo'")
	defer exec(t, p, "ALTER ROLE CURRENT_USER RESET timezone")
	p.Reset()
	if digest() != pending {
		t.Error("the digest depends on the session's time zone")
	}
}
