package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// expirers are the systems that expire coupons, scrip first.
var expirers = []dueRecipe{
	{recipe{name: report.Subject, about: "the campaign's end: one event, one row; until the read tables show it", server: onScrip}, expireScrip},
	{recipe{name: "pg-set", about: "one UPDATE of all rows", server: onPostgres}, expirePostgres},
	{recipe{name: "redis-zset", about: "sorted set of due instants; Lua takes out 2,000 and marks each, without a pause", server: onRedis}, expireRedis},
}

const (
	// leastExpired is how many coupons there must be: some are watched in the read tables.
	leastExpired = 10
	watched      = 100
)

func expireCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: "expire", Short: "Measure how long it takes until readers see that coupons that expire at one instant are expired",
		Long: `Let --n claimed coupons of one campaign expire at one instant, and measure how long after it each system shows every one
of them as expired:

` + lines(expirers, dueRecipe.String) + `

A coupon that shows as expired before the instant ends the program with an error. Every coupon is checked afterwards, in every
system. Systems take turns, each with the machine to itself; medians of --runs are compared, at equal durability only.`,
		Example: `  scripbench expire --n 1000000
  scripbench expire --n 100000 --runs 1 --systems scrip,pg-set,redis-zset -o json`,
	}
	return f.dueCommand(cmd, expiring, 10_000_000, expirers, func(*report.Due) (j dueJob, err error) {
		if f.n < leastExpired {
			err = cli.Usagef("--n must be at least %d", leastExpired)
		}
		return dueJob{campaigns: 1}, err
	})
}

var expiring = report.Due{Job: "expire", About: "coupons of one campaign expire at one instant; until a reader sees all of them expired", Unit: "coupons"}

// expireScrip sets the end of a campaign of claimed coupons to an instant. Its work is done when the read tables show it: the
// campaign, its expiry task, and a sample of the coupons.
func expireScrip(ctx context.Context, o options, b *bench, j dueJob) (d dueWork, err error) {
	s, p := b.scrip, newPlan(workload{name: "expire", unit: "claims", style: bulk, campaigns: 1}, "expire", j.n, o.seed)
	if _, err := o.window(ctx, b, p); err != nil {
		return d, fmt.Errorf("claiming: %w", err)
	}
	samples, err := s.coupons(ctx, p, j.n/2, min(watched, j.n/2))
	if err != nil {
		return d, err
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
	x := expiry{s: s, campaign: p.names[0], n: j.n, at: d.at}
	d.work = func(ctx context.Context, m *report.DueRun) (err error) {
		m.All, err = x.readTables(ctx, samples)
		m.First = m.All
		return err
	}
	d.judge = func(ctx context.Context, _ *report.DueRun) error { return x.count(ctx) }
	return d, err
}

// expiry observes one campaign's end.
type expiry struct {
	s        *scripServer
	campaign string
	n        int
	at       time.Time
}

// after is an instant as the number of seconds after the end.
func (x *expiry) after(t time.Time) float64 { return t.Sub(x.at).Seconds() }

// $1 = campaign   $2 = its end   $3 = numbers of coupons that are not redeemed
const readSQL = `
SELECT c.claimed, c.expired, coalesce(t.state, 'missing'), coalesce(t.pending, -1), coalesce(t.expired, -1),
       (SELECT count(*) FROM scrip.coupon k WHERE k.campaign = $1 AND k.n = ANY($3) AND k.status = 'expired')
FROM scrip.campaign c LEFT JOIN scrip.expiry_task t ON t.campaign = c.campaign AND t.due_at = $2
WHERE c.campaign = $1`

// readTables polls the read tables until they are right and returns when that was seen. Before the end none may show as
// expired.
func (x *expiry) readTables(ctx context.Context, sample []wire.Outcome) (right float64, err error) {
	numbers := report.Each(sample, func(o wire.Outcome) int64 { return int64(o.N) })
	ctx, cancel := context.WithDeadline(ctx, x.at.Add(settleWithin))
	defer cancel()
	err = process.Poll(ctx, nil, pollEvery, func() error {
		var claimed, expired, taskPending, taskExpired, sampled int64
		var state string
		err := x.s.db.QueryRow(ctx, readSQL, x.campaign, x.at, numbers).Scan(&claimed, &expired, &state, &taskPending, &taskExpired, &sampled)
		if err != nil {
			return fmt.Errorf("reading the read tables: %w", err)
		}
		right = x.after(time.Now())
		all := int64(x.n)
		switch {
		case right < 0 && (expired > 0 || sampled > 0 || taskExpired > 0):
			return fmt.Errorf("%d coupons show as expired %f s before their end", max(expired, sampled, taskExpired), -right)
		case claimed == all && expired == all && state == "processed" && taskPending == 0 && taskExpired == all && sampled == int64(len(numbers)):
			return nil
		}
		return fmt.Errorf("%w: the read tables have %d claimed, %d expired, task %s with %d, %d, and %d of %d in a sample expired",
			process.ErrWaiting, claimed, expired, state, taskPending, taskExpired, sampled, len(numbers))
	})
	return right, err
}

// count checks the status of every coupon.
func (x *expiry) count(ctx context.Context) error {
	var expired, all int
	err := x.s.db.QueryRow(ctx, `SELECT count(*) FILTER (WHERE status = 'expired'), count(*) FROM scrip.coupon WHERE campaign = $1`, x.campaign).Scan(&expired, &all)
	if err == nil && (all != x.n || expired != x.n) {
		err = fmt.Errorf("scrip.coupon has %d rows, %d expired; there were %d coupons", all, expired, x.n)
	}
	return err
}
