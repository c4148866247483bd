package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// mergeCampaigns remind each customer, so far apart, and mergeWindow collects what they do.
	mergeCampaigns = 5
	mergeApart     = 10 * time.Second
	mergeWindow    = time.Minute
	bareMessages   = "bare JetStream, as many bytes and messages, one after the other"
)

func mergeCommand() *cobra.Command {
	return measurement(&cobra.Command{
		Use: "merge", Short: "Measure merging: five campaigns remind the same customers within a minute",
		Long: `Five campaigns remind --n customers each, ten seconds apart, and push.merge is a minute. Measured is when the last reminder is on
the lanes, and how long after the first one the last message is on SCRIP_PUSH_OUT, where each customer must have one message with
five reminders. Beside it the same bytes are published to a bare stream. Only scrip and a bare NATS server are started, scrip with --roles ` + pendingRoles + `.`,
	}, 1_000_000, nil, func(ctx context.Context, o options, done func(report.Result) error) error {
		o.roles = pendingRoles
		r := &report.Tables{Head: o.head("merge", o.n)}
		if err := o.with(ctx, []recipe{recipes[0], reminders[len(reminders)-1]}, func(b *bench) error { return o.merge(ctx, b, r) }); err != nil {
			return err
		}
		return done(r)
	})
}

func (o options) merge(ctx context.Context, b *bench, r *report.Tables) error {
	s, u := b.scrip, newSubscriptions("merge", mergeCampaigns)
	u.shared, u.apart = true, mergeApart
	r.Settings = []string{s.settings()}
	if err := s.program(ctx, &report.Step{}, "config", "set", "push.merge", mergeWindow.String()); err != nil {
		return err
	}
	all := o.n * mergeCampaigns
	at, err := aimed(fillingOf(all), func(at time.Time, again bool) error {
		if err := u.open(ctx, s, at, again); err != nil || again {
			return err
		}
		if err := s.subscribe(ctx, u, 0, all); err != nil {
			return err
		}
		return s.known(ctx, all)
	})
	if err != nil {
		return err
	}
	o.printf("merge: %s reminders are set", report.Num(all))
	if err := until(ctx, at.Add(mergeApart*(mergeCampaigns-1)+mergeApart/2)); err != nil {
		return err
	}
	if err := s.known(ctx, 0); err != nil {
		return err
	}
	fired := report.Step{Name: "fired, on the lanes", Lines: all}
	err = s.tail(ctx, topology.RmdStream, make([]uint64, s.desc.Lanes), func(_ jetstream.Msg, stored time.Time) error {
		fired.Seconds = max(fired.Seconds, (stored.Sub(at) - mergeApart*(mergeCampaigns-1)).Seconds())
		return nil
	})
	if err != nil {
		return err
	}
	err = process.Poll(ctx, s.proc, knownEvery, func() error {
		left, err := s.metric(ctx, "scrip_push_held")
		if err == nil && left > 0 {
			err = fmt.Errorf("%w: %.0f reminders are held", process.ErrWaiting, left)
		}
		return err
	})
	if err != nil {
		return err
	}
	out := report.Step{Name: "one message each, on SCRIP_PUSH_OUT, after the window", Lines: all, Bare: bareMessages}
	messages, size, people, reminders := 0, 0, map[string]int{}, 0
	outStream := func(int) string { return topology.PushOutStream }
	err = s.tail(ctx, outStream, make([]uint64, 1), func(m jetstream.Msg, stored time.Time) error {
		messages, size = messages+1, size+len(m.Data())
		out.Seconds = max(out.Seconds, (stored.Sub(at) - mergeWindow).Seconds())
		for d := json.NewDecoder(bytes.NewReader(m.Data())); d.More(); {
			var line struct {
				Merged    bool     `json:"merged"`
				Customers []string `json:"customer_ids"`
			}
			if err := d.Decode(&line); err != nil {
				return err
			}
			reminders += len(line.Customers)
			for _, c := range line.Customers {
				if !line.Merged {
					people[c]++
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for c, n := range people {
		if n != 1 {
			return fmt.Errorf("customer %s got %d messages", c, n)
		}
	}
	if len(people) != o.n || reminders != all {
		return fmt.Errorf("%d customers got messages about %d reminders, expected %d about %d", len(people), reminders, o.n, all)
	}
	bare, err := b.limit.bareMessages(ctx, messages, size/max(messages, 1))
	bare.Lines = all
	r.Lines, r.Rows = all, []report.Step{fired, out, bare}
	return err
}

// bareMessages publishes so many messages of a size, one after the other.
func (s *scripServer) bareMessages(ctx context.Context, n, size int) (step report.Step, err error) {
	const name = "LIMIT_MERGE"
	step.Name = bareMessages
	if err := s.bareStream(ctx, name); err != nil {
		return step, err
	}
	payload, started := make([]byte, size), time.Now()
	for range n {
		if _, failed := s.js.Publish(ctx, name, payload); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	step.Seconds = time.Since(started).Seconds()
	return step, err
}
