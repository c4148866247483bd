package push_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// dies runs a sender whose process dies after f in its first call, or, where OnDead is set, when it has written a dead letter.
func (r *rig) dies(t *testing.T, opts push.Options, f func([]push.Reminder)) {
	t.Helper()
	var dying *sender
	ready := make(chan struct{})
	refuses := opts.OnDead != nil
	if opts.Grace = -1; refuses {
		opts.OnDead = func(push.DeadLetter) { dying.conn.Close() }
	}
	dying = r.sender(t, opts, func(_ context.Context, batch []push.Reminder) error {
		<-ready
		if f(batch); refuses {
			return &push.Refused{Err: errAway}
		}
		dying.conn.Close()
		return nil
	})
	close(ready)
	<-dying.done
	if !errors.Is(dying.err, nats.ErrConnectionClosed) && !errors.Is(dying.err, jetstream.ErrConnectionClosed) {
		t.Errorf("Run returned %v", dying.err)
	}
}

// A process dies before the push, or after it and before the acknowledgement: another one delivers to the same customers, under
// the same keys.
func TestDiesAroundThePush(t *testing.T) {
	for _, delivered := range []bool{false, true} {
		t.Run(fmt.Sprintf("before=%t", delivered), func(t *testing.T) {
			r := newRig(t, 1)
			r.fire(t, 0, "ann")
			b := newBook()
			r.dies(t, push.Options{AckWait: short}, func(batch []push.Reminder) {
				if delivered {
					b.record(batch)
				}
			})
			s := r.sender(t, push.Options{AckWait: short}, b.push)
			r.until(t, "the reminder of ann is delivered by the other", func() bool { return s.Stats().Pushed == 1 })
			r.settled(t, "test")
			want := 1
			if delivered {
				want = 2
			}
			if b.size() != 1 || b.deliveries("ann") != want {
				t.Errorf("deliveries %v", b.keys)
			}
		})
	}
}

// A process dies between the dead letter and the acknowledgement: there is one dead letter, and no other try.
func TestDiesAfterTheDeadLetter(t *testing.T) {
	r := newRig(t, 1)
	r.fire(t, 0, "ann")
	b := newBook()
	r.dies(t, push.Options{AckWait: short, Tries: 1, OnDead: func(push.DeadLetter) {}}, b.record)
	s := r.sender(t, push.Options{AckWait: short, Tries: 5}, b.push)
	r.until(t, "the message came again", func() bool { return s.Stats().Repeated == 1 })
	r.settled(t, "test")
	if l := r.letters(t, "test"); len(l) != 1 || b.deliveries("ann") != 1 {
		t.Errorf("dead letters %+v; tried %d times", l, b.deliveries("ann"))
	}
}

// A log that was restored uses sequences again: a letter of the former message at that sequence is about another one.
func TestALetterOfBefore(t *testing.T) {
	r := newRig(t, 1)
	seq := r.fire(t, 0, "ann")
	b := newBook()
	fails := func(ctx context.Context, batch []push.Reminder) error {
		b.record(batch)
		return &push.Refused{Err: errAway}
	}
	s := r.sender(t, push.Options{Name: "other", Since: push.FromStart()}, b.push) // makes the stream of letters
	r.until(t, "the reminder of ann is delivered", func() bool { return s.Stats().Pushed == 1 })
	old := nats.NewMsg(fmt.Sprintf("scrip.push.dead.test.0.%d.12345.0", seq))
	old.Header.Set("Scrip-Push-Tries", "1")
	if _, err := r.js.PublishMsg(within(t), old); err != nil {
		t.Fatal(err)
	}
	s = r.sender(t, push.Options{Tries: 2}, fails)
	r.until(t, "a dead letter", func() bool { return s.Stats().Dead == 1 })
	r.settled(t, "test")
	if l := r.letters(t, "test"); len(l) != 2 || customers(l[0])+customers(l[1]) != "ann" || b.deliveries("ann") != 3 {
		t.Errorf("dead letters %+v; tried %d times", l, b.deliveries("ann"))
	}
}

// returned lets NATS deliver the message of lane 0 so often, as at clean stops and after crashes.
func (r *rig) returned(t *testing.T, times int) {
	t.Helper()
	c, err := r.js.Consumer(within(t), topology.RmdStream(0), "test")
	streamtest.Must(t, err)
	for range times {
		m, err := c.Next()
		streamtest.Must(t, err)
		streamtest.Must(t, m.Nak())
	}
}

// known starts a name and ends it, so that its consumers are there.
func (r *rig) known(t *testing.T, opts push.Options) {
	t.Helper()
	s := r.sender(t, opts, newBook().push)
	r.until(t, "the consumer is there", func() bool { _, ok := r.positions(t, "test"); return ok })
	streamtest.Must(t, s.stop())
}

// A message that kills every process that handles it leaves its dead letter, and is then not tried any more.
func TestAMessageThatKills(t *testing.T) {
	r := newRig(t, 1)
	opts := push.Options{Tries: 2, AckWait: short}
	r.known(t, opts)
	r.fire(t, 0, "poison", "poison too")
	r.returned(t, 4)
	b := newBook()
	r.dies(t, opts, b.record)
	s := r.sender(t, opts, b.push)
	r.until(t, "the letter is found", func() bool { return s.Stats().Repeated == 1 })
	r.settled(t, "test")
	if l := r.letters(t, "test"); len(l) != 1 || l[0].Tries != 4 || !strings.Contains(l[0].Error, "no process finished it") || customers(l[0]) != "poison poison too" || b.deliveries("poison") != 1 {
		t.Errorf("dead letters %+v; tried %d times", l, b.deliveries("poison"))
	}
}

// Restarts alone make no dead letter, however many: the message is tried, and its letter goes away again.
func TestRestartsMakeNoDeadLetter(t *testing.T) {
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprintf("refused=%t", refused), func(t *testing.T) {
			r := newRig(t, 1)
			opts := push.Options{Tries: 2}
			r.known(t, opts)
			r.fire(t, 0, "ann")
			r.returned(t, 20)
			b := newBook()
			s := r.sender(t, opts, func(_ context.Context, batch []push.Reminder) error {
				if b.record(batch); refused && b.deliveries("ann") == 1 {
					return &push.Refused{Err: errAway}
				}
				return nil
			})
			r.until(t, "ann is delivered", func() bool { return s.Stats().Pushed == 1 })
			r.settled(t, "test")
			if l := r.letters(t, "test"); len(l) != 0 || s.Stats().Dead != 0 {
				t.Errorf("dead letters %+v, %+v", l, s.Stats())
			}
		})
	}
}

// At the end calls under way may finish, within their grace; what waits for a worker is given back at once.
func TestStop(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		t.Run(fmt.Sprintf("finishes=%t", heeds), func(t *testing.T) {
			r := newRig(t, 2)
			b := newBook()
			started, finish := make(chan struct{}, 9), make(chan struct{})
			opts := push.Options{Workers: 1, Grace: 20 * time.Second}
			if !heeds {
				opts.Grace = 50 * time.Millisecond
			}
			s := r.sender(t, opts, func(ctx context.Context, batch []push.Reminder) error {
				started <- struct{}{}
				select {
				case <-finish:
					b.record(batch)
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			r.fire(t, 0, "ann")
			<-started
			r.fire(t, 1, "bob") // which this process may have in flight, too
			ended := make(chan error, 1)
			go func() { ended <- s.stop() }()
			if heeds {
				// AckWait is an hour: bob comes to the other because he was given back, or never taken.
				other := r.sender(t, opts, b.push)
				r.until(t, "the reminder of bob is delivered by another", func() bool { return other.Stats().Pushed == 1 })
				close(finish)
				streamtest.Must(t, <-ended)
				streamtest.Equal(t, "pushed by the one that ended", s.Stats().Pushed, 1)
			} else {
				streamtest.Must(t, <-ended)
				if st := s.Stats(); st.Pushed != 0 || st.FailedTries != 0 {
					t.Errorf("%+v", st)
				}
				r.sender(t, opts, b.push)
			}
			r.until(t, "both are delivered", func() bool { return b.size() == 2 })
			r.settled(t, "test")
			b.once(t, 2)
		})
	}
}

// Run ends while the undelivered of a message wait for their next try: another process delivers to those alone.
func TestStopInAPause(t *testing.T) {
	r := newRig(t, 1)
	r.fire(t, 0, "ann", "bob")
	b := newBook()
	clock := streamtest.NewClock()
	f := func(ctx context.Context, batch []push.Reminder) error {
		b.record(batch)
		if len(batch) == 2 {
			return &push.Partial{Failed: []int{0}, Err: errAway}
		}
		return nil
	}
	opts := push.Options{Pause: time.Hour, Clock: clock}
	s := r.sender(t, opts, f)
	r.until(t, "bob is delivered, ann waits", func() bool { return s.Stats().Pushed == 1 && s.Stats().InFlight == 0 })
	streamtest.Must(t, s.stop())
	other := r.sender(t, opts, f)
	r.until(t, "it waits", func() bool { at, ok := r.positions(t, "test"); return ok && at[0].Waiting == 1 })
	clock.Move(2 * time.Hour)
	r.settled(t, "test")
	if b.deliveries("ann") != 2 || b.deliveries("bob") != 1 || other.Stats().Pushed != 1 {
		t.Errorf("deliveries %v, %+v", b.names, other.Stats())
	}
}

// kills is how often TestServerKilled kills the server.
var kills = flag.Int("push.kills", 2, "how often TestServerKilled kills the server")

// The server is killed at random moments, between any two requests of the sender, while two calls are in progress and the other
// messages are set aside: all are delivered, each once, as the process recognises what NATS delivers again.
func TestServerKilled(t *testing.T) {
	t.Parallel() // it waits for AckWait
	server := startProcess(t)
	r := &rig{server: server}
	r.open(t, 2)
	b := newBook()
	started := make(chan struct{}, 99)
	var finish atomic.Pointer[chan struct{}]
	// NATS may forget a delivery when it is killed, and makes it again after AckWait.
	s := r.sender(t, push.Options{Workers: 2, AckWait: 2 * time.Second}, func(ctx context.Context, batch []push.Reminder) error {
		started <- struct{}{}
		<-*finish.Load()
		return b.push(ctx, batch)
	})
	want := 0
	for round := range *kills {
		gate := make(chan struct{})
		finish.Store(&gate)
		for i := range 12 {
			r.fire(t, i%2, names(fmt.Sprint(round, "-", i), 5)...)
			want += 5
		}
		<-started
		<-started
		<-time.After(time.Duration(rand.IntN(int(20 * time.Millisecond))))
		server.kill(t)
		close(gate)
		r.until(t, "the reminder of everybody is delivered", func() bool { return b.size() == want })
		r.settled(t, "test")
		for len(started) > 0 {
			<-started
		}
	}
	b.once(t, want)
	streamtest.Must(t, s.stop())
}

// Foreign messages on the stream are reported and ignored.
func TestForeign(t *testing.T) {
	r := newRig(t, 1)
	r.foreign(t, 0, nil, due("evil")+"\n")
	h := eventlog.Header{Owner: "test", Source: eventlog.Source{Sequence: 1, Line: 1, LastR: 1}, SourceDigest: strings.Repeat("0", 32)}
	r.publish(t, 0, h, "not JSON\n\n"+due("ann")+"\n"+`{"type":"reminder.due","campaign":"x","at":"2026-01-01T00:00:00Z","customer_ids":["eve","eva"],"r":[1]}`+"\n"+`{"type":"campaign.paused","campaign":"x","at":"2026-01-01T00:00:00Z"}`+"\n")
	r.publish(t, 0, h, "")
	r.fire(t, 0, "bob")
	var logged streamtest.Buffer
	b := newBook()
	s := r.sender(t, push.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, b.push)
	r.until(t, "the reminder of bob is delivered", func() bool { return b.deliveries("bob") == 1 })
	r.settled(t, "test")
	b.once(t, 2)
	if b.deliveries("ann") != 1 || s.Stats().Skipped != 4 {
		t.Errorf("deliveries %v, %+v", b.names, s.Stats())
	}
	for _, want := range []string{"sequence=1", "SCRIP_RMD_0", "line 1", "line 4", "line 5"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log does not contain %q:\n%s", want, logged.String())
		}
	}
}

// newer publishes what looks like a sealed message of a newer format.
func (r *rig) newer(t *testing.T, lane int) uint64 {
	t.Helper()
	return r.foreign(t, lane, nats.Header{topology.HeaderFormat: {"3"}, topology.HeaderSeal: {strings.Repeat("A", 43)}}, "?")
}

// A message of a newer format that is there already ends Run.
func TestNewerFormat(t *testing.T) {
	r := newRig(t, 1)
	r.newer(t, 0)
	s := r.sender(t, push.Options{}, newBook().push)
	<-s.done
	if !errors.Is(s.err, eventlog.ErrNewerFormat) || !strings.Contains(s.err.Error(), "use a newer scrip") {
		t.Errorf("Run returned %v", s.err)
	}
}

// TestAStoppedLaneGoesOn: at a message of a newer format that comes later the lane waits, and the others go on. Once an
// operator has it passed over, so does the lane, without a restart.
func TestAStoppedLaneGoesOn(t *testing.T) {
	r := newRig(t, 2)
	b := newBook()
	s := r.sender(t, push.Options{}, b.push)
	r.fire(t, 0, "ann")
	r.until(t, "the reminder of ann is delivered", func() bool { return s.Stats().Pushed == 1 })
	sequence := r.newer(t, 0)
	r.until(t, "the lane waits", func() bool { return s.Stats().Stopped == 1 })
	r.fire(t, 0, "bob")
	r.fire(t, 1, "cy")
	r.until(t, "the other lane goes on", func() bool { return b.deliveries("cy") == 1 })
	if b.deliveries("bob") != 0 || s.Stats().Stopped != 1 {
		t.Errorf("deliveries %v, %+v", b.names, s.Stats())
	}

	stream := eventlog.Reminders(r.js, 0).In(r.log.WithKey([32]byte{1}))
	hash, _, err := stream.CheckSkip(within(t), sequence)
	streamtest.Must(t, err)
	store, err := settings.Open(within(t), r.js, settings.Options{Logger: discard})
	streamtest.Must(t, err)
	streamtest.Must(t, store.Skip(within(t), stream.Name(), sequence, hash, "ann"))
	r.until(t, "the reminder of bob is delivered", func() bool { return b.deliveries("bob") == 1 })
	r.settled(t, "test")
	if got := s.Stats(); got.Stopped != 0 || got.Skipped != 1 || got.Pushed != 3 {
		t.Errorf("%+v", got)
	}

	// One that waits ends when it is to end, and gives the message back.
	r.newer(t, 0)
	r.until(t, "the lane waits again", func() bool { return s.Stats().Stopped == 1 })
	streamtest.Must(t, s.stop())
}

// The consumer is removed under a running sender, is another program's, or there is no log at all.
func TestNothingToWorkOn(t *testing.T) {
	t.Run("removed", func(t *testing.T) {
		r := newRig(t, 1)
		b := newBook()
		s := r.sender(t, push.Options{AckWait: short}, b.push)
		r.fire(t, 0, "ann")
		r.until(t, "the reminder of ann is delivered", func() bool { return s.Stats().Pushed == 1 })
		streamtest.Must(t, r.js.DeleteStream(within(t), topology.RmdStream(0)))
		<-s.done
		if !errors.Is(s.err, push.ErrGone) {
			t.Errorf("Run returned %v", s.err)
		}
	})
	t.Run("another's", func(t *testing.T) {
		r := newRig(t, 1)
		if _, err := r.js.CreateConsumer(within(t), topology.RmdStream(0), jetstream.ConsumerConfig{Durable: "test", AckPolicy: jetstream.AckNonePolicy}); err != nil {
			t.Fatal(err)
		}
		s := r.sender(t, push.Options{}, newBook().push)
		<-s.done
		if s.err == nil || !strings.Contains(s.err.Error(), "use another Name") {
			t.Errorf("Run returned %v", s.err)
		}
	})
	t.Run("no log", func(t *testing.T) {
		r := &rig{server: streamtest.Start(t)} // no log
		s := r.sender(t, push.Options{}, newBook().push)
		<-s.done
		if s.err == nil || !strings.Contains(s.err.Error(), "scrip serve") {
			t.Errorf("Run returned %v", s.err)
		}
	})
}

// TestAFullStreamOfDeadLettersLosesNothing: what was to be given up is not acknowledged, and so is delivered again.
func TestAFullStreamOfDeadLettersLosesNothing(t *testing.T) {
	r := newRig(t, 1)
	r.known(t, push.Options{})
	stream, err := r.js.Stream(within(t), push.DeadStream)
	streamtest.Must(t, err)
	full := stream.CachedInfo().Config
	full.MaxBytes = 10
	_, err = r.js.UpdateStream(within(t), full)
	streamtest.Must(t, err)
	r.fire(t, 0, "ann")
	opts := push.Options{Tries: 1, Grace: short} // what is given back waits for that
	s := r.sender(t, opts, func(context.Context, []push.Reminder) error { return &push.Refused{Err: errAway} })
	r.until(t, "a try failed", func() bool { return s.Stats().FailedTries == 1 })
	streamtest.Must(t, s.stop()) // after the attempt to store the letter
	c, err := r.js.Consumer(within(t), topology.RmdStream(0), "test")
	streamtest.Must(t, err)
	if info, err := c.Info(within(t)); err != nil || info.NumAckPending != 1 || info.AckFloor.Stream != 0 || len(r.letters(t, "test")) != 0 {
		t.Errorf("%+v, %v: letters %+v", info, err, r.letters(t, "test"))
	}
}
