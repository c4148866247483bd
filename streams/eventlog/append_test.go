package eventlog_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// onBoth runs a test on one server and on a cluster with three replicas: the fence works differently there.
func onBoth(t *testing.T, test func(t *testing.T, js jetstream.JetStream)) {
	t.Run("R1", func(t *testing.T) {
		js := streamtest.Start(t).JetStream(t)
		newLog(t, js, 1)
		test(t, js)
	})
	t.Run("R3", func(t *testing.T) {
		js := streamtest.StartCluster(t).JetStream(t)
		newLog(t, js, 3)
		test(t, js)
	})
}

func appender(t *testing.T, js jetstream.JetStream) *eventlog.Appender {
	t.Helper()
	a, err := eventlog.Events(js, lane).NewAppender(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func resolves(t *testing.T, js jetstream.JetStream, a eventlog.Attempt, want eventlog.Outcome) {
	t.Helper()
	got, err := eventlog.Events(js, lane).Resolve(t.Context(), a)
	if err != nil || got != want {
		t.Errorf("after %d: %v %v, want %v", a.Expected, got, err, want)
	}
}

// Two messages on their way, and another writer's comes before the first: the number of the second then fits, its ID does
// not. Before that, and after a server that was killed, what names its predecessor lands.
func TestChainedFence(t *testing.T) {
	s := streamtest.Start(t)
	js := s.JetStream(t)
	newLog(t, js, 1)
	mine, other := appender(t, js), appender(t, js)
	chained := func(owner string, n uint64, after string) eventlog.Attempt {
		a := attempt(owner, n, "x")
		a.ID, a.After = fmt.Sprintf("%s-%d", owner, n), after
		return a
	}
	for n, after := uint64(1), ""; n <= 3; n++ {
		a := chained("a", n, after)
		if seq, err := mine.Publish(t.Context(), a); err != nil || seq != n {
			t.Fatalf("message %d: %d, %v", n, seq, err)
		}
		after = a.ID
	}
	s.Kill(t)
	if _, err := eventlog.Events(js, lane).Bounds(t.Context()); err != nil { // retries until the server is back
		t.Fatal(err)
	}
	if seq, err := mine.Publish(t.Context(), chained("a", 4, "a-3")); err != nil || seq != 4 {
		t.Fatalf("after a kill: %d, %v", seq, err)
	}
	if _, err := other.Publish(t.Context(), chained("b", 5, "")); err != nil {
		t.Fatal(err)
	}
	first, second := mine.PublishAsync(chained("a", 5, "a-4")), mine.PublishAsync(chained("a", 6, "a-5"))
	for _, p := range []*eventlog.Pending{first, second} {
		if _, err := p.Result(); !errors.Is(err, eventlog.ErrConflict) {
			t.Errorf("after another's message: %v", err)
		}
	}
	resolves(t, js, first.Attempt, eventlog.Lost)
	if seq, err := other.Publish(t.Context(), chained("b", 6, "b-5")); err != nil || seq != 6 {
		t.Errorf("the other one: %d, %v", seq, err)
	}
}

func TestFence(t *testing.T) {
	onBoth(t, func(t *testing.T, js jetstream.JetStream) {
		write(t, js, "o", 1, 3)
		mine, other := appender(t, js), appender(t, js)

		// A stale writer, and one ahead of the stream.
		for _, n := range []uint64{2, 3, 9} {
			if _, err := mine.Publish(t.Context(), attempt("o", n, "x")); !errors.Is(err, eventlog.ErrConflict) {
				t.Errorf("step %d: %v", n, err)
			}
		}
		// Pipelined by one writer, each after the one before.
		var pending []*eventlog.Pending
		for n := uint64(4); n <= 20; n++ {
			pending = append(pending, mine.PublishAsync(attempt("o", n, "x")))
		}
		for i, p := range pending {
			if seq, err := p.Result(); err != nil || seq != uint64(i+4) {
				t.Fatalf("pipelined step %d: %d %v", i+4, seq, err)
			}
		}
		// Two writers at once: one wins, the other knows or finds out.
		won, lost := 0, 0
		for i := range uint64(20) {
			a, b := attempt("a", 21+i, "a"), attempt("b", 21+i, "b")
			pa, pb := mine.PublishAsync(a), other.PublishAsync(b)
			for _, p := range []*eventlog.Pending{pa, pb} {
				_, err := p.Result()
				switch {
				case err == nil:
					won++
					resolves(t, js, p.Attempt, eventlog.Landed)
				case errors.Is(err, eventlog.ErrConflict), errors.Is(err, eventlog.ErrUnknown): // 10071, 10164
					lost++
					streamtest.Eventually(t, "the loser finds out", func() bool {
						o, err := eventlog.Events(js, lane).Resolve(t.Context(), p.Attempt)
						return err == nil && o == eventlog.Lost
					})
				default:
					t.Errorf("%v", err)
				}
			}
		}
		if won != 20 || lost != 20 {
			t.Errorf("%d won, %d lost", won, lost)
		}
	})
}

// A write whose answer is lost landed or did not; publishing the same bytes again with the same fence is safe in
// either case.
func TestResolve(t *testing.T) {
	onBoth(t, func(t *testing.T, js jetstream.JetStream) {
		write(t, js, "o", 1, 2)
		a := appender(t, js)
		third := attempt("o", 3, "x")
		resolves(t, js, third, eventlog.Unchanged)
		if _, err := a.Publish(t.Context(), third); err != nil {
			t.Fatal(err)
		}
		resolves(t, js, third, eventlog.Landed)
		if _, err := a.Publish(t.Context(), third); !errors.Is(err, eventlog.ErrConflict) {
			t.Errorf("the same bytes twice: %v", err)
		}
		resolves(t, js, third, eventlog.Landed)
		resolves(t, js, attempt("p", 3, "x"), eventlog.Lost) // another nonce
		resolves(t, js, attempt("o", 3, "y"), eventlog.Lost) // another content
		resolves(t, js, attempt("o", 9, "x"), eventlog.Lost) // the stream ends before it
		resolves(t, js, attempt("o", 4, "x"), eventlog.Unchanged)
		if _, err := a.Publish(t.Context(), attempt("o", 4, "x")); err != nil {
			t.Fatal(err)
		}
		resolves(t, js, third, eventlog.Landed) // also with messages after it
	})
}

func TestPublishErrorsDiffer(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	a := appender(t, js)
	if _, err := a.Publish(t.Context(), attempt("o", 1, "x")); !errors.Is(err, eventlog.ErrUnknown) || !natsx.Transient(err) {
		t.Errorf("no stream: %v", err)
	}
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: topology.EvtStream(lane), Subjects: []string{topology.Evt(lane)}, MaxBytes: 2000, MaxMsgSize: 1500, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Publish(t.Context(), attempt("o", 1, string(make([]byte, 1400)))); !errors.Is(err, eventlog.ErrTooLarge) {
		t.Errorf("beyond the stream's limit: %v", err)
	}
	if _, err := a.Publish(t.Context(), attempt("o", 1, string(make([]byte, 2<<20)))); !errors.Is(err, eventlog.ErrTooLarge) {
		t.Errorf("beyond the server's limit: %v", err)
	}
	if _, err := a.Publish(t.Context(), attempt("o", 1, string(make([]byte, 1000)))); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Publish(t.Context(), attempt("o", 2, string(make([]byte, 1000)))); !errors.Is(err, eventlog.ErrNotDurable) {
		t.Errorf("stream full: %v", err)
	}
	a.Close()
	if _, err := a.Publish(t.Context(), attempt("o", 2, "x")); !errors.Is(err, eventlog.ErrUnknown) {
		t.Errorf("closed: %v", err)
	}
}

// On a cluster a leader that goes away mid-stream costs unknown results, never a wrong order or a second copy.
func TestAppendOverLeaderChanges(t *testing.T) {
	c := streamtest.StartCluster(t)
	js := c.JetStream(t)
	log := newLog(t, js, 3)
	a, err := eventlog.Events(js, lane).NewAppender(500 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	r := open(t, js, log, eventlog.Position{})
	const steps = 60
	for n := uint64(1); n <= steps; n++ {
		switch n {
		case 20:
			c.StepDown(t, topology.EvtStream(lane))
		case 40:
			c.Stop(t, c.StreamLeader(t, topology.EvtStream(lane)))
		}
		next := attempt("o", n, "{\"n\":"+fmt.Sprint(n)+"}\n")
		streamtest.Eventually(t, "step "+fmt.Sprint(n)+" is stored", func() bool {
			_, err := a.Publish(t.Context(), next)
			if err == nil {
				return true
			}
			o, err := eventlog.Events(js, lane).Resolve(t.Context(), next)
			if o == eventlog.Lost {
				t.Fatalf("step %d lost", n)
			}
			return err == nil && o == eventlog.Landed
		})
	}
	read(t, r, 1, steps)
	if b, err := eventlog.Events(js, lane).Bounds(t.Context()); err != nil || b.Last != steps {
		t.Errorf("%+v %v", b, err)
	}
}
