package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const (
	// expireBatch is how many coupons are marked by one statement.
	expireBatch = 2000
	// pgExpirers mark concurrently, each its own part of the coupons: as many as the machine of the results has cores.
	pgExpirers = 2
)

// expirableSQL makes a new table. The job finds due coupons by the index; status is in no index, and pages are half full,
// so that marking a coupon changes its page only (a HOT update).
var expirableSQL = []string{
	`DROP TABLE IF EXISTS expirable`,
	`CREATE TABLE expirable (campaign int NOT NULL, n int NOT NULL, code text NOT NULL, customer_id text NOT NULL, claimed_at timestamptz NOT NULL,
		expires_at timestamptz NOT NULL, status text NOT NULL) WITH (fillfactor = 45)`,
}

var expirableIndexSQL = []string{
	`ALTER TABLE expirable ADD PRIMARY KEY (campaign, n)`,
	`CREATE UNIQUE INDEX expirable_code ON expirable (code)`,
	`CREATE INDEX expirable_due ON expirable (campaign, expires_at, n)`,
	`VACUUM ANALYZE expirable`,
}

// pgExpiry marks coupons as expired.
type pgExpiry uint8

const (
	pgSet pgExpiry = iota
	pgBatches
	pgScheduled
)

// $1 = campaign   $2 = now
const expireSetSQL = `UPDATE expirable SET status = 'expired' WHERE campaign = $1 AND expires_at <= $2 AND status = 'claimed'`

// $1 = campaign   $2 = now   $3, $4 = numbers of the coupons to mark are above the first and not above the second
// $5 = how many at most
// The job remembers the last number; all up to it are marked.
const expireBatchSQL = `
WITH batch AS (
  SELECT campaign, n FROM expirable WHERE campaign = $1 AND expires_at <= $2 AND n > $3 AND n <= $4 AND status = 'claimed' ORDER BY n LIMIT $5),
marked AS (
  UPDATE expirable e SET status = 'expired' FROM batch b WHERE e.campaign = b.campaign AND e.n = b.n RETURNING e.n)
SELECT count(*), coalesce(max(n), 0) FROM marked`

func (kind pgExpiry) run(ctx context.Context, o options, b *bench, j dueJob) (m DueRun, err error) {
	s := b.postgres
	meant := meantFor()
	if err := s.fillExpirable(ctx, j.n, meant); err != nil {
		return m, err
	}
	o.printf("expire: PostgreSQL has %s coupons", num(j.n))
	marked, c := 0, clockFor(meant)
	m, err = measured(ctx, s, c.at, func(ctx context.Context) (m DueRun, err error) {
		switch kind {
		case pgSet:
			m, err = s.expireSet(ctx, c)
		case pgBatches:
			m, err = s.expireBatches(ctx, j.n, c)
		case pgScheduled:
			m, err = s.expireScheduled(ctx, j, c)
		}
		marked = m.Done
		return m, err
	})
	if err != nil {
		return m, err
	}
	var expired, all int
	if err := s.db.QueryRow(ctx, `SELECT count(*) FILTER (WHERE status = 'expired'), count(*) FROM expirable`).Scan(&expired, &all); err != nil {
		return m, err
	}
	if expired != marked || all != j.n || kind != pgScheduled && expired != all {
		return m, fmt.Errorf("%d of %d coupons are expired, marked were %d", expired, all, marked)
	}
	return m, nil
}

// fillExpirable makes n claimed coupons that expire at an instant.
func (s *postgresServer) fillExpirable(ctx context.Context, n int, at time.Time) error {
	if err := s.execute(ctx, expirableSQL...); err != nil {
		return err
	}
	now, i := time.Now(), 0
	err := s.load(ctx, "expirable", "campaign n code customer_id claimed_at expires_at status", func() []any {
		if i == n {
			return nil
		}
		i++
		return []any{0, i, code(0, i), customerID(i), now, at, "claimed"}
	})
	if err != nil {
		return err
	}
	if err := s.execute(ctx, expirableIndexSQL...); err != nil {
		return err
	}
	return s.checkpoint(ctx)
}

// another is a connection besides s.db, with plans as PostgreSQL makes them by default: the recipe decides what to scan.
func (s *postgresServer) another(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(s.url)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["enable_seqscan"] = "on"
	return pgx.ConnectConfig(ctx, config)
}

// expireSet marks all coupons in one statement.
func (s *postgresServer) expireSet(ctx context.Context, c clock) (m DueRun, err error) {
	db, err := s.another(ctx)
	if err != nil {
		return m, err
	}
	defer db.Close(context.WithoutCancel(ctx))
	if err := until(ctx, c.at); err != nil {
		return m, err
	}
	tag, err := db.Exec(ctx, expireSetSQL, 0, c.now())
	m.Done, m.All = int(tag.RowsAffected()), time.Since(c.at).Seconds()
	m.First = m.All // none is visible before the commit
	return m, err
}

// expireBatches marks 2,000 coupons in each transaction, one after the other, without a pause.
func (s *postgresServer) expireBatches(ctx context.Context, n int, c clock) (m DueRun, err error) {
	done, first := make([]int, pgExpirers), make([]time.Duration, pgExpirers)
	g, ctx := errgroup.WithContext(ctx)
	for k := range pgExpirers {
		g.Go(func() error {
			db, err := pgx.Connect(ctx, s.url) // with scans of the table switched off: the job uses its key
			if err != nil {
				return err
			}
			defer db.Close(context.WithoutCancel(ctx))
			if err := until(ctx, c.at); err != nil {
				return err
			}
			from, to := n*k/pgExpirers, n*(k+1)/pgExpirers
			for {
				marked, last := 0, 0
				if err := db.QueryRow(ctx, expireBatchSQL, 0, c.now(), from, to, expireBatch).Scan(&marked, &last); err != nil {
					return err
				}
				if done[k] == 0 {
					first[k] = time.Since(c.at)
				}
				done[k], from = done[k]+marked, last
				if marked < expireBatch {
					return nil
				}
			}
		})
	}
	err = g.Wait()
	m.All = time.Since(c.at).Seconds()
	m.First = first[0].Seconds()
	for k := range pgExpirers {
		m.Done += done[k]
		m.First = min(m.First, first[k].Seconds())
	}
	return m, err
}

// expireScheduled marks 2,000 coupons and waits for its next period; it is watched for one. Its rate is what fits in there.
func (s *postgresServer) expireScheduled(ctx context.Context, j dueJob, c clock) (m DueRun, err error) {
	if err := until(ctx, c.at); err != nil {
		return m, err
	}
	last := 0
	if err := s.db.QueryRow(ctx, expireBatchSQL, 0, c.now(), 0, j.n, expireBatch).Scan(&m.Done, &last); err != nil {
		return m, err
	}
	m.First = time.Since(c.at).Seconds()
	err = until(ctx, c.at.Add(j.period))
	m.All = time.Since(c.at).Seconds()
	return m, err
}
