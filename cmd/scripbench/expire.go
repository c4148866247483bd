package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// expirers are the systems that expire coupons, scrip first.
var expirers = []recipe{
	{name: report.Subject, about: "the campaign's end: one event, one row; until the read tables show it", server: onScrip, fill: expireScrip},
	{name: "pg-set", about: "one UPDATE of all rows", server: onPostgres, fill: expirePostgres},
	{name: "redis-zset", about: "sorted set of due instants; Lua takes out 2,000 and marks each, without a pause", server: onRedis, fill: expireRedis},
}

// watched is how many coupons are watched in the read tables.
const watched = 100

func expireCommand() *cobra.Command {
	return dueCommand(&cobra.Command{
		Use: "expire", Short: "Measure how long it takes until readers see that coupons that expire at one instant are expired",
		Long: `Let --n claimed coupons of one campaign expire at one instant, and measure how long after it each system shows every one
of them as expired:

` + lines(expirers, recipe.String) + `

A coupon that shows as expired before the instant ends the program with an error. Every coupon is checked afterwards, in every
system. Systems take turns, each with the machine to itself; medians of --runs are compared, at equal durability only.`,
		Example: `  scripbench expire --n 1000000
  scripbench expire --n 100000 --runs 1 --systems scrip,pg-set,redis-zset -o json`,
	}, "coupons of one campaign expire at one instant; until a reader sees all of them expired", "coupons", 10_000_000, expirers)
}

// expireScrip sets the end of a campaign of claimed coupons to an instant. Its work is done when the read tables show it: the
// campaign, its expiry task, and the first coupons.
func expireScrip(ctx context.Context, o options, b *bench) (d dueWork, err error) {
	s, p := b.scrip, newPlan(workload{name: "expire", unit: "claims", style: bulk, campaigns: 1}, "expire", o.n, 0)
	if _, err := o.claim(ctx, b, p); err != nil {
		return d, fmt.Errorf("claiming: %w", err)
	}
	d.at, err = aimed(time.Second, func(at time.Time, _ bool) error {
		patch := wire.Patch{Settings: wire.Settings{ExpiresAt: wire.At(at)}}
		patch.Set("expires_at")
		err := s.operate(ctx, p.names, func(int) wire.Command { return wire.Command{Type: wire.UpdateCampaign, Patch: patch} })
		if err != nil {
			return err
		}
		return s.settle(ctx)
	})
	d.work = func(ctx context.Context, m *report.Run) error { return s.showsExpired(ctx, p, d.at, m) }
	d.judge = func(ctx context.Context, _ *report.Run) error {
		var expired, all int
		const sql = `SELECT count(*) FILTER (WHERE status = 'expired'), count(*) FROM scrip.coupon WHERE campaign = $1`
		err := s.db.QueryRow(ctx, sql, p.names[0]).Scan(&expired, &all)
		if err == nil && (all != o.n || expired != o.n) {
			err = fmt.Errorf("scrip.coupon has %d rows, %d expired; there were %d coupons", all, expired, o.n)
		}
		return err
	}
	return d, err
}

// $1 = campaign   $2 = its end   $3 = how many coupons are watched
const readSQL = `
SELECT c.claimed, c.expired, coalesce(t.state, 'missing'), coalesce(t.pending, -1), coalesce(t.expired, -1),
       (SELECT count(*) FROM scrip.coupon k WHERE k.campaign = $1 AND k.n <= $3 AND k.status = 'expired')
FROM scrip.campaign c LEFT JOIN scrip.expiry_task t ON t.campaign = c.campaign AND t.due_at = $2
WHERE c.campaign = $1`

// showsExpired polls the read tables until they show the one campaign of a plan as expired at its end. Before the end none
// of its coupons may show so.
func (s *scripServer) showsExpired(ctx context.Context, p *plan, end time.Time, m *report.Run) error {
	ctx, cancel := context.WithDeadline(ctx, end.Add(settleWithin))
	defer cancel()
	return process.Poll(ctx, nil, pollEvery, func() error {
		var claimed, expired, taskPending, taskExpired, seen int
		var state string
		err := s.db.QueryRow(ctx, readSQL, p.names[0], end, watched).Scan(&claimed, &expired, &state, &taskPending, &taskExpired, &seen)
		if err != nil {
			return fmt.Errorf("reading the read tables: %w", err)
		}
		m.Seconds = time.Since(end).Seconds()
		m.First = m.Seconds
		switch {
		case m.Seconds < 0 && (expired > 0 || seen > 0 || taskExpired > 0):
			return fmt.Errorf("%d coupons show as expired %f s before their end", max(expired, seen, taskExpired), -m.Seconds)
		case claimed == p.n && expired == p.n && state == "processed" && taskPending == 0 && taskExpired == p.n && seen == min(watched, p.n):
			return nil
		}
		return fmt.Errorf("%w: the read tables have %d claimed, %d expired, task %s with %d, %d, and %d of the first %d expired",
			process.ErrWaiting, claimed, expired, state, taskPending, taskExpired, seen, watched)
	})
}
