package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// reminders are the systems that remind people, scrip first and the limit last.
var reminders = []dueRecipe{
	{
		recipe: recipe{name: subject, says: "one event fires all; fan-out to a stream, 500 a message; a bare consumer", server: func(s *stand) server { return s.scrip }},
		run:    remindScrip,
	},
	{
		recipe: recipe{name: "redis-poll", says: "sorted sets by customer, each polled each second: 2,000 by ZRANGE BYSCORE, ZREM", server: func(s *stand) server { return s.redis }},
		run:    redisReminders{poll: true}.run,
	},
	{
		recipe: recipe{name: "redis-pop", says: "the same sets; Lua takes out 2,000 at once, without a pause", server: func(s *stand) server { return s.redis }},
		run:    redisReminders{}.run,
	},
	{
		recipe: recipe{name: "asynq", says: "a task for each reminder, ProcessAt", server: func(s *stand) server { return s.redis }},
		run:    asynqReminders{per: 1}.run, most: 200_000,
	},
	{
		recipe: recipe{name: "asynq-500", says: "a task for each 500 customers, ProcessAt", server: func(s *stand) server { return s.redis }},
		run:    asynqReminders{per: limitLines}.run,
	},
	{
		recipe: recipe{name: "river", says: "a job for each reminder, ScheduledAt", server: func(s *stand) server { return s.postgres }},
		run:    riverReminders{per: 1}.run, most: 100_000,
	},
	{
		recipe: recipe{name: "river-500", says: "a job for each 500 customers, ScheduledAt", server: func(s *stand) server { return s.postgres }},
		run:    riverReminders{per: limitLines}.run,
	},
	{
		recipe: recipe{name: "limit", says: "bare JetStream publish of the same bytes in as many messages", server: func(s *stand) server { return s.limit }},
		run:    publishGrown,
	},
}

func remindCommand() *cobra.Command {
	var f flags
	var only []string
	var j dueJob
	cmd := &cobra.Command{
		Use: "remind", Short: "Measure how long it takes until all whose reminder is due at one instant are reminded", Args: cobra.NoArgs,
		Long: `Have --n customers want to be reminded at one instant, and measure when each has reached a worker that does nothing but
tick the customer off:

` + dueSays(reminders) + `

Each customer must be reached exactly once and none before the instant, or there is no number. Of scrip it is also
measured when the last event and the last line were on the log, and with --claims what claims of another campaign, at an
even pace, wait before the instant and meanwhile. Systems take turns, each with the machine to itself; medians of --runs
are compared, at equal durability only. asynq is given at most 200,000 tasks and river 100,000 jobs, one for each
reminder: their rates are compared.`,
		Example: `  scripbench remind --n 100000 --runs 1
  scripbench remind --campaigns 100 --claims 20000 --systems scrip,limit`,
	}
	f.add(cmd.Flags(), string(always))
	f.callers, f.limit = 1, settleWithin
	cmd.Flags().Lookup("n").Usage = "reminders; 0 = 1,000,000"
	cmd.Flags().StringSliceVar(&only, "systems", nil, "some of the systems, with commas between; absent = all")
	cmd.Flags().IntVar(&f.runs, "runs", 3, "runs of each system")
	cmd.Flags().IntVar(&j.campaigns, "campaigns", 1, "campaigns that the reminders are spread over")
	cmd.Flags().IntVar(&j.queues, "queues", 10, "sorted sets of Redis, each with a poller of its own")
	cmd.Flags().Float64Var(&j.claims, "claims", 0, "claims a second of another campaign, beside scrip's reminders")
	cmd.Flags().BoolVar(&j.unread, "unread", false, "read scrip's reminder streams only when all is on them, and tell when it was stored: what the log takes, without readers at the same disk and cores")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := f.readyForOne(cmd, "reminders are")
		if err != nil {
			return err
		}
		list, err := dueNamed(reminders, only)
		if err != nil {
			return err
		}
		if f.n == 0 {
			f.n = 1_000_000
		}
		j.n = f.n
		switch {
		case j.campaigns < 1 || j.campaigns > j.n:
			return usageError{fmt.Errorf("--campaigns must be at least 1 and at most --n (%d)", j.n)}
		case j.queues < 1 || j.queues > 1000:
			return usageError{errors.New("--queues must be at least 1 and at most 1000")}
		case j.claims < 0 || j.claims > 1e6:
			return usageError{errors.New("--claims must be at least 0 and at most 1000000 a second")}
		}
		report := newReport(f.base)
		report.Due = newReminding()
		if j.unread {
			report.Due.Says += "; of scrip: until the last is on the reminder stream, which is read afterwards"
		}
		if err := f.due(cmd.Context(), d, report.Due, j, list); err != nil {
			return err
		}
		return f.show(cmd, report, func(w io.Writer) error { return dueText(w, *report.Due) })
	}
	return cmd
}

func newReminding() *Due {
	return &Due{Job: "remind", Says: "customers are to be reminded at one instant; until the last has reached a worker", Unit: "reminders"}
}
