package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/fanout"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// fired makes an event log in which n reminders of one campaign have fired, with none there to publish them.
func fired(r *rig, n int) {
	r.t.Helper()
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, n, "50s")
	r.clock.set(start + seconds(50))
	cmd := wire.Command{ID: "s", Type: wire.RemindDue, Campaign: "a", Kind: wire.KindOpens, DueAt: start + seconds(50), ThroughR: uint64(n)}
	r.answer(append(cmd.AppendJSON(nil), '\n'))
	r.mu.Lock()
	r.requests, r.messages = nil, 0
	r.mu.Unlock()
}

// eachOnce checks that customers c1 to c<n> were published, each once and in order.
func eachOnce(t *testing.T, published []wire.Event, n int) {
	t.Helper()
	if len(published) != n {
		t.Fatalf("%d published, expected %d", len(published), n)
	}
	for i := range published {
		if want := fmt.Sprintf("c%d", i+1); published[i].CustomerID != want {
			t.Fatalf("published %s in place %d, expected %s", published[i].CustomerID, i+1, want)
		}
	}
}

// newFan is a fan-out as Run makes one, to be crashed by hand.
func (r *rig) newFan(ackWait time.Duration) *fanout.Fan {
	r.t.Helper()
	stream := eventlog.Reminders(r.js, 0).In(r.sealed())
	a, err := stream.NewAppender(ackWait)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(a.Close)
	tail, err := stream.Tail(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	f := &fanout.Fan{
		Queue:  fanout.Queue{Sealer: stream.Sealer(), Owner: fmt.Sprintf("fan-%p", a), Last: tail.Last, Chained: true},
		Stream: stream, Appender: a, Pace: fanout.NewPace(nil), Now: time.Now, Timer: func(d time.Duration) (<-chan time.Time, func()) { return time.After(d), func() {} },
		Published: prometheus.NewCounter(prometheus.CounterOpts{Name: "published"}), Total: new(atomic.Uint64), Log: streamtest.Logger(r.t),
	}
	if tail.Message != nil {
		f.Reached = tail.Message.Source
	}
	return f
}

// expandAll hands a fan the firing of the log that fired made, up to customer upTo.
func (r *rig) expandAll(ctx context.Context, f *fanout.Fan, upTo int) error {
	r.t.Helper()
	b := timers.New("")
	reader, err := eventlog.Events(r.js, 0).Open(r.t.Context(), r.log, eventlog.Position{Log: r.log}, eventlog.ReaderOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer reader.Close()
	return reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			for n, line := range eventlog.Lines(batch[i].Payload) {
				var ev wire.Event
				if err := wire.ParseEvent(line, &ev); err != nil {
					return err
				}
				gone, err := b.Fold(&ev)
				if err != nil {
					return err
				}
				if ev.Fired > 0 {
					f.Add(&batch[i], n+1, &ev, timers.Normal, gone[:min(len(gone), upTo)])
				}
			}
		}
		for f.Waiting() > 0 { // all of it on its way, but not landed
			again, err := f.Pump(ctx)
			if err != nil {
				return err
			}
			if f.Waiting() > 0 {
				if err := f.Wait(ctx, again); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Wherever the fan-out dies, the next one goes on after what was stored: every customer is on the stream once.
func TestFanOutCrashes(t *testing.T) {
	const customers = 1700
	for _, c := range []struct {
		name    string
		crash   func(*testing.T, *rig)
		certain int // messages that must have landed before the restart
	}{
		{"BeforePublishing", func(*testing.T, *rig) {}, 0},
		{"AfterTheFirstMessage", func(t *testing.T, r *rig) {
			f := r.newFan(0)
			if err := errors.Join(r.expandAll(t.Context(), f, 500), f.Settle(t.Context())); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"InTheMiddleOfTheExpansion", func(t *testing.T, r *rig) {
			f := r.newFan(0)
			if err := errors.Join(r.expandAll(t.Context(), f, 1500), f.Settle(t.Context())); err != nil {
				t.Fatal(err)
			}
		}, 3},
		{"PublishedWithoutAcknowledgement", func(t *testing.T, r *rig) {
			f := r.newFan(0)
			if err := r.expandAll(t.Context(), f, customers); err != nil {
				t.Fatal(err)
			}
			f.Appender.Close() // whatever is on its way lands, or does not, behind our back
		}, 0},
		{"AfterAllOfIt", func(t *testing.T, r *rig) {
			f := r.newFan(0)
			if err := errors.Join(r.expandAll(t.Context(), f, customers), f.Settle(t.Context())); err != nil {
				t.Fatal(err)
			}
		}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			fired(r, customers)
			c.crash(t, r)
			if landed := len(r.reminderMessages()); landed < c.certain {
				t.Fatalf("%d messages landed before the crash, expected %d", landed, c.certain)
			}
			// As the lease manager does: a scheduler that lost to what was still on its way competes again.
			for done := false; !done; {
				run := r.run(r.scheduler())
				streamtest.Eventually(t, "all published, or lost", func() bool {
					select {
					case <-run.done:
						return true
					default:
						done = len(r.published()) >= customers && r.value("folded_sequence") > 0
						return done
					}
				})
				if !done && !errors.Is(run.err, fanout.ErrLost) {
					t.Fatalf("Run ended with %v", run.err)
				}
				if done {
					run.stop()
				}
			}
			eachOnce(t, r.published(), customers)
			for _, m := range r.reminderMessages() {
				if n := strings.Count(string(m.Payload), "\n"); n > 500 {
					t.Errorf("message %d publishes %d customers", m.Sequence, n)
				}
			}
			if len(r.requested()) != 0 {
				t.Errorf("requested %v of a log with nothing due", sortedLines(r.requested()))
			}
		})
	}
}

// The process dies again and again, each time somewhere in the pipeline.
func TestFanOutDiesAtEveryMessage(t *testing.T) {
	const customers = 4100 // nine messages
	r := newRig(t)
	fired(r, customers)
	for n := 1; len(r.published()) < customers; n++ {
		if n > 50 {
			t.Fatalf("%d published after %d lives", len(r.published()), n)
		}
		ctx, die := context.WithCancel(t.Context())
		f := r.newFan(0)
		f.Stored = func(uint64) { die() }
		err := r.expandAll(ctx, f, customers)
		if err == nil {
			err = f.Settle(ctx)
		}
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, fanout.ErrLost) {
			t.Fatal(err)
		}
		f.Appender.Close()
		die()
	}
	eachOnce(t, r.published(), customers)
}

// No acknowledgement ever arrives in time: what became of each publish is found out from the stream.
func TestFanOutWithoutAcknowledgements(t *testing.T) {
	const customers = 1700
	r := newRig(t)
	fired(r, customers)
	f := r.newFan(time.Nanosecond)
	if err := errors.Join(r.expandAll(t.Context(), f, customers), f.Settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	eachOnce(t, r.published(), customers)
	if f.InFlight() != 0 || f.Last != 4 {
		t.Errorf("%d on their way, the stream is thought to end at %d", f.InFlight(), f.Last)
	}
}

// A server that does not know the ID of its last message, as a replica that caught up, refuses what names it: the same goes
// out again by number alone.
func TestFanOutWhereTheLastIDIsForgotten(t *testing.T) {
	const customers = 1700
	r := newRig(t)
	fired(r, customers)
	f := r.newFan(0)
	f.LastID = "forgotten"
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := errors.Join(r.expandAll(ctx, f, customers), f.Settle(ctx)); err != nil {
		t.Fatal(err)
	}
	eachOnce(t, r.published(), customers)
}

// Two fan-outs of one lane at once: the fence lets one through, the other finds out that it lost.
func TestTwoFanOuts(t *testing.T) {
	const customers = 20000
	r := newRig(t)
	fired(r, customers)
	one, two := r.newFan(0), r.newFan(0)
	errs := make(chan error, 2)
	for _, f := range []*fanout.Fan{one, two} {
		go func() { errs <- errors.Join(r.expandAll(t.Context(), f, customers), f.Settle(t.Context())) }()
	}
	lost := 0
	for range 2 {
		if err := <-errs; errors.Is(err, fanout.ErrLost) {
			lost++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if lost == 0 {
		t.Error("none lost")
	}
	if lost == 2 { // each published before the other's first message was refused; whatever takes the lane goes on
		r.run(r.scheduler())
	}
	eachOnce(t, r.waitPublished(customers), customers)
	owners := map[string]bool{}
	for _, m := range r.reminderMessages() {
		owners[m.Owner] = true
	}
	if lost == 1 && len(owners) != 1 {
		t.Errorf("the stream has messages of %d owners", len(owners))
	}
}

// A zombie: its lane was taken while it slept, and it wakes in the middle of an expansion.
func TestZombieFanOut(t *testing.T) {
	const customers = 1700
	r := newRig(t)
	fired(r, customers)
	zombie := r.newFan(0)
	if err := errors.Join(r.expandAll(t.Context(), zombie, 500), zombie.Settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	run := r.run(r.scheduler())
	r.waitPublished(customers)
	run.stop()
	err := r.expandAll(t.Context(), zombie, customers)
	if err == nil {
		err = zombie.Settle(t.Context())
	}
	if !errors.Is(err, fanout.ErrLost) {
		t.Errorf("the zombie ended with %v", err)
	}
	eachOnce(t, r.published(), customers)
}

// A whole Run that loses its reminder stream ends with fanout.ErrLost, so that the lease is given up.
func TestRunLosesItsStream(t *testing.T) {
	r := newRig(t)
	fired(r, 10)
	run := r.run(r.scheduler())
	r.waitPublished(10)
	other := r.newFan(0)
	m := r.reminderMessages()[0]
	h := eventlog.Header{Owner: "other", Source: m.Source, SourceDigest: m.SourceDigest}
	if _, err := other.Appender.Publish(t.Context(), eventlog.Attempt{Expected: 1, Header: other.Sealer.Encode(h, 2, nil)}); err != nil {
		t.Fatal(err)
	}
	r.remind("a", 11, 12, "20s")
	r.seen()
	r.clock.set(start + seconds(80))
	if err := run.fails(); !errors.Is(err, fanout.ErrLost) {
		t.Errorf("Run ended with %v", err)
	}
}
