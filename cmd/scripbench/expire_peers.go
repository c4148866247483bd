package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

// expireBatch is how many coupons Redis marks in one script.
const expireBatch = 2000

var expireSetSQL = recipeText("expire_all.sql")

// expirePostgres marks all coupons as expired in one statement.
func expirePostgres(ctx context.Context, o options, b *bench) (d dueWork, err error) {
	s, meant := b.postgres, meantFor()
	if err := s.fillExpirable(ctx, o.n, meant); err != nil {
		return d, err
	}
	c := clockFor(meant)
	d.at = c.at
	d.work = func(ctx context.Context, m *report.Run) error {
		if err := until(ctx, c.at); err != nil {
			return err
		}
		_, err := s.db.Exec(ctx, expireSetSQL, 0, c.now())
		m.Advance(c.at)
		return err
	}
	d.judge = func(ctx context.Context, m *report.Run) error {
		var expired, all int
		err := s.db.QueryRow(ctx, `SELECT count(*) FILTER (WHERE status = 'expired'), count(*) FROM expirable`).Scan(&expired, &all)
		if err == nil && (expired != o.n || all != o.n) {
			err = fmt.Errorf("%d of %d coupons are expired, there were %d", expired, all, o.n)
		}
		return err
	}
	return d, nil
}

// fillExpirable makes n claimed coupons that expire at an instant. Status is in no index, and pages are half
// full, so that marking a coupon changes its page only (a HOT update). Plans are as PostgreSQL makes them by default.
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
		`SET enable_seqscan = on`,
		`ALTER TABLE expirable ADD PRIMARY KEY (campaign, n)`,
		`CREATE UNIQUE INDEX expirable_code ON expirable (code)`,
		`CREATE INDEX expirable_due ON expirable (campaign, expires_at, n)`)
}

// dueCoupons is the sorted set.
const dueCoupons = "due"

// expireRedis keeps one key for each coupon's status and a sorted set of when they are due. A loop takes out what is due
// and marks it, in one script, so that a reader never sees one without the other.
func expireRedis(ctx context.Context, o options, b *bench) (d dueWork, err error) {
	r, script, meant := b.redis, script("expire.lua"), meantFor()
	score := float64(meant.Unix())
	err = r.fill(ctx, o.n, redisFill, func(pipe redis.Pipeliner, from, to int) {
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
	c := clockFor(meant)
	d.at = c.at
	d.work = func(ctx context.Context, m *report.Run) error {
		if err := until(ctx, c.at); err != nil {
			return err
		}
		for done := 0; done < o.n; {
			marked, err := script.Run(ctx, r.rdb, []string{dueCoupons}, c.seconds(), expireBatch).Int()
			if err != nil {
				return err
			}
			if marked == 0 {
				return fmt.Errorf("nothing more is due, %d of %d coupons were marked", done, o.n)
			}
			done += marked
			m.Advance(c.at)
		}
		return nil
	}
	d.judge = func(ctx context.Context, _ *report.Run) error { return r.allExpired(ctx, o.n) }
	return d, err
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
