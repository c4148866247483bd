package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// quiet is how long the latency of claims is measured before the instant, and at least after it.
const quiet = 2 * time.Second

// remindScrip subscribes n customers and counts them on the reminder streams. A customer is reached
// when a bare consumer there has the line.
func remindScrip(ctx context.Context, o options, b *bench, j dueJob) (m DueRun, err error) {
	s, u := b.scrip, newSubscriptions("remind", j.campaigns)
	// The time that subscribing and the read tables take; if more is needed the opening is moved.
	lead := time.Second + time.Duration(j.n)*30*time.Microsecond
	at, err := aimed(lead, func(at time.Time, again bool) error {
		if err := u.open(ctx, s, at, again); err != nil {
			return err
		}
		if !again {
			if err := o.subscribe(ctx, s, u, 0, j.n); err != nil {
				return err
			}
		}
		if err := s.known(ctx, j.n, nil); err != nil {
			return err
		}
		return s.settle(ctx)
	})
	if err != nil {
		return m, err
	}
	o.printf("remind: %s subscriptions are pending", num(j.n))
	events, err := s.ends(ctx, topology.EvtStream)
	if err != nil {
		return m, err
	}

	l, seen := newLedger(j.n), ScripDue{Rate: j.claims}
	l.at = at
	listening, stop := context.WithCancel(ctx)
	listener, err := s.listener(ctx, j.unread)
	if err != nil {
		stop()
		return m, err
	}
	defer func() { stop(); listener.wait() }()
	if !j.unread {
		if err := listener.listen(listening, l); err != nil {
			return m, err
		}
	}
	stopClaims := make(chan struct{})
	claims, waitClaims := o.claimBeside(ctx, b, j.claims, at, stopClaims)
	usage, err := measured(ctx, s, at, func(ctx context.Context) (DueRun, error) {
		if !j.unread {
			return DueRun{}, l.wait(ctx)
		}
		if err := s.published(ctx); err != nil {
			return DueRun{}, err
		}
		return DueRun{}, listener.listen(listening, l)
	})
	if err == nil && j.unread {
		err = l.wait(ctx)
	}
	if err == nil && j.claims > 0 {
		err = until(ctx, at.Add(quiet))
	}
	close(stopClaims)
	claimsErr := waitClaims()
	if err != nil {
		return m, err
	}
	if claimsErr != nil {
		return m, fmt.Errorf("claims beside: %w", claimsErr)
	}
	// All that is on the streams by now must have been counted, so that a repeat after the last line is noticed.
	if err := s.known(ctx, 0, nil); err != nil {
		return m, err
	}
	if err := listener.reached(ctx); err != nil {
		return m, err
	}
	if m, err = l.result(); err != nil {
		return m, err
	}
	m.spent = usage.spent
	seen.Before, seen.During = claims.split(at, time.Duration(m.All*float64(time.Second)))
	seen.Messages, seen.Lines, seen.Bytes = int(listener.messages.Load()), int(listener.lines.Load()), listener.bytes.Load()
	seen.Line = time.Unix(0, listener.stored.Load()).Sub(at).Seconds()
	*j.grown = grown{messages: seen.Messages, lines: seen.Lines, bytes: int(listener.payload.Load())}
	m.Scrip = &seen
	return m, s.fired(ctx, events, j.n, at, &seen)
}

// subscribe feeds subscriptions and reports progress.
func (o options) subscribe(ctx context.Context, s *scripServer, u subscriptions, from, to int) error {
	var fed atomic.Int64
	began := time.Now()
	over, stop := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() {
		first := true
		_ = poll(over, nil, reportEvery, func() error {
			if n := float64(fed.Load()); !first {
				o.printf("subscribing: %s of %s, %s a second", thousands(n), num(to-from), thousands(n/time.Since(began).Seconds()))
			}
			first = false
			return errWaiting
		})
	})
	err := u.feed(ctx, s, from, to, &fed)
	stop()
	reporting.Wait()
	return err
}

// reportEvery is how often the progress of what takes minutes is reported.
const reportEvery = 10 * time.Second

// fired checks the events that fired the reminders.
func (s *scripServer) fired(ctx context.Context, ends []uint64, n int, at time.Time, seen *ScripDue) error {
	var ev wire.Event
	var fired, dropped uint64
	err := s.tail(ctx, topology.EvtStream, ends, func(m jetstream.Msg, stored time.Time) error {
		for line := range bytes.Lines(m.Data()) {
			if !bytes.HasPrefix(line, []byte(`{"type":"reminders.due"`)) {
				continue
			}
			if err := wire.ParseEvent(bytes.TrimSuffix(line, []byte{'\n'}), &ev); err != nil {
				return err
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

// listener counts the lines of the reminder streams, after the ends that they had when it was made.
type listener struct {
	s    *scripServer
	ends []atomic.Uint64 // of each lane: the last message counted
	// unread: customers are reached when the log has stored their line.
	unread bool

	messages, lines, bytes, payload, stored atomic.Int64
	g                                       *errgroup.Group
	err                                     atomic.Pointer[error]
}

func (s *scripServer) listener(ctx context.Context, unread bool) (*listener, error) {
	li := &listener{s: s, ends: make([]atomic.Uint64, s.desc.Lanes), unread: unread, g: &errgroup.Group{}}
	ends, err := s.ends(ctx, topology.RmdStream)
	for lane, end := range ends {
		li.ends[lane].Store(end)
	}
	return li, err
}

// published waits until no reminder is pending or on its way to the reminder streams.
func (s *scripServer) published(ctx context.Context) error {
	if err := s.known(ctx, 0, nil); err != nil {
		return err
	}
	return poll(ctx, s.proc, knownEvery, func() error {
		n, err := s.metric(ctx, "scrip_scheduler_outstanding")
		if err == nil && n > 0 {
			err = fmt.Errorf("%w: %.0f reminders are not on their streams", errWaiting, n)
		}
		return err
	})
}

// listen starts counting. ctx ends it.
func (li *listener) listen(ctx context.Context, l *ledger) error {
	s := li.s
	for lane := range li.ends {
		messages, err := s.consume(ctx, topology.RmdStream(lane), li.ends[lane].Load())
		if err != nil {
			return err
		}
		li.g.Go(func() error {
			customers := make([]int, 0, limitLines)
			for {
				m, err := messages.Next()
				if err == nil {
					err = li.take(lane, m, l, &customers)
				}
				if err != nil {
					if ctx.Err() == nil {
						li.err.Store(&err)
					}
					return nil
				}
			}
		})
	}
	return nil
}

var customerField = []byte(`"customer_id":"`)

// take counts a message.
func (li *listener) take(lane int, m jetstream.Msg, l *ledger, customers *[]int) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	*customers = (*customers)[:0]
	for line := range bytes.Lines(m.Data()) {
		_, rest, ok := bytes.Cut(line, customerField)
		id, _, closed := bytes.Cut(rest, []byte{'"'})
		if !ok || !closed {
			return fmt.Errorf("a reminder without customer_id: %s", line)
		}
		n, err := numberOf(id)
		if err != nil {
			return err
		}
		*customers = append(*customers, n)
	}
	if li.unread {
		l.reachedAt(meta.Timestamp, lane, *customers...)
	} else {
		l.reach(lane, *customers...)
	}
	li.messages.Add(1)
	li.lines.Add(int64(len(*customers)))
	li.bytes.Add(int64(sizeOf(m)))
	li.payload.Add(int64(len(m.Data())))
	stored := meta.Timestamp.UnixNano()
	raise(&li.stored, stored, func(old int64) bool { return stored > old })
	li.ends[lane].Store(meta.Sequence.Stream)
	return nil
}

// reached waits until all lines that are on the streams now have been counted.
func (li *listener) reached(ctx context.Context) error {
	ends, err := li.s.ends(ctx, topology.RmdStream)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = poll(ctx, nil, readyEvery, func() error {
		for lane, end := range ends {
			if last := li.ends[lane].Load(); last < end {
				return fmt.Errorf("%w: the reminder stream of lane %d was read up to %d of %d", errWaiting, lane, last, end)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := li.err.Load(); err != nil {
		return fmt.Errorf("reading the reminder streams: %w", *err)
	}
	return nil
}

func (li *listener) wait() { _ = li.g.Wait() }

// besideClaims are claims of another campaign at an even pace.
type besideClaims struct {
	begun time.Time
	pace
	took []time.Duration // of each, from when it was to be sent; 0 = not sent
}

// besideFor is how long claims are sent beside at most.
const besideFor = time.Minute

// claimBeside begins to claim, quiet before the instant, until stop is closed. wait returns when all are answered.
func (o options) claimBeside(ctx context.Context, b *bench, rate float64, at time.Time, stop <-chan struct{}) (c *besideClaims, wait func() error) {
	var g errgroup.Group
	if rate <= 0 {
		return &besideClaims{}, g.Wait
	}
	n := int(rate * besideFor.Seconds())
	c = &besideClaims{pace: pace{n: n, limit: besideFor, rate: rate, stop: stop}, took: make([]time.Duration, n)}
	p := newPlan(workload{name: "beside", unit: "claims", style: bulk, campaigns: 1}, "beside", n, o.seed)
	g.Go(func() error {
		if err := b.scrip.create(ctx, p); err != nil {
			return err
		}
		p.created = true
		if err := until(ctx, at.Add(-quiet)); err != nil {
			return err
		}
		_, err := o.claimAt(ctx, b, p, c.pace, func(i int) {
			if i == 0 {
				c.begun = time.Now()
			}
		}, func(i int, took time.Duration) { c.took[i] = took })
		return err
	})
	return c, g.Wait
}

// split keeps the claims before an instant apart from those within some time after it, or within a second.
func (c *besideClaims) split(at time.Time, length time.Duration) (before, during Latency) {
	quietly, busy := newLatencies(), newLatencies()
	for i, took := range c.took {
		switch after := c.begun.Add(c.meant(i)).Sub(at); {
		case took == 0:
		case after < 0:
			quietly.record(i, took)
		case after < max(length, time.Second):
			busy.record(i, took)
		}
	}
	return quietly.result(), busy.result()
}
