package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

const (
	// remindedBefore is how long before the opening customers are to be reminded.
	remindedBefore = time.Minute
	// knownWithin bounds the filling of the largest log, on a slow machine.
	knownWithin = time.Hour
	// knownEvery is how often metrics are read: collecting them costs the server CPU.
	knownEvery = 100 * time.Millisecond
)

// subscriptions are customers who are to be reminded before claims open: customer i of campaign i modulo campaigns.
type subscriptions struct {
	names  []string
	shared bool          // each customer is reminded by all campaigns
	apart  time.Duration // between the campaigns' instants
}

func newSubscriptions(id string, campaigns int) subscriptions {
	return subscriptions{names: emptyPlan(workload{campaigns: campaigns}, id, 0, 0).names}
}

func (u subscriptions) customer(i int) string {
	if u.shared {
		i /= len(u.names)
	}
	return customerID(i)
}

func (u subscriptions) campaign(i int) string { return u.names[i%len(u.names)] }

// open creates the campaigns, or again updates them, so that their reminders are due at an instant.
func (u subscriptions) open(ctx context.Context, s *scripServer, due time.Time, again bool) error {
	settings := wire.DefaultSettings(1)
	settings.Reminders = wire.MaxPending
	return s.operate(ctx, u.names, func(i int) wire.Command {
		settings := settings
		settings.OpensAt = wire.At(due.Add(remindedBefore + time.Duration(i)*u.apart))
		cmd := wire.Command{Type: wire.CreateCampaign, Patch: wire.PatchOf(settings)}
		if again {
			cmd = wire.Command{Type: wire.UpdateCampaign, Patch: wire.Patch{Settings: settings}}
			cmd.Patch.Set("opens_at")
		}
		return cmd
	})
}

// subscribe subscribes customers [from, to) by the SDK as fast as the lanes answer.
func (s *scripServer) subscribe(ctx context.Context, u subscriptions, from, to int) error {
	var inFlight sync.WaitGroup
	var failed atomic.Pointer[error]
	for i := from; i < to && failed.Load() == nil; i++ {
		inFlight.Add(1)
		cmd := wire.Command{Type: wire.Remind, Campaign: u.campaign(i), CustomerID: u.customer(i), Kind: wire.KindOpens, Before: remindedBefore}
		err := s.sdk.DoAsync(ctx, cmd, func(out wire.Outcome, err error) {
			if err == nil && out.Refused() {
				err = errors.New(out.Message)
			}
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
			inFlight.Done()
		})
		if err != nil {
			return fmt.Errorf("subscribing: %w", err)
		}
	}
	inFlight.Wait()
	if err := failed.Load(); err != nil {
		return fmt.Errorf("subscribing: %w", *err)
	}
	return nil
}

// known waits until the schedulers have that many pending.
func (s *scripServer) known(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	return process.Poll(ctx, s.proc, knownEvery, func() error {
		pending, err := s.metric(ctx, "scrip_scheduler_reminders_pending")
		if err != nil {
			return err
		}
		if int(pending) != n {
			return fmt.Errorf("%w: the schedulers have %.0f of %d reminders", process.ErrWaiting, pending, n)
		}
		return nil
	})
}

// ends are the last sequences of one stream of each lane.
func (s *scripServer) ends(ctx context.Context, stream func(lane int) string) ([]uint64, error) {
	ends := make([]uint64, s.desc.Lanes)
	for lane := range ends {
		info, err := s.js.Stream(ctx, stream(lane))
		if err != nil {
			return nil, err
		}
		ends[lane] = info.CachedInfo().State.LastSeq
	}
	return ends, nil
}

// tail reads each lane's stream after those ends, with the instant at which each message was stored.
func (s *scripServer) tail(ctx context.Context, stream func(lane int) string, ends []uint64, each func(m jetstream.Msg, stored time.Time) error) error {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	last, err := s.ends(ctx, stream)
	if err != nil {
		return err
	}
	for lane, at := range ends {
		if at >= last[lane] {
			continue
		}
		messages, err := s.consume(ctx, stream(lane), at)
		if err != nil {
			return err
		}
		for at < last[lane] {
			m, err := messages.Next()
			if err != nil {
				return errors.Join(context.Cause(ctx), err)
			}
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			if err := each(m, meta.Timestamp); err != nil {
				return err
			}
			at = meta.Sequence.Stream
		}
		messages.Stop()
	}
	return nil
}

// consume delivers the messages of a stream after a sequence, until ctx ends.
func (s *scripServer) consume(ctx context.Context, name string, after uint64) (jetstream.MessagesContext, error) {
	consumer, err := s.js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1})
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, messages.Stop)
	return messages, nil
}

// sizeOf is what a message is on the wire: subject, headers and payload.
func sizeOf(m jetstream.Msg) (bytes int) {
	bytes = len(m.Subject()) + len(m.Data())
	for name, values := range m.Headers() {
		for _, v := range values {
			bytes += len(name) + len(v) + len(": \r\n")
		}
	}
	return bytes
}
