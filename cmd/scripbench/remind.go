package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// reminders are the systems that remind people, scrip first and the limit last.
var reminders = []recipe{
	{name: report.Subject, about: "one event fires all; fan-out to a stream in lists of 5,000; a bare consumer", server: onScrip, fill: remindScrip},
	{name: "redis-poll", about: "sorted sets by customer, each polled each second: 2,000 by ZRANGE BYSCORE, ZREM", server: onRedis, fill: redisReminders{poll: true}.fill},
	{name: "redis-pop", about: "the same sets; Lua takes out 2,000 at once, without a pause", server: onRedis, fill: redisReminders{}.fill},
	{name: "river-5000", about: "a job for each 5,000 customers, ScheduledAt", server: onPostgres, fill: remindRiver},
	{name: "limit", about: "bare JetStream publish of the same bytes in as many messages", server: onLimit, fill: publishGrown},
}

func remindCommand() *cobra.Command {
	return dueCommand(&cobra.Command{
		Use: "remind", Short: "Measure how long it takes until all customers whose reminder is due at one instant are reminded",
		Long: `Set reminders of --n customers for one instant, and measure when each has reached a worker that only ticks the customer
off:

` + lines(reminders, recipe.String) + `

Each customer must be reached exactly once and none before the instant, or there is no number. Of scrip it is measured, too,
when the last line was on the log. Systems take turns, each with the machine to itself; medians of --runs are compared, at
equal durability only.`,
		Example: `  scripbench remind --n 100000 --runs 1`,
	}, "customers are to be reminded at one instant; until the last has reached a worker", "reminders", 1_000_000, reminders)
}

// remindScrip subscribes the customers. One is reached when a bare consumer of the reminder streams has the line.
func remindScrip(ctx context.Context, o options, b *bench) (d dueWork, err error) {
	s, u, l := b.scrip, newSubscriptions("remind", 1), newLedger(o.n)
	l.at, err = aimed(fillingOf(o.n), func(at time.Time, again bool) error {
		if err := u.open(ctx, s, at, again); err != nil {
			return err
		}
		if !again {
			if err := s.subscribe(ctx, u, 0, o.n); err != nil {
				return err
			}
		}
		if err := s.known(ctx, o.n); err != nil {
			return err
		}
		return s.settle(ctx)
	})
	if err != nil {
		return d, err
	}
	ends, err := s.ends(ctx, topology.RmdStream)
	if err != nil {
		return d, err
	}
	d.at, d.work = l.at, l.wait
	d.judge = func(ctx context.Context, m *report.Run) error {
		// All that is on the streams by now is counted, so that a repeat after the last line is noticed.
		if err := s.known(ctx, 0); err != nil {
			return err
		}
		m.Stream = &report.Stream{}
		if err := s.sent(ctx, ends, l.at, o, m.Stream); err != nil {
			return err
		}
		return l.judge(ctx, m)
	}
	d.close, err = s.listen(ctx, ends, l)
	return d, err
}

// sent reads what is on the reminder streams after those ends.
func (s *scripServer) sent(ctx context.Context, ends []uint64, due time.Time, o options, seen *report.Stream) error {
	err := s.tail(ctx, topology.RmdStream, ends, func(msg jetstream.Msg, stored time.Time) error {
		ids, err := reminded(msg)
		seen.Messages++
		seen.Lines += len(ids)
		seen.Bytes += int64(sizeOf(msg))
		seen.Last = max(seen.Last, stored.Sub(due).Seconds())
		o.grown.bytes += len(msg.Data())
		return err
	})
	o.grown.messages += seen.Messages
	if err == nil && seen.Lines != o.n {
		err = fmt.Errorf("the reminder streams have %d reminders for %d customers", seen.Lines, o.n)
	}
	return err
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
		_, rest, ok := bytes.Cut(line, []byte(`"customer_ids":["`))
		list, _, closed := bytes.Cut(rest, []byte(`"]`))
		if !ok || !closed {
			return nil, fmt.Errorf("a reminder without customer_ids: %.200s", line)
		}
		for id := range bytes.SplitSeq(list, []byte(`","`)) {
			ids = append(ids, string(id))
		}
	}
	return ids, nil
}
