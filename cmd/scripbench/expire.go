package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// expirers are the systems that expire coupons, scrip first and the limit last.
var expirers = []dueRecipe{
	{
		recipe: recipe{name: subject, says: "the campaign's end: one event, one row; until the read tables show it", server: func(s *stand) server { return s.scrip }},
		run:    expireScrip,
	},
	{
		recipe: recipe{name: "pg-set", says: "one UPDATE of all rows", server: func(s *stand) server { return s.postgres }},
		run:    pgSet.run,
	},
	{
		recipe: recipe{name: "pg-batch-2000", says: "UPDATE of 2,000 rows by key in a transaction, without a pause, two at once", server: func(s *stand) server { return s.postgres }},
		run:    pgBatches.run,
	},
	{
		recipe: recipe{name: "pg-2000-a-minute", says: "the same, once a minute: watched for one, extrapolated", server: func(s *stand) server { return s.postgres }},
		run:    pgScheduled.run, once: true, most: 100_000,
	},
	{
		recipe: recipe{name: "redis-zset", says: "sorted set of due instants; Lua takes out 2,000 and marks each, without a pause", server: func(s *stand) server { return s.redis }},
		run:    expireRedis,
	},
	{
		recipe: recipe{name: "limit", says: "bare JetStream publish of as many bytes as scrip's log grew by", server: func(s *stand) server { return s.limit }},
		run:    publishGrown,
	},
}

// leastExpired is how many coupons there must be: some are redeemed and some are watched.
const leastExpired = 10

func expireCommand() *cobra.Command {
	var f flags
	var only []string
	cmd := &cobra.Command{
		Use: "expire", Short: "Measure how long it takes until coupons that expire at one instant are seen to be expired", Args: cobra.NoArgs,
		Long: `Have --n claimed coupons of one campaign expire at one instant, and measure how long after it each system shows every one
of them as expired:

` + dueSays(expirers) + `

Of scrip it is also measured when the first redeem was refused, when the event was on the log, and by how much the log
grew; a redeem handed in at or after the instant that succeeds, and a coupon that shows as expired before it, end the
program with an error. Every coupon is looked at afterwards, in every system. Systems take turns, each with the machine to
itself; medians of --runs are compared, at equal durability only.

The job of 2,000 a minute is watched for a minute with at most 100,000 coupons, and what it would take for all is said to
be extrapolated.`,
		Example: `  scripbench expire --n 1000000
  scripbench expire --n 100000 --runs 1 --systems scrip,pg-set,redis-zset -o json`,
	}
	f.add(cmd.Flags(), string(always))
	f.callers, f.limit = 1, settleWithin
	cmd.Flags().Lookup("n").Usage = "coupons; 0 = 10,000,000"
	cmd.Flags().StringSliceVar(&only, "systems", nil, "some of the systems, with commas between; absent = all")
	cmd.Flags().IntVar(&f.runs, "runs", 3, "runs of each system")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := f.readyForOne(cmd, "expiry is")
		if err != nil {
			return err
		}
		list, err := dueNamed(expirers, only)
		if err != nil {
			return err
		}
		if f.n == 0 {
			f.n = 10_000_000
		}
		if f.n < leastExpired {
			return usageError{fmt.Errorf("--n must be at least %d", leastExpired)}
		}
		report := newReport(f.base)
		report.Due = newExpiry()
		if err := f.due(cmd.Context(), d, report.Due, dueJob{n: f.n, campaigns: 1, period: time.Minute}, list); err != nil {
			return err
		}
		return f.show(cmd, report, func(w io.Writer) error { return dueText(w, *report.Due) })
	}
	return cmd
}

func newExpiry() *Due {
	return &Due{Job: "expire", Says: "coupons of one campaign expire at one instant; until a reader sees all of them expired", Unit: "coupons"}
}

// dueSays lists systems for the help text.
func dueSays(list []dueRecipe) string {
	var lines []string
	for _, r := range list {
		lines = append(lines, fmt.Sprintf("  %-17s %s", r.name, r.says))
	}
	return strings.Join(lines, "\n")
}
