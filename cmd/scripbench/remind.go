package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// reminders are the systems that remind people, scrip first and the limit last.
var reminders = []dueRecipe{
	{recipe: recipe{name: subject, about: "one event fires all; fan-out to a stream, 500 a message; a bare consumer", server: onScrip}, run: remindScrip},
	{recipe: recipe{name: "redis-poll", about: "sorted sets by customer, each polled each second: 2,000 by ZRANGE BYSCORE, ZREM", server: onRedis}, run: redisReminders{poll: true}.run},
	{recipe: recipe{name: "redis-pop", about: "the same sets; Lua takes out 2,000 at once, without a pause", server: onRedis}, run: redisReminders{}.run},
	{recipe: recipe{name: "asynq", about: "a task for each reminder, ProcessAt", server: onRedis}, run: asynqReminders{per: 1}.run, most: 200_000},
	{recipe: recipe{name: "asynq-500", about: "a task for each 500 customers, ProcessAt", server: onRedis}, run: asynqReminders{per: limitLines}.run},
	{recipe: recipe{name: "river", about: "a job for each reminder, ScheduledAt", server: onPostgres}, run: riverReminders{per: 1}.run, most: 100_000},
	{recipe: recipe{name: "river-500", about: "a job for each 500 customers, ScheduledAt", server: onPostgres}, run: riverReminders{per: limitLines}.run},
	{recipe: recipe{name: "limit", about: "bare JetStream publish of the same bytes in as many messages", server: onLimit}, run: publishGrown},
}

func remindCommand() *cobra.Command {
	var f flags
	var j dueJob
	cmd := &cobra.Command{
		Use: "remind", Short: "Measure how long it takes until all customers whose reminder is due at one instant are reminded",
		Long: `Set reminders of --n customers for one instant, and measure when each has reached a worker that only ticks the customer
off:

` + dueList(reminders) + `

Each customer must be reached exactly once and none before the instant, or there is no number. Of scrip these are measured,
too: when the last event and the last line were on the log, and with --claims the latency of claims of another campaign, at
an even pace, before the instant and after it. Systems take turns, each with the machine to itself; medians of --runs are
compared, at equal durability only. asynq gets at most 200,000 tasks and river 100,000 jobs, one for each reminder: their
rates are compared.`,
		Example: `  scripbench remind --n 100000 --runs 1
  scripbench remind --campaigns 100 --claims 20000 --systems scrip,limit`,
	}
	f.addSystems(cmd)
	f.addRuns(cmd)
	cmd.Flags().IntVar(&j.campaigns, "campaigns", 1, "campaigns that the reminders are spread over")
	cmd.Flags().IntVar(&j.queues, "queues", 10, "sorted sets of Redis, each with a poller of its own")
	cmd.Flags().Float64Var(&j.claims, "claims", 0, "claims a second of another campaign, beside scrip's reminders")
	cmd.Flags().BoolVar(&j.unread, "unread", false, "read scrip's reminder streams only when all is on them, and report when it was stored: the time of the log without readers on the same disk and cores")
	return f.command(cmd, "reminders", 1_000_000, func(ctx context.Context, d durability, r *Report) (func(io.Writer) error, error) {
		j.n = f.n
		switch {
		case j.campaigns < 1 || j.campaigns > j.n:
			return nil, usageError{fmt.Errorf("--campaigns must be at least 1 and at most --n (%d)", j.n)}
		case j.queues < 1 || j.queues > 1000:
			return nil, usageError{errors.New("--queues must be at least 1 and at most 1000")}
		case j.claims < 0 || j.claims > 1e6:
			return nil, usageError{errors.New("--claims must be at least 0 and at most 1000000 a second")}
		}
		due := newReminding()
		if j.unread {
			due.About += "; of scrip: until the last is on the reminder stream, which is read afterwards"
		}
		return f.dueCommand(ctx, d, r, due, j, reminders)
	})
}

func newReminding() *Due {
	return &Due{Job: "remind", About: "customers are to be reminded at one instant; until the last has reached a worker", Unit: "reminders"}
}
