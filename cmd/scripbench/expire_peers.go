package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

const (
	// expireBatch is how many coupons are marked by one statement.
	expireBatch = 2000
	// pgExpirers mark concurrently, each its own part of the coupons: as many as the machine of the results has cores.
	pgExpirers = 2
)

// pgExpiry marks coupons as expired: workers each mark their part in batches, without a pause. Without batch it marks all
// in one statement. If once, it marks one batch and waits for its next period: its rate is what fits in there.
type pgExpiry struct {
	workers, batch int
	once           bool
}

var expireSetSQL, expireBatchSQL = recipeText("expire_all.sql"), recipeText("expire_batch.sql")

func (x pgExpiry) run(ctx context.Context, o options, b *bench, j dueJob) (m report.DueRun, err error) {
	s, meant := b.postgres, meantFor()
	if err := s.fillExpirable(ctx, j.n, meant); err != nil {
		return m, err
	}
	o.printf("expire: PostgreSQL has %s coupons", report.Num(j.n))
	c, parts := clockFor(meant), make([]report.DueRun, x.workers)
	m, err = measured(ctx, s, c.at, func(ctx context.Context) (m report.DueRun, err error) {
		g, working := errgroup.WithContext(ctx)
		for k := range parts {
			g.Go(func() (err error) {
				parts[k], err = x.work(working, s, c, j.n*k/x.workers, j.n*(k+1)/x.workers)
				return err
			})
		}
		if err = g.Wait(); err == nil && x.once {
			err = process.Until(ctx, c.at.Add(j.period))
		}
		m.All, m.First = time.Since(c.at).Seconds(), parts[0].First
		for _, part := range parts {
			m.Done += part.Done
			m.First = min(m.First, part.First)
		}
		return m, err
	})
	if err != nil {
		return m, err
	}
	var expired, all int
	if err := s.db.QueryRow(ctx, `SELECT count(*) FILTER (WHERE status = 'expired'), count(*) FROM expirable`).Scan(&expired, &all); err != nil {
		return m, err
	}
	if expired != m.Done || all != j.n || !x.once && expired != all {
		return m, fmt.Errorf("%d of %d coupons are expired, marked were %d", expired, all, m.Done)
	}
	return m, nil
}

// work marks the coupons with numbers above from and not above to.
func (x pgExpiry) work(ctx context.Context, s *postgresServer, c clock, from, to int) (m report.DueRun, err error) {
	db, err := s.connect(ctx, x.batch == 0) // in batches the job uses its key
	if err != nil {
		return m, err
	}
	defer db.Close(context.WithoutCancel(ctx))
	if err := process.Until(ctx, c.at); err != nil {
		return m, err
	}
	for more := true; more; {
		marked := 0
		if x.batch == 0 {
			tag, err := db.Exec(ctx, expireSetSQL, 0, c.now())
			if err != nil {
				return m, err
			}
			marked = int(tag.RowsAffected())
		} else if err := db.QueryRow(ctx, expireBatchSQL, 0, c.now(), from, to, x.batch).Scan(&marked, &from); err != nil {
			return m, err
		}
		m.Done += marked
		m.Advance(c.at)
		more = x.batch > 0 && marked == x.batch && !x.once
	}
	return m, nil
}

// fillExpirable makes n claimed coupons that expire at an instant. The job finds due coupons by the index; status is in no
// index, and pages are half full, so that marking a coupon changes its page only (a HOT update).
func (s *postgresServer) fillExpirable(ctx context.Context, n int, at time.Time) error {
	now, i := time.Now(), 0
	return s.load(ctx, `CREATE TABLE expirable (campaign int NOT NULL, n int NOT NULL, code text NOT NULL, customer_id text NOT NULL,
		claimed_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, status text NOT NULL) WITH (fillfactor = 45)`,
		"expirable", "campaign n code customer_id claimed_at expires_at status", func() []any {
			if i == n {
				return nil
			}
			i++
			return []any{0, i, code(0, i), customerID(i), now, at, "claimed"}
		},
		`ALTER TABLE expirable ADD PRIMARY KEY (campaign, n)`,
		`CREATE UNIQUE INDEX expirable_code ON expirable (code)`,
		`CREATE INDEX expirable_due ON expirable (campaign, expires_at, n)`)
}

// dueCoupons is the sorted set.
const dueCoupons = "due"

// expireRedis keeps one key for each coupon's status and a sorted set of when they are due. A loop takes out what is due
// and marks it, in one script, so that a reader never sees one without the other.
func expireRedis(ctx context.Context, o options, b *bench, j dueJob) (m report.DueRun, err error) {
	r, script, meant := b.redis, script("expire.lua"), meantFor()
	score := float64(meant.Unix())
	err = r.fill(ctx, j.n, redisFill, func(pipe redis.Pipeliner, from, to int) {
		if from == 0 {
			pipe.FlushAll(ctx)
		}
		var marks []any
		var members []redis.Z
		for i := from; i < to; i++ {
			text := code(0, i)
			marks = append(marks, "coupon:"+text, "claimed")
			members = append(members, redis.Z{Score: score, Member: text})
		}
		pipe.MSet(ctx, marks...)
		pipe.ZAdd(ctx, dueCoupons, members...)
	})
	if err != nil {
		return m, err
	}
	o.printf("expire: Redis has %s coupons", report.Num(j.n))
	c := clockFor(meant)
	m, err = measured(ctx, r, c.at, func(ctx context.Context) (m report.DueRun, err error) {
		if err := process.Until(ctx, c.at); err != nil {
			return m, err
		}
		for m.Done < j.n {
			marked, err := script.Run(ctx, r.rdb, []string{dueCoupons}, c.seconds(), expireBatch).Int()
			if err != nil {
				return m, err
			}
			if marked == 0 {
				return m, fmt.Errorf("nothing more is due, %d of %d coupons were marked", m.Done, j.n)
			}
			m.Done += marked
			m.Advance(c.at)
		}
		return m, nil
	})
	if err != nil {
		return m, err
	}
	return m, r.allExpired(ctx, j.n)
}

// allExpired checks every coupon.
func (r *redisServer) allExpired(ctx context.Context, n int) error {
	left, err := r.rdb.ZCard(ctx, dueCoupons).Result()
	if err != nil {
		return err
	}
	expired := 0
	for from := 0; from < n; from += redisFill {
		var keys []string
		for i := from; i < min(from+redisFill, n); i++ {
			keys = append(keys, "coupon:"+code(0, i))
		}
		marks, err := r.rdb.MGet(ctx, keys...).Result()
		if err != nil {
			return err
		}
		for _, mark := range marks {
			if mark == "expired" {
				expired++
			}
		}
	}
	if left != 0 || expired != n {
		return fmt.Errorf("%d of %d coupons are expired and %d are still due", expired, n, left)
	}
	return nil
}
