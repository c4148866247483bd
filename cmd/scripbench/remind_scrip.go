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

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// quiet is how long claims are looked at before the instant, and at least from it on.
const quiet = 2 * time.Second

// remindScrip subscribes n customers and counts them on the reminder streams. They are reached when a bare consumer there
// has their line.
func remindScrip(ctx context.Context, o options, st *stand, j dueJob) (m DueRun, err error) {
	s, u := st.scrip, newSubscriptions("remind", j.campaigns)
	// As much time as subscribing, and the read tables after it, take; if more is needed the opening is moved.
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
	fmt.Fprintf(o.progress, "remind: %s subscriptions are pending\n", thousands(float64(j.n)))
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
	work := func(ctx context.Context) (DueRun, error) {
		if err := s.told(ctx); err != nil {
			return DueRun{}, err
		}
		return DueRun{}, listener.listen(listening, l)
	}
	if !j.unread {
		if err := listener.listen(listening, l); err != nil {
			return m, err
		}
		work = l.waitAnd
	}
	claims, err := o.claimBeside(ctx, st, j.claims, at)
	if err != nil {
		return m, err
	}
	usage, err := measured(ctx, s, at, work)
	if err == nil && j.unread {
		err = l.wait(ctx)
	}
	claimed, claimsErr := claims(err == nil)
	if err != nil {
		return m, err
	}
	if claimsErr != nil {
		return m, fmt.Errorf("claims beside: %w", claimsErr)
	}
	// Whatever is on the streams by now must have been counted, so that a repeat behind the last line is seen.
	if err := s.known(ctx, 0, nil); err != nil {
		return m, err
	}
	if err := listener.reached(ctx); err != nil {
		return m, err
	}
	if m, err = l.result(); err != nil {
		return m, err
	}
	m = usage.with(m)
	seen.Before, seen.During = claimed.split(at, time.Duration(m.All*float64(time.Second)))
	seen.Messages, seen.Lines, seen.Bytes = int(listener.messages.Load()), int(listener.lines.Load()), listener.bytes.Load()
	seen.Line = time.Unix(0, listener.stored.Load()).Sub(at).Seconds()
	*j.grown = grown{messages: seen.Messages, lines: seen.Lines, bytes: int(listener.payload.Load())}
	m.Scrip = &seen
	return m, s.fired(ctx, events, j.n, at, &seen)
}

// subscribe feeds subscriptions and says how far it is.
func (o options) subscribe(ctx context.Context, s *scripServer, u subscriptions, from, to int) error {
	var fed atomic.Int64
	began := time.Now()
	over, stop := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(tellEvery)
		defer tick.Stop()
		for {
			select {
			case <-over.Done():
				return
			case <-tick.C:
				n := float64(fed.Load())
				fmt.Fprintf(o.progress, "subscribing: %s of %s, %s a second\n", thousands(n), thousands(float64(to-from)), thousands(n/time.Since(began).Seconds()))
			}
		}
	})
	err := u.feed(ctx, s, from, to, &fed)
	stop()
	telling.Wait()
	return err
}

// tellEvery is how often progress is told of what takes minutes.
const tellEvery = 10 * time.Second

// fired looks for the events that fired the reminders.
func (s *scripServer) fired(ctx context.Context, ends []uint64, n int, at time.Time, seen *ScripDue) error {
	var ev domain.Event
	var fired, dropped uint64
	err := s.tail(ctx, topology.EvtStream, ends, func(m jetstream.Msg, stored time.Time) error {
		for line := range bytes.Lines(m.Data()) {
			if !bytes.HasPrefix(line, []byte(`{"type":"reminders.due"`)) {
				continue
			}
			if err := domain.ParseEvent(bytes.TrimSuffix(line, []byte{'\n'}), &ev); err != nil {
				return err
			}
			if ev.DueAt != domain.At(at) {
				return fmt.Errorf("reminders were due at %s, meant was %s", ev.DueAt, domain.At(at))
			}
			fired, dropped = fired+ev.Fired, dropped+ev.Dropped
			seen.Event = max(seen.Event, stored.Sub(at).Seconds())
		}
		return nil
	})
	if err == nil && (fired != uint64(n) || dropped != 0) {
		err = fmt.Errorf("the log says that %d of %d reminders fired and %d were dropped", fired, n, dropped)
	}
	return err
}

// waitAnd waits, and has nothing to tell: the result is taken later.
func (l *ledger) waitAnd(ctx context.Context) (DueRun, error) { return DueRun{}, l.wait(ctx) }

// listener counts what is on the reminder streams, from where they end when it begins.
type listener struct {
	s    *scripServer
	ends []atomic.Uint64 // of each lane: the last message counted
	// unread: customers are reached when the log has stored their line.
	unread bool

	messages, lines, bytes, payload, stored atomic.Int64
	g                                       *errgroup.Group
	err                                     atomic.Pointer[error]
}

// listener is to count from here on.
func (s *scripServer) listener(ctx context.Context, unread bool) (*listener, error) {
	li := &listener{s: s, ends: make([]atomic.Uint64, s.desc.Lanes), unread: unread, g: &errgroup.Group{}}
	ends, err := s.ends(ctx, topology.RmdStream)
	for lane, end := range ends {
		li.ends[lane].Store(end)
	}
	return li, err
}

// told waits until nothing is pending nor on its way to the reminder streams.
func (s *scripServer) told(ctx context.Context) error {
	if err := s.known(ctx, 0, nil); err != nil {
		return err
	}
	tick := time.NewTicker(knownEvery)
	defer tick.Stop()
	for {
		n, err := s.metric(ctx, "scrip_scheduler_outstanding")
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-s.proc.gone:
			return s.proc.died()
		case <-ctx.Done():
			return fmt.Errorf("%.0f reminders are not on their streams: %w", n, context.Cause(ctx))
		}
	}
}

// listen begins to count. ctx ends it.
func (li *listener) listen(ctx context.Context, l *ledger) error {
	s := li.s
	for lane := range li.ends {
		end := li.ends[lane].Load()
		consumer, err := s.js.OrderedConsumer(ctx, topology.RmdStream(lane), jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: end + 1,
		})
		if err != nil {
			return err
		}
		messages, err := consumer.Messages()
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, messages.Stop)
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

// reached waits until all that is on the streams now has been counted.
func (li *listener) reached(ctx context.Context) error {
	ends, err := li.s.ends(ctx, topology.RmdStream)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for lane, end := range ends {
		for li.ends[lane].Load() < end {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("the reminder stream of lane %d was read up to %d of %d: %w", lane, li.ends[lane].Load(), end, context.Cause(ctx))
			}
		}
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
	rate  float64
	took  []time.Duration // of each, from when it was meant to be sent; 0 = not sent
}

// claimBeside begins to claim, quiet before the instant. The function that it returns ends that, some time after
// everybody was reached, and says what was seen; wait = false ends it at once.
func (o options) claimBeside(ctx context.Context, st *stand, rate float64, at time.Time) (end func(wait bool) (*besideClaims, error), err error) {
	c := &besideClaims{rate: rate}
	if rate <= 0 {
		return func(bool) (*besideClaims, error) { return c, nil }, nil
	}
	p := newPlan(workload{name: "beside", unit: "claims", style: crowd, campaigns: 1}, "beside", int(rate*besideFor.Seconds()), o.seed)
	j, err := recipes[0].open(ctx, st, p, 1)
	if err != nil {
		return nil, err
	}
	c.took = make([]time.Duration, p.n)
	stream := j.stream
	j.stream = func(ctx context.Context, i int, done func(answer)) error {
		if i == 0 {
			c.begun = time.Now()
		}
		meant := c.meant(i)
		return stream(ctx, i, func(a answer) {
			c.took[i] = time.Since(meant)
			done(a)
		})
	}
	stop, result := make(chan struct{}), make(chan error, 1)
	go func() {
		if err := until(ctx, at.Add(-quiet)); err != nil {
			result <- err
			return
		}
		d, err := drive(ctx, j, pace{n: p.n, limit: besideFor, rate: rate, stop: stop})
		j.close()
		if err == nil {
			_, err = count(p, d.answers)
		}
		result <- err
	}()
	return func(wait bool) (*besideClaims, error) {
		if wait {
			if err := until(ctx, at.Add(quiet)); err != nil {
				return nil, err
			}
		}
		close(stop)
		return c, <-result
	}, nil
}

// meant is when claim i was to be sent.
func (c *besideClaims) meant(i int) time.Time {
	return c.begun.Add(time.Duration(float64(i) / c.rate * float64(time.Second)))
}

// besideFor is how long claims are made beside at most.
const besideFor = time.Minute

// split keeps the claims before an instant apart from those within some time after it, or within a second.
func (c *besideClaims) split(at time.Time, length time.Duration) (before, during Latency) {
	quietly, busy := newLatencies(), newLatencies()
	for i, took := range c.took {
		switch after := c.meant(i).Sub(at); {
		case took == 0:
		case after < 0:
			quietly.record(i, took)
		case after < max(length, time.Second):
			busy.record(i, took)
		}
	}
	return quietly.result(), busy.result()
}
