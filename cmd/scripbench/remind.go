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
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// reminders are the systems that remind people, scrip first and the limit last.
var reminders = []dueRecipe{
	{recipe{name: report.Subject, about: "one event fires all; fan-out to a stream, 500 a message; a bare consumer", server: onScrip}, remindScrip},
	{recipe{name: "redis-poll", about: "sorted sets by customer, each polled each second: 2,000 by ZRANGE BYSCORE, ZREM", server: onRedis}, redisReminders{poll: true}.fill},
	{recipe{name: "redis-pop", about: "the same sets; Lua takes out 2,000 at once, without a pause", server: onRedis}, redisReminders{}.fill},
	{recipe{name: "river-500", about: "a job for each 500 customers, ScheduledAt", server: onPostgres}, remindRiver},
	{recipe{name: "limit", about: "bare JetStream publish of the same bytes in as many messages", server: onLimit}, publishGrown},
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
compared, at equal durability only.`,
		Example: `  scripbench remind --n 100000 --runs 1
  scripbench remind --campaigns 100 --claims 20000 --systems scrip,limit`,
	}
	fs := cmd.Flags()
	fs.IntVar(&j.campaigns, "campaigns", 1, "campaigns that the reminders are spread over")
	fs.IntVar(&j.queues, "queues", 10, "sorted sets of Redis, each with a poller of its own")
	fs.Float64Var(&j.claims, "claims", 0, "claims a second of another campaign, beside scrip's reminders")
	fs.BoolVar(&j.unread, "unread", false, "read scrip's reminder streams only when all is on them, and report when it was stored: the time of the log without readers on the same disk and cores")
	return f.dueCommand(cmd, reminding, 1_000_000, reminders, func(r *report.Due) (dueJob, error) {
		switch {
		case j.campaigns < 1 || j.campaigns > f.n:
			return j, cli.Usagef("--campaigns must be at least 1 and at most --n (%d)", f.n)
		case j.queues < 1 || j.queues > 1000:
			return j, cli.Usagef("--queues must be at least 1 and at most 1000")
		case j.claims < 0 || j.claims > 1e6:
			return j, cli.Usagef("--claims must be at least 0 and at most 1000000 a second")
		}
		if j.unread {
			r.About += "; of scrip: until the last is on the reminder stream, which is read afterwards"
		}
		return j, nil
	})
}

var reminding = report.Due{Job: "remind", About: "customers are to be reminded at one instant; until the last has reached a worker", Unit: "reminders"}

// remindScrip subscribes n customers. A customer is reached when a bare consumer of the reminder streams has the line or,
// if they are unread, when the log has stored it.
func remindScrip(ctx context.Context, o options, b *bench, j dueJob) (d dueWork, err error) {
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
		return d, err
	}
	lines, err := s.ends(ctx, topology.RmdStream)
	if err != nil {
		return d, err
	}
	d.at = l.at
	reached := l.wait
	if j.unread {
		reached = func(ctx context.Context, _ *report.DueRun) error { return o.published(ctx, s) }
	} else if d.close, err = s.listen(ctx, lines, l); err != nil {
		return d, err
	}
	claims := o.claimBeside(ctx, b, j.claims, l.at)
	d.work = reached
	d.judge = func(ctx context.Context, m *report.DueRun) error {
		m.Scrip = &report.ScripDue{Rate: j.claims}
		if err := claims.end(ctx, l.at); err != nil {
			return err
		}
		// All that is on the streams by now is counted, so that a repeat after the last line is noticed.
		if err := o.known(ctx, s, 0); err != nil {
			return err
		}
		if err := s.sent(ctx, lines, l, j, m.Scrip); err != nil {
			return err
		}
		if err := l.judge(ctx, m); err != nil {
			return err
		}
		m.Scrip.Before, m.Scrip.During = claims.split(l.last)
		return nil
	}
	return d, nil
}

// sent reads what is on the reminder streams.
func (s *scripServer) sent(ctx context.Context, ends []uint64, l *ledger, j dueJob, seen *report.ScripDue) error {
	err := s.tail(ctx, topology.RmdStream, ends, func(msg jetstream.Msg, stored time.Time) error {
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
	j.grown.messages += seen.Messages
	if err == nil && seen.Lines != j.n {
		err = fmt.Errorf("the reminder streams have %d lines for %d customers", seen.Lines, j.n)
	}
	return err
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

// claimBeside claims at an even pace from quiet before the instant on; not at all if the rate is 0.
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
		if err := until(ctx, at.Add(-quiet)); err != nil {
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

// end stops claiming, at the earliest when it has lasted for a while.
func (c *besideClaims) end(ctx context.Context, at time.Time) error {
	var err error
	if len(c.list) > 0 {
		err = until(ctx, at.Add(quiet))
	}
	close(c.stop)
	if failed := c.g.Wait(); failed != nil {
		err = fmt.Errorf("claims beside: %w", failed)
	}
	return err
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
