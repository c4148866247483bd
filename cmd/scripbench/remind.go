package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// reminders are the systems that remind people, scrip first and the limit last.
var reminders = []dueRecipe{
	{recipe: recipe{name: report.Subject, about: "one event fires all; fan-out to a stream, 500 a message; a bare consumer", server: onScrip}, run: remindScrip},
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

` + lines(reminders, dueRecipe.String) + `

Each customer must be reached exactly once and none before the instant, or there is no number. Of scrip these are measured,
too: when the last event and the last line were on the log, and with --claims the latency of claims of another campaign, at
an even pace, before the instant and after it. Systems take turns, each with the machine to itself; medians of --runs are
compared, at equal durability only. asynq gets at most 200,000 tasks and river 100,000 jobs, one for each reminder: their
rates are compared.`,
		Example: `  scripbench remind --n 100000 --runs 1
  scripbench remind --campaigns 100 --claims 20000 --systems scrip,limit`,
	}
	fs := cmd.Flags()
	f.addSystems(fs)
	f.addRuns(fs)
	fs.IntVar(&j.campaigns, "campaigns", 1, "campaigns that the reminders are spread over")
	fs.IntVar(&j.queues, "queues", 10, "sorted sets of Redis, each with a poller of its own")
	fs.Float64Var(&j.claims, "claims", 0, "claims a second of another campaign, beside scrip's reminders")
	fs.BoolVar(&j.unread, "unread", false, "read scrip's reminder streams only when all is on them, and report when it was stored: the time of the log without readers on the same disk and cores")
	return f.command(cmd, "reminders", 1_000_000, func(ctx context.Context, d report.Durability) (report.Result, error) {
		j.n = f.n
		switch {
		case j.campaigns < 1 || j.campaigns > j.n:
			return nil, cli.Usagef("--campaigns must be at least 1 and at most --n (%d)", j.n)
		case j.queues < 1 || j.queues > 1000:
			return nil, cli.Usagef("--queues must be at least 1 and at most 1000")
		case j.claims < 0 || j.claims > 1e6:
			return nil, cli.Usagef("--claims must be at least 0 and at most 1000000 a second")
		}
		due := newReminding()
		if j.unread {
			due.About += "; of scrip: until the last is on the reminder stream, which is read afterwards"
		}
		return f.dueCommand(ctx, d, due, j, reminders)
	})
}

func newReminding() *report.Due {
	return &report.Due{Job: "remind", About: "customers are to be reminded at one instant; until the last has reached a worker", Unit: "reminders"}
}

// remindScrip subscribes n customers. A customer is reached when a bare consumer of the reminder streams has the line or,
// if they are unread, when the log has stored it.
func remindScrip(ctx context.Context, o options, b *bench, j dueJob) (m report.DueRun, err error) {
	s, u, l := b.scrip, newSubscriptions("remind", j.campaigns), newLedger(j.n)
	l.at, err = aimed(fillingOf(j.n), func(at time.Time, again bool) error {
		if err := u.open(ctx, s, at, again); err != nil {
			return err
		}
		if !again {
			if err := o.subscribe(ctx, s, u, 0, j.n); err != nil {
				return err
			}
		}
		if err := o.known(ctx, s, j.n); err != nil {
			return err
		}
		return s.settle(ctx)
	})
	if err != nil {
		return m, err
	}
	o.printf("remind: %s subscriptions are pending", report.Num(j.n))
	events, err := s.ends(ctx, topology.EvtStream)
	if err != nil {
		return m, err
	}
	lines, err := s.ends(ctx, topology.RmdStream)
	if err != nil {
		return m, err
	}

	seen := report.ScripDue{Rate: j.claims}
	work := func(ctx context.Context) error { return o.published(ctx, s) }
	if !j.unread {
		work = l.wait
		stop, err := s.listen(ctx, lines, l)
		if err != nil {
			return m, err
		}
		defer stop()
	}
	claims := o.claimBeside(ctx, b, j.claims, l.at)
	m, err = measured(ctx, s, l.at, func(ctx context.Context) (m report.DueRun, err error) { return m, work(ctx) })
	if err == nil && j.claims > 0 {
		err = process.Until(ctx, l.at.Add(quiet))
	}
	if err := claims.end(err); err != nil {
		return m, err
	}
	// All that is on the streams by now is counted, so that a repeat after the last line is noticed.
	if err := o.known(ctx, s, 0); err != nil {
		return m, err
	}
	err = s.tail(ctx, topology.RmdStream, lines, func(msg jetstream.Msg, stored time.Time) error {
		ids, err := reminded(msg)
		if j.unread {
			l.reach(stored, ids...)
		}
		seen.Messages++
		seen.Lines += len(ids)
		seen.Bytes += int64(sizeOf(msg))
		seen.Line = max(seen.Line, stored.Sub(l.at).Seconds())
		j.grown.bytes += len(msg.Data())
		return err
	})
	if err != nil {
		return m, err
	}
	j.grown.messages += seen.Messages
	spent := m.Spent
	if m, err = l.result(); err != nil {
		return m, err
	}
	if seen.Lines != j.n {
		return m, fmt.Errorf("the reminder streams have %d lines for %d customers", seen.Lines, j.n)
	}
	m.Spent, m.Scrip = spent, &seen
	seen.Before, seen.During = claims.split(l.last)
	return m, s.fired(ctx, events, j.n, l.at, &seen)
}

// published waits until no reminder is pending or on its way to the reminder streams.
func (o options) published(ctx context.Context, s *scripServer) error {
	if err := o.known(ctx, s, 0); err != nil {
		return err
	}
	return process.Poll(ctx, s.proc, knownEvery, func() error {
		n, err := s.metric(ctx, "scrip_scheduler_outstanding")
		if err == nil && n > 0 {
			err = fmt.Errorf("%w: %.0f reminders are not on their streams", process.ErrWaiting, n)
		}
		return err
	})
}

// listen reads the reminder streams after those ends, as a bare consumer of each lane, until stop is called.
func (s *scripServer) listen(ctx context.Context, ends []uint64, l *ledger) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var g errgroup.Group
	stop = func() { cancel(); _ = g.Wait() }
	for lane, end := range ends {
		messages, err := s.consume(ctx, topology.RmdStream(lane), end)
		if err != nil {
			stop()
			return nil, err
		}
		g.Go(func() error {
			for {
				m, err := messages.Next()
				if err != nil {
					return err // the ledger then waits in vain and reports that
				}
				ids, err := reminded(m)
				if err != nil {
					return err
				}
				l.reach(time.Now(), ids...)
			}
		})
	}
	return stop, nil
}

// reminded are the ids of the customers in a message of a reminder stream.
func reminded(m jetstream.Msg) (ids []string, err error) {
	for line := range bytes.Lines(m.Data()) {
		_, rest, ok := bytes.Cut(line, []byte(`"customer_id":"`))
		id, _, closed := bytes.Cut(rest, []byte{'"'})
		if !ok || !closed {
			return nil, fmt.Errorf("a reminder without customer_id: %s", line)
		}
		ids = append(ids, string(id))
	}
	return ids, nil
}

// fired checks the events that fired the reminders.
func (s *scripServer) fired(ctx context.Context, ends []uint64, n int, at time.Time, seen *report.ScripDue) error {
	var ev wire.Event
	var fired, dropped uint64
	err := s.tail(ctx, topology.EvtStream, ends, func(m jetstream.Msg, stored time.Time) error {
		for line := range bytes.Lines(m.Data()) {
			if err := wire.ParseEvent(bytes.TrimSuffix(line, []byte{'\n'}), &ev); err != nil {
				return err
			}
			if ev.Type != wire.RemindersDue {
				continue
			}
			if ev.DueAt != wire.At(at) {
				return fmt.Errorf("reminders were due at %s, not at %s", ev.DueAt, wire.At(at))
			}
			fired, dropped = fired+ev.Fired, dropped+ev.Dropped
			seen.Event = max(seen.Event, stored.Sub(at).Seconds())
		}
		return nil
	})
	if err == nil && (fired != uint64(n) || dropped != 0) {
		err = fmt.Errorf("%d of %d reminders fired on the log and %d were dropped", fired, n, dropped)
	}
	return err
}

const (
	// quiet is how long the latency of claims is measured before the instant, and at least after it.
	quiet = 2 * time.Second
	// besideFor is how long claims are sent beside at most.
	besideFor = time.Minute
)

// besideClaims are claims of another campaign.
type besideClaims struct {
	stop chan struct{}
	g    errgroup.Group
	list []struct{ due, took time.Duration } // after the instant; took 0 = not answered
}

// claimBeside begins to claim at an even pace, quiet before the instant; not at all if the rate is 0.
func (o options) claimBeside(ctx context.Context, b *bench, rate float64, at time.Time) *besideClaims {
	n := int(rate * besideFor.Seconds())
	c := &besideClaims{stop: make(chan struct{}), list: make([]struct{ due, took time.Duration }, n)}
	if n == 0 {
		return c
	}
	c.g.Go(func() error {
		p := newPlan(workload{name: "beside", unit: "claims", style: bulk, campaigns: 1}, "beside", n, o.seed)
		if err := b.scrip.create(ctx, p); err != nil {
			return err
		}
		if err := process.Until(ctx, at.Add(-quiet)); err != nil {
			return err
		}
		sent := func(i int, due time.Time) func(time.Duration) {
			return func(took time.Duration) { c.list[i].due, c.list[i].took = due.Sub(at), took }
		}
		_, _, err := o.claimAt(ctx, b, p, pace{n: n, limit: besideFor, rate: rate, stop: c.stop, sent: sent})
		return err
	})
	return c
}

// end stops claiming. It returns the error of the claims, or the one that it is given.
func (c *besideClaims) end(failed error) error {
	close(c.stop)
	if err := c.g.Wait(); err != nil && failed == nil {
		return fmt.Errorf("claims beside: %w", err)
	}
	return failed
}

// split keeps the claims before the instant apart from those until all were reached, or for a second.
func (c *besideClaims) split(all time.Duration) (before, during report.Latency) {
	quietly, busy := report.NewLatencies(), report.NewLatencies()
	for _, one := range c.list {
		switch {
		case one.took == 0:
		case one.due < 0:
			quietly.Record(one.took, 1)
		case one.due < max(all, time.Second):
			busy.Record(one.took, 1)
		}
	}
	return quietly.Result(), busy.Result()
}
