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

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// subscriptions are customers who want to be reminded before claims open: customer i of campaign i modulo campaigns.
//
//	lines of up to 1,000 commands ──> writers of each lane ──> scrip.lane.<lane>.cmd ──> outcomes: nobody asks
//	                                   full? wait, again          (trusted: several campaigns)
//
// A message whose result is not known is published again: its commands' ids are known by then, and set nothing twice.
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

// open creates the campaigns, or moves them, so that their reminders are due at an instant.
func (u subscriptions) open(ctx context.Context, s *scripServer, due time.Time, again bool) error {
	settings := domain.DefaultSettings(1)
	settings.OpensAt = domain.At(due.Add(u.before))
	cmd := domain.Command{Type: domain.CreateCampaign, Patch: domain.PatchOf(settings)}
	if again {
		cmd = domain.Command{Type: domain.UpdateCampaign}
		cmd.Patch = domain.Patch{Settings: settings}
		cmd.Patch.Set("opens_at")
	}
	return s.operate(ctx, u.names, func(int) domain.Command { return cmd })
}

const (
	// feedLines is how many commands a message has: as many as it may.
	feedLines = domain.MaxMessageLines
	// feedWriters per lane publish at once.
	feedWriters = 4
	// feedPause is how long a writer waits when a command stream is full.
	feedPause = 50 * time.Millisecond
)

// feed subscribes customers [from, to) as fast as the log takes it. It returns when all commands are on the log; they
// are decided later.
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
		if m.lines == feedLines || len(m.data)+len(line) > domain.MaxMessage {
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

// template is a command without the two numbers in it: of its id and of its customer.
func (u subscriptions) template(campaign string) (parts [3]string) {
	const id, customer = "r-", customerPrefix
	cmd := domain.Command{Type: domain.Remind, ID: id, Campaign: campaign, CustomerID: customer, Kind: domain.KindOpens, Before: u.before}
	line := string(cmd.AppendJSON(nil)) + "\n"
	before, rest, _ := strings.Cut(line, `"`+id+`"`)
	middle, end, _ := strings.Cut(rest, `"`+customer+`"`)
	return [3]string{before + `"` + id, `"` + middle + `"` + customer, `"` + end}
}

// publish puts a message on the log, waiting while there is no room.
func (s *scripServer) publish(ctx context.Context, subject string, data []byte) error {
	for {
		_, err := s.js.Publish(ctx, subject, data)
		var api *jetstream.APIError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &api) && (api.Code == 503 || api.Code == 429), errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		default:
			return fmt.Errorf("publishing commands: %w", err)
		}
		if err := until(ctx, time.Now().Add(feedPause)); err != nil {
			return err
		}
	}
}

// pendingReminders is how many subscriptions the schedulers have pending.
func (s *scripServer) pendingReminders(ctx context.Context) (int, error) {
	n, err := s.metric(ctx, "scrip_scheduler_reminders_pending")
	return int(n), err
}

// known waits until the schedulers have that many pending and have folded what came since the server started. tell is
// called with what they have.
func (s *scripServer) known(ctx context.Context, n int, tell func(pending int)) error {
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	tick := time.NewTicker(knownEvery)
	defer tick.Stop()
	for {
		pending, err := s.pendingReminders(ctx)
		if err != nil {
			return err
		}
		if pending == n {
			behind, err := s.behind(ctx)
			if err != nil || behind == "" {
				return err
			}
		}
		if tell != nil {
			tell(pending)
		}
		select {
		case <-tick.C:
		case <-s.proc.gone:
			return s.proc.died()
		case <-ctx.Done():
			behind, _ := s.behind(context.WithoutCancel(ctx))
			return fmt.Errorf("the schedulers know of %d of %d reminders%s: %w", pending, n, behind, context.Cause(ctx))
		}
	}
}

const (
	// knownWithin bounds the filling of the largest log, on a slow machine.
	knownWithin = time.Hour
	// knownEvery is how often the server is asked: collecting all its metrics costs it something.
	knownEvery = 100 * time.Millisecond
)

// behind says which lanes' schedulers have not folded all that their event streams hold. One that has folded nothing
// since it started says 0: it knew all from its snapshot.
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
