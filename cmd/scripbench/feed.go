package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// subscriptions are customers who are to be reminded before claims open: customer i of campaign i modulo campaigns.
//
//	lines of up to 1,000 commands ──> writers of each lane ──> scrip.lane.<lane>.cmd ──> outcomes: not read
//	                                   full? wait, retry          (trusted: several campaigns)
//
// A message with an unknown outcome is published again: its commands are deduplicated by their ids.
type subscriptions struct {
	names []string
	// before the opening they are to be reminded.
	before time.Duration
}

// reminding is how long before the opening.
const reminding = time.Minute

func newSubscriptions(id string, campaigns int) subscriptions {
	s := subscriptions{before: reminding}
	for i := range campaigns {
		s.names = append(s.names, id+"-"+strconv.Itoa(i))
	}
	return s
}

func (u subscriptions) campaign(i int) string { return u.names[i%len(u.names)] }

// open creates the campaigns, or again updates them, so that their reminders are due at an instant.
func (u subscriptions) open(ctx context.Context, s *scripServer, due time.Time, again bool) error {
	settings := wire.DefaultSettings(1)
	settings.OpensAt = wire.At(due.Add(u.before))
	cmd := wire.Command{Type: wire.CreateCampaign, Patch: wire.PatchOf(settings)}
	if again {
		cmd = wire.Command{Type: wire.UpdateCampaign}
		cmd.Patch = wire.Patch{Settings: settings}
		cmd.Patch.Set("opens_at")
	}
	return s.operate(ctx, u.names, func(int) wire.Command { return cmd })
}

const (
	// feedLines is how many commands a message has: the limit.
	feedLines = wire.MaxMessageLines
	// feedWriters per lane publish at once.
	feedWriters = 4
	// feedPause is how long a writer backs off when a command stream is full.
	feedPause = 50 * time.Millisecond
)

// feed subscribes customers [from, to) as fast as the log accepts them. It returns when all commands are on the
// log; they are decided later.
func (u subscriptions) feed(ctx context.Context, s *scripServer, from, to int, fed *atomic.Int64) error {
	lanes, of := s.desc.Lanes, make([]int, len(u.names))
	used := make([]bool, lanes)
	for c, name := range u.names {
		of[c] = topology.LaneOf(name, lanes)
		used[of[c]] = true
	}
	g, ctx := errgroup.WithContext(ctx)
	for lane := range lanes {
		if !used[lane] {
			continue
		}
		messages := make(chan feedMessage, feedWriters)
		g.Go(func() error {
			defer close(messages)
			return u.write(ctx, from, to, func(c int) bool { return of[c] == lane }, messages)
		})
		for range feedWriters {
			g.Go(func() error {
				for m := range messages {
					if err := s.publish(ctx, topology.LaneCmd(lane), m.data); err != nil {
						return err
					}
					fed.Add(int64(m.lines))
				}
				return nil
			})
		}
	}
	return g.Wait()
}

type feedMessage struct {
	data  []byte
	lines int
}

// write makes messages of the subscriptions to some of the campaigns.
func (u subscriptions) write(ctx context.Context, from, to int, ours func(campaign int) bool, messages chan<- feedMessage) error {
	templates := make([][3]string, len(u.names))
	for c, name := range u.names {
		templates[c] = u.template(name)
	}
	var m feedMessage
	send := func() error {
		select {
		case messages <- m:
			m = feedMessage{data: make([]byte, 0, len(m.data)+1024)}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	var line []byte
	for i := from; i < to; i++ {
		c := i % len(u.names)
		if !ours(c) {
			continue
		}
		t := &templates[c]
		line = append(line[:0], t[0]...)
		line = append(strconv.AppendInt(line, int64(i), 36), t[1]...)
		line = append(strconv.AppendInt(line, int64(i), 10), t[2]...)
		if m.lines == feedLines || len(m.data)+len(line) > wire.MaxMessage {
			if err := send(); err != nil {
				return err
			}
		}
		m.data = append(m.data, line...)
		m.lines++
	}
	if m.lines == 0 {
		return nil
	}
	return send()
}

// template is a command cut at two numbers: that of its id and that of its customer.
func (u subscriptions) template(campaign string) (parts [3]string) {
	const id, customer = "r-", customerPrefix
	cmd := wire.Command{Type: wire.Remind, ID: id, Campaign: campaign, CustomerID: customer, Kind: wire.KindOpens, Before: u.before}
	line := string(cmd.AppendJSON(nil)) + "\n"
	before, rest, _ := strings.Cut(line, `"`+id+`"`)
	middle, end, _ := strings.Cut(rest, `"`+customer+`"`)
	return [3]string{before + `"` + id, `"` + middle + `"` + customer, `"` + end}
}

// publish puts a message on the log, and retries while there is no room.
func (s *scripServer) publish(ctx context.Context, subject string, data []byte) error {
	return poll(ctx, nil, feedPause, func() error {
		_, err := s.js.Publish(ctx, subject, data)
		var api *jetstream.APIError
		if errors.As(err, &api) && (api.Code == 503 || api.Code == 429) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%w: publishing commands: %w", errWaiting, err)
		}
		return err
	})
}

// known waits until the schedulers have that many pending and have folded all events. report, which may be nil, is called
// with how many they have.
func (s *scripServer) known(ctx context.Context, n int, report func(pending int)) error {
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	return poll(ctx, s.proc, knownEvery, func() error {
		pending, err := s.metric(ctx, "scrip_scheduler_reminders_pending")
		if err != nil {
			return err
		}
		behind := ""
		if int(pending) == n {
			if behind, err = s.behind(ctx); err != nil || behind == "" {
				return err
			}
		}
		if report != nil {
			report(int(pending))
		}
		return fmt.Errorf("%w: the schedulers have %.0f of %d reminders%s", errWaiting, pending, n, behind)
	})
}

const (
	// knownWithin bounds the filling of the largest log, on a slow machine.
	knownWithin = time.Hour
	// knownEvery is how often metrics are read: collecting them costs the server CPU.
	knownEvery = 100 * time.Millisecond
)

// behind names the lanes whose schedulers have not folded their whole event stream. One that has folded nothing since it
// started has 0: all was in its snapshot.
func (s *scripServer) behind(ctx context.Context) (lanes string, err error) {
	ends, err := s.ends(ctx, topology.EvtStream)
	if err != nil {
		return "", err
	}
	folded, err := s.metricByLane(ctx, "scrip_scheduler_folded_sequence")
	if err != nil {
		return "", err
	}
	for lane, end := range ends {
		if at, there := folded[strconv.Itoa(lane)]; !there || at > 0 && at < float64(end) {
			lanes += fmt.Sprintf(", lane %d folded %.0f of %d", lane, at, end)
		}
	}
	return lanes, nil
}
