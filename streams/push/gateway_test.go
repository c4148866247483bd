package push_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// While a gateway is away it gets a probe now and then, and no message becomes a dead letter. Afterwards every customer is
// delivered to once. The probes of an hour are counted with the gate alone, see TestTheGateOpensForProbes.
func TestTheGatewayIsAway(t *testing.T) {
	r := newRig(t, 2)
	b := newBook()
	clock := streamtest.NewClock()
	var back atomic.Bool
	s := r.sender(t, push.Options{Workers: 4, Unacked: 16, Pause: 2 * time.Second, Clock: clock}, func(ctx context.Context, batch []push.Reminder) error {
		if !back.Load() {
			return &push.Away{Err: errAway}
		}
		return b.push(ctx, batch)
	})
	const messages = 60
	for i := range messages {
		r.fire(t, i%2, names(fmt.Sprint(i), 3)...)
	}
	r.until(t, "the breaker opens", func() bool { return s.Stats().Away })
	for range 3 {
		next := s.Stats().Probe
		clock.Set(next)
		r.until(t, "the probe failed", func() bool { return s.Stats().Probe.After(next) })
	}
	back.Store(true)
	clock.Move(time.Hour)
	// A worker that enters the gate beside a move of the clock begins to wait for the next probe after it.
	streamtest.Eventually(t, "everybody is delivered to", func() bool { clock.Move(10 * time.Second); return b.size() == 3*messages })
	r.settled(t, "test")
	b.once(t, 3*messages)
	if st := s.Stats(); st.Dead != 0 || st.Away || len(r.letters(t, "")) != 0 {
		t.Errorf("%+v", st)
	}
}

// A campaign whose calls only fail does not delay others of its lane: the good one after it comes before any second try.
func TestAFailingCampaignDelaysNoOther(t *testing.T) {
	r := newRig(t, 1)
	b := newBook()
	for i := range 40 {
		r.fireOf(t, 0, "bad", "", fmt.Sprint("bad-", i))
	}
	r.fireOf(t, 0, "good", "", "good")
	s := r.sender(t, push.Options{Unacked: 8, Workers: 4, Tries: 4, Pause: time.Hour}, func(ctx context.Context, batch []push.Reminder) error {
		if batch[0].Campaign == "bad" {
			return errAway
		}
		return b.push(ctx, batch)
	})
	r.until(t, "the good one is delivered", func() bool { return b.deliveries("good") == 1 })
	if st := s.Stats(); st.Dead != 0 || st.FailedTries > 40 {
		t.Errorf("%+v", st)
	}
}

// A message of several campaigns that fails as a whole is divided, so that the good ones are delivered.
func TestAMixedMessageIsDivided(t *testing.T) {
	r := newRig(t, 1)
	r.fireLines(t, 0, "", dueOf("good", 1, "ann"), dueOf("bad", 1, "bob"), dueOf("good", 2, "cid"))
	b := newBook()
	s := r.sender(t, push.Options{Tries: 3}, func(ctx context.Context, batch []push.Reminder) error {
		if slices.ContainsFunc(batch, func(r push.Reminder) bool { return r.Campaign == "bad" }) {
			return &push.Refused{Err: errAway}
		}
		return b.push(ctx, batch)
	})
	r.until(t, "a dead letter", func() bool { return s.Stats().Dead == 1 })
	r.settled(t, "test")
	if l := r.letters(t, "test"); len(l) != 1 || customers(l[0]) != "bob" || b.deliveries("ann") != 1 || b.deliveries("cid") != 1 {
		t.Errorf("dead letters %+v, delivered %v", l, b.names)
	}
}

// A message of high priority is delivered before a backlog of low priority that fired earlier.
func TestHighPriorityOvertakes(t *testing.T) {
	r := newRig(t, 1)
	var mu sync.Mutex
	var order []string
	started, finish := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(started); <-finish })
	s := r.sender(t, push.Options{Workers: 1, Unacked: 4}, func(_ context.Context, batch []push.Reminder) error {
		first()
		mu.Lock()
		defer mu.Unlock()
		order = append(order, batch[0].CustomerID)
		return nil
	})
	const backlog = 50
	for i := range backlog {
		r.fireOf(t, 0, "some", "low", fmt.Sprint("low-", i))
	}
	<-started
	r.fireOf(t, 0, "urgent", "high", "high")
	r.fireOf(t, 0, "usual", "", "normal")
	r.until(t, "the sender has seen all of them", func() bool {
		at, ok := r.positions(t, "test")
		return ok && at[0].Waiting == backlog+2+backlog+1 && // in the stream, after the first, and set aside
			s.Stats().InFlight == 4 // the first, and one of each class
	})
	close(finish)
	r.until(t, "all are delivered", func() bool { return s.Stats().Pushed == backlog+2 })
	r.settled(t, "test")
	mu.Lock()
	defer mu.Unlock()
	if at := slices.Index(order, "high"); at > 8 {
		t.Errorf("high was delivered as number %d: %v", at+1, order)
	}
	if at := slices.Index(order, "normal"); at > 12 {
		t.Errorf("normal was delivered as number %d: %v", at+1, order)
	}
	if len(order) != backlog+2 {
		t.Errorf("delivered %v", order)
	}
}

// The consumer is removed under a running sender, which goes on where it was; and while none runs, also if Since is later.
func TestConsumerLost(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%t", running), func(t *testing.T) {
			r := newRig(t, 1)
			b := newBook()
			hold := make(chan struct{})
			var held atomic.Bool
			held.Store(true)
			f := func(ctx context.Context, batch []push.Reminder) error {
				if b.size() > 0 && held.Load() {
					select {
					case <-hold:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return b.push(ctx, batch)
			}
			opts := push.Options{Workers: 1, Grace: -1, AckWait: short}
			s := r.sender(t, opts, f)
			for i := range 20 {
				r.fire(t, 0, fmt.Sprint("c-", i))
			}
			r.until(t, "the first is delivered", func() bool { return b.size() >= 1 })
			if !running {
				streamtest.Must(t, s.stop())
			}
			streamtest.Must(t, r.js.DeleteConsumer(within(t), topology.RmdStream(0), "test"))
			held.Store(false)
			close(hold)
			if !running {
				opts.Since = push.From(time.Now().Add(time.Hour))
				s = r.sender(t, opts, f)
			}
			r.fire(t, 0, "c-20")
			r.until(t, "everybody is delivered to", func() bool { return b.size() == 21 })
			r.settled(t, "test")
			if st := s.Stats(); st.Dead != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// What waits for longer than MaxAge becomes a dead letter without a call; what fired before the name was used counts from then.
func TestMaxAge(t *testing.T) {
	r := newRig(t, 1)
	clock := streamtest.NewClock()
	clock.Move(48 * time.Hour)
	r.fire(t, 0, "before")
	b := newBook()
	var away atomic.Bool
	s := r.sender(t, push.Options{MaxAge: time.Hour, Clock: clock, Workers: 1}, func(ctx context.Context, batch []push.Reminder) error {
		if away.Load() {
			return &push.Away{Err: errAway}
		}
		return b.push(ctx, batch)
	})
	r.until(t, "the one from before is delivered", func() bool { return b.deliveries("before") == 1 })
	away.Store(true)
	r.fire(t, 0, "late")
	r.until(t, "the gateway is away", func() bool { return s.Stats().Away })
	clock.Move(2 * time.Hour)
	r.until(t, "a dead letter", func() bool { clock.Move(time.Minute); return s.Stats().Dead == 1 })
	r.settled(t, "test")
	if l := r.letters(t, "test"); len(l) != 1 || customers(l[0]) != "late" || !strings.Contains(l[0].Error, "too old") {
		t.Errorf("dead letters %+v", l)
	}
}
