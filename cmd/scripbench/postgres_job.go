package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// pgCallers: more connections than this make PostgreSQL slower on few cores; fewer share fewer fsyncs.
	pgCallers = 32
	// pgCounterCallers: the row's lock is held until the commit is on disk; one waits for it while another sends.
	pgCounterCallers = 2
	// pgBatchCallers each have a transaction of pgBatchSize claims in flight.
	pgBatchCallers, pgBatchSize = 4, 256
	uniqueViolation             = "23505"
)

// pgKind is one of the recipes for PostgreSQL.
type pgKind uint8

const (
	pgRow pgKind = iota
	pgBatch
	pgCounter
)

func (kind pgKind) open(ctx context.Context, b *bench, p *plan, callers int) (job, error) {
	s := b.postgres
	if err := s.fill(ctx, p, kind == pgCounter); err != nil {
		return job{}, err
	}
	j := job{callers: min(callers, pgCallers), batch: 1, close: func() {}}
	switch kind {
	case pgBatch:
		j.callers, j.batch = min(callers, pgBatchCallers), pgBatchSize
	case pgCounter:
		j.callers = min(callers, pgCounterCallers)
	}
	if p.style == alone {
		j.callers = 1
	}
	j.inFlight = j.callers * j.batch
	j.caller = func(ctx context.Context, _ int) (caller, error) {
		db, err := pgx.Connect(ctx, s.url)
		if err != nil {
			return nil, err
		}
		c := pgCaller{db: db, p: p, seen: make([]int, len(p.names))}
		return []caller{pgRow: &pgRowCaller{c}, pgBatch: &pgBatchCaller{c}, pgCounter: &pgCounterCaller{c}}[kind], nil
	}
	j.check = func(ctx context.Context, t tally) error { return s.given(ctx, p, t, kind == pgCounter) }
	return j, nil
}

// pgCaller has a connection of its own. It remembers for each campaign up to which number coupons are claimed, so that it
// need not step over the claimed ones again; when nothing is free after that, it searches from the beginning.
type pgCaller struct {
	db   *pgx.Conn
	p    *plan
	seen []int
}

func (c *pgCaller) close() { _ = c.db.Close(context.Background()) }

// answered is the answer of a query that returns at most one row.
func answered(err error) answer {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return answer{verdict: won}
	case errors.Is(err, pgx.ErrNoRows):
		return answer{verdict: refused}
	case errors.As(err, &pg) && pg.Code == uniqueViolation:
		return failure(fmt.Errorf("the customer has a coupon, without a repeated claim: %w", err))
	}
	return failure(err)
}

// pgRowCaller claims one coupon in each transaction.
type pgRowCaller struct{ pgCaller }

// $1 = campaign   $2 = customer   $3 = coupons up to this number are most likely claimed
// No row: all are claimed or just being claimed, or the customer has one.
const pgClaimSQL = `
UPDATE coupon SET customer_id = $2, claimed_at = now()
WHERE ctid = (SELECT ctid FROM coupon WHERE campaign = $1 AND customer_id IS NULL AND n >= $3 ORDER BY n LIMIT 1 FOR UPDATE SKIP LOCKED)
  AND NOT EXISTS (SELECT 1 FROM coupon WHERE campaign = $1 AND customer_id = $2)
RETURNING n, code`

// $1 = code   $2 = order
// Not "IS NOT NULL": the statistics are from before the first claim, and PostgreSQL would read all of coupon_holder.
const pgRedeemSQL = `UPDATE coupon SET order_id = $2 WHERE code = $1 AND coalesce(customer_id, '') <> '' AND order_id IS NULL RETURNING n`

func (c *pgRowCaller) send(ctx context.Context, from, to int, answers []answer) error {
	for i := from; i < to; i++ {
		k := c.p.index(i)
		var n int
		var text string
		err := c.db.QueryRow(ctx, pgClaimSQL, k, c.p.customer(i), c.seen[k]).Scan(&n, &text)
		if errors.Is(err, pgx.ErrNoRows) && c.seen[k] > 0 {
			c.seen[k] = 0
			err = c.db.QueryRow(ctx, pgClaimSQL, k, c.p.customer(i), 0).Scan(&n, &text)
		}
		a := answered(err)
		if a.verdict == won {
			a.code, c.seen[k] = text, n
			if c.p.redeem {
				if err := c.db.QueryRow(ctx, pgRedeemSQL, text, c.p.order(i)).Scan(&n); err != nil {
					a = failure(fmt.Errorf("redeeming: %w", err))
				}
			}
		}
		answers[i] = a
	}
	return nil
}

// pgCounterCaller counts: the lock on the campaign's row is held until the commit is on disk.
type pgCounterCaller struct{ pgCaller }

// $1 = campaign   $2 = customer
const pgCountSQL = `
WITH next AS (
  UPDATE counter SET given = given + 1
  WHERE campaign = $1 AND given < codes AND NOT EXISTS (SELECT 1 FROM claim WHERE campaign = $1 AND customer_id = $2)
  RETURNING given)
INSERT INTO claim (campaign, customer_id, n) SELECT $1, $2, given FROM next RETURNING n`

func (c *pgCounterCaller) send(ctx context.Context, from, to int, answers []answer) error {
	for i := from; i < to; i++ {
		var n int
		a := answered(c.db.QueryRow(ctx, pgCountSQL, c.p.index(i), c.p.customer(i)).Scan(&n))
		if a.verdict == won {
			a.code = code(c.p.index(i), n)
		}
		answers[i] = a
	}
	return nil
}

// given compares the answers with the coupons that are claimed and redeemed in PostgreSQL.
func (s *postgresServer) given(ctx context.Context, p *plan, t tally, counter bool) error {
	sql := `SELECT count(*), count(DISTINCT (campaign, n)), count(DISTINCT customer_id), count(order_id) FROM coupon WHERE customer_id IS NOT NULL`
	if counter {
		sql = `SELECT count(*), count(DISTINCT (campaign, n)), count(DISTINCT customer_id), 0 FROM claim`
	}
	var claims, coupons, customers, redeemed int
	if err := s.db.QueryRow(ctx, sql).Scan(&claims, &coupons, &customers, &redeemed); err != nil {
		return err
	}
	if want := t.redeemed(p); claims != t.won || coupons != t.won || customers != t.won || redeemed != want {
		return fmt.Errorf("PostgreSQL has %d claims of %d coupons by %d customers and %d redeemed, answered were %d and %d",
			claims, coupons, customers, redeemed, t.won, want)
	}
	return nil
}

// fill makes the tables for a plan: one row per coupon for SKIP LOCKED, one per campaign and one per claim for the
// counter. Indexes and statistics come after the rows.
func (s *postgresServer) fill(ctx context.Context, p *plan, counters bool) error {
	err := s.execute(ctx,
		`DROP TABLE IF EXISTS coupon, counter, claim`,
		`CREATE TABLE coupon (campaign int NOT NULL, n int NOT NULL, code text NOT NULL, customer_id text, order_id text, claimed_at timestamptz)`,
		`CREATE TABLE counter (campaign int PRIMARY KEY, codes int NOT NULL, given int NOT NULL DEFAULT 0) WITH (fillfactor = 10)`,
		`CREATE TABLE claim (campaign int, customer_id text, n int NOT NULL, claimed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (campaign, customer_id))`,
	)
	if err != nil {
		return err
	}
	c, n := 0, -1
	if counters {
		err := s.load(ctx, "counter", "campaign codes", func() []any {
			if n++; n == len(p.codes) {
				return nil
			}
			return []any{n, p.codes[n]}
		})
		if err != nil {
			return err
		}
		return s.execute(ctx, `VACUUM ANALYZE counter`)
	}
	err = s.load(ctx, "coupon", "campaign n code", func() []any {
		if n++; n == p.codes[c] {
			c, n = c+1, 0
		}
		if c == len(p.codes) {
			return nil
		}
		return []any{c, n, code(c, n)}
	})
	if err != nil {
		return err
	}
	indexes := []string{
		`ALTER TABLE coupon ADD PRIMARY KEY (campaign, n)`,
		`CREATE INDEX coupon_free ON coupon (campaign, n) WHERE customer_id IS NULL`,
		`CREATE UNIQUE INDEX coupon_holder ON coupon (campaign, customer_id) WHERE customer_id IS NOT NULL`,
	}
	if p.redeem {
		indexes = append(indexes, `CREATE UNIQUE INDEX coupon_code ON coupon (code)`)
	}
	if err := s.execute(ctx, append(indexes, `VACUUM ANALYZE coupon`)...); err != nil {
		return err
	}
	return s.checkpoint(ctx)
}
