package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// expirers are the systems that expire coupons, scrip first and the limit last.
var expirers = []dueRecipe{
	{recipe: recipe{name: subject, about: "the campaign's end: one event, one row; until the read tables show it", server: onScrip}, run: expireScrip},
	{recipe: recipe{name: "pg-set", about: "one UPDATE of all rows", server: onPostgres}, run: pgSet.run},
	{recipe: recipe{name: "pg-batch-2000", about: "UPDATE of 2,000 rows by key in a transaction, without a pause, two at once", server: onPostgres}, run: pgBatches.run},
	{recipe: recipe{name: "pg-2000-a-minute", about: "the same, once a minute: watched for one, extrapolated", server: onPostgres}, run: pgScheduled.run, once: true, most: 100_000},
	{recipe: recipe{name: "redis-zset", about: "sorted set of due instants; Lua takes out 2,000 and marks each, without a pause", server: onRedis}, run: expireRedis},
	{recipe: recipe{name: "limit", about: "bare JetStream publish of as many bytes as scrip's log grew by", server: onLimit}, run: publishGrown},
}

// leastExpired is how many coupons there must be: some are redeemed and some are watched.
const leastExpired = 10

func expireCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: "expire", Short: "Measure how long it takes until readers see that coupons that expire at one instant are expired",
		Long: `Let --n claimed coupons of one campaign expire at one instant, and measure how long after it each system shows every one
of them as expired:

` + dueList(expirers) + `

Of scrip these are measured, too: when the first redeem was refused, when the event was on the log, and how much the log
grew. A redeem that was sent at or after the instant and succeeds, and a coupon that shows as expired before it, end the
program with an error. Every coupon is checked afterwards, in every system. Systems take turns, each with the machine to
itself; medians of --runs are compared, at equal durability only.

The job of 2,000 a minute is watched for a minute with at most 100,000 coupons, and its time for all is extrapolated.`,
		Example: `  scripbench expire --n 1000000
  scripbench expire --n 100000 --runs 1 --systems scrip,pg-set,redis-zset -o json`,
	}
	f.addSystems(cmd)
	f.addRuns(cmd)
	return f.command(cmd, "coupons", 10_000_000, func(ctx context.Context, d durability, r *Report) (func(io.Writer) error, error) {
		if f.n < leastExpired {
			return nil, usageError{fmt.Errorf("--n must be at least %d", leastExpired)}
		}
		return f.dueCommand(ctx, d, r, newExpiry(), dueJob{n: f.n, campaigns: 1, period: time.Minute}, expirers)
	})
}

// dueCommand runs the recipes that --systems names and returns the text of the result.
func (f *flags) dueCommand(ctx context.Context, d durability, r *Report, due *Due, j dueJob, all []dueRecipe) (func(io.Writer) error, error) {
	list, err := dueNamed(all, f.systems)
	if err != nil {
		return nil, err
	}
	r.Due = due
	return func(w io.Writer) error { return dueText(w, *due) }, f.due(ctx, d, due, j, list)
}

func newExpiry() *Due {
	return &Due{Job: "expire", About: "coupons of one campaign expire at one instant; until a reader sees all of them expired", Unit: "coupons"}
}

// dueList lists systems for the help text.
func dueList(list []dueRecipe) string {
	return strings.Join(each(list, func(r dueRecipe) string { return fmt.Sprintf("  %-17s %s", r.name, r.about) }), "\n")
}
