package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// fillSQL makes the tables anew: one row per coupon for SKIP LOCKED, one per campaign and one per claim for the counter.
// Indexes and statistics come after the rows.
var fillSQL = []string{
	`DROP TABLE IF EXISTS coupon, counter, claim`,
	`CREATE TABLE coupon (campaign int NOT NULL, n int NOT NULL, code text NOT NULL, customer_id text, order_id text, claimed_at timestamptz)`,
	`CREATE TABLE counter (campaign int PRIMARY KEY, codes int NOT NULL, given int NOT NULL DEFAULT 0) WITH (fillfactor = 10)`,
	`CREATE TABLE claim (campaign int, customer_id text, n int NOT NULL, claimed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (campaign, customer_id))`,
}

var indexSQL = []string{
	`ALTER TABLE coupon ADD PRIMARY KEY (campaign, n)`,
	`CREATE INDEX coupon_free ON coupon (campaign, n) WHERE customer_id IS NULL`,
	`CREATE UNIQUE INDEX coupon_holder ON coupon (campaign, customer_id) WHERE customer_id IS NOT NULL`,
}

// byCodeSQL is needed by those who redeem.
const byCodeSQL = `CREATE UNIQUE INDEX coupon_code ON coupon (code)`

// fill makes the tables for a plan: coupons or counters.
func (s *postgresServer) fill(ctx context.Context, p *plan, counters bool) error {
	steps := fillSQL
	if err := s.execute(ctx, steps); err != nil {
		return err
	}
	if counters {
		rows := pgx.CopyFromSlice(len(p.codes), func(c int) ([]any, error) { return []any{c, p.codes[c]}, nil })
		if _, err := s.db.CopyFrom(ctx, pgx.Identifier{"counter"}, []string{"campaign", "codes"}, rows); err != nil {
			return fmt.Errorf("filling PostgreSQL: %w", err)
		}
		return s.execute(ctx, []string{`VACUUM ANALYZE counter`})
	}
	c, n := 0, -1
	rows := pgx.CopyFromFunc(func() ([]any, error) {
		if n++; n == p.codes[c] {
			c, n = c+1, 0
		}
		if c == len(p.codes) {
			return nil, nil
		}
		return []any{c, n, code(c, n)}, nil
	})
	if _, err := s.db.CopyFrom(ctx, pgx.Identifier{"coupon"}, []string{"campaign", "n", "code"}, rows); err != nil {
		return fmt.Errorf("filling PostgreSQL: %w", err)
	}
	steps = indexSQL
	if p.redeem {
		steps = append(steps[:len(steps):len(steps)], byCodeSQL)
	}
	if err := s.execute(ctx, append(steps[:len(steps):len(steps)], `VACUUM ANALYZE coupon`)); err != nil {
		return err
	}
	return s.checkpoint(ctx)
}

// checkpoint writes what was loaded to disk, so that no run pays for it. It needs the superuser.
func (s *postgresServer) checkpoint(ctx context.Context) error {
	url := s.cluster.AdminURL()
	if url == "" {
		return errors.New("CHECKPOINT: the cluster has no socket for its superuser; use a shorter directory (TMPDIR)")
	}
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("CHECKPOINT: %w", err)
	}
	defer db.Close(context.WithoutCancel(ctx))
	if _, err := db.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("CHECKPOINT: %w", err)
	}
	return nil
}

func (s *postgresServer) execute(ctx context.Context, statements []string) error {
	for _, sql := range statements {
		if _, err := s.db.Exec(ctx, sql); err != nil {
			first, _, _ := strings.Cut(sql, "(")
			return fmt.Errorf("%s: %w", first, err)
		}
	}
	return nil
}
