package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/config"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// fired makes an event log in which n reminders of one campaign have fired, with nobody there to tell them.
func fired(r *rig, n int) {
	r.t.Helper()
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, n, "50s")
	r.clock.set(start + seconds(50))
	cmd := domain.Command{ID: "s", Type: domain.RemindDue, Campaign: "a", Kind: domain.KindOpens, DueAt: start + seconds(50), ThroughR: uint64(n)}
	r.answer(append(cmd.AppendJSON(nil), '\n'))
	r.mu.Lock()
	r.asks, r.messages = nil, 0
	r.mu.Unlock()
}

// everyoneOnce checks that customers c1 to c<n> were told, each once and in order.
func everyoneOnce(t *testing.T, told []domain.Event, n int) {
	t.Helper()
	if len(told) != n {
		t.Fatalf("%d told, expected %d", len(told), n)
	}
	for i := range told {
		if want := fmt.Sprintf("c%d", i+1); told[i].CustomerID != want {
			t.Fatalf("told %s in place %d, expected %s", told[i].CustomerID, i+1, want)
		}
	}
}

// newFan is a fan-out as Run makes one, to be crashed by hand.
func (r *rig) newFan(ackWait time.Duration) *fan {
	r.t.Helper()
	stream := eventlog.Reminders(r.js, 0)
	a, err := stream.NewAppender(ackWait)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(a.Close)
	tail, err := stream.Tail(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	f := &fan{
		stream: stream, appender: a, owner: fmt.Sprintf("fan-%p", a), last: tail.Last,
		pace: newPace(nil), now: time.Now, timer: func(d time.Duration) (<-chan time.Time, func()) { return time.After(d), func() {} },
		count: prometheus.NewCounter(prometheus.CounterOpts{Name: "told"}), told: new(atomic.Uint64), log: streamtest.Logger(r.t),
		chained: true,
	}
	if tail.Message != nil {
		f.reached = tail.Message.Source
	}
	return f
}

// expandAll hands a fan the firing of the log that fired made, up to customer upTo.
func (r *rig) expandAll(ctx context.Context, f *fan, upTo int) error {
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
				var ev domain.Event
				if err := domain.ParseEvent(line, &ev); err != nil {
					return err
				}
				gone, err := b.Fold(&ev)
				if err != nil {
					return err
				}
				if ev.Fired > 0 {
					f.expand(&batch[i], n+1, &ev, gone[:min(len(gone), upTo)])
				}
			}
		}
		for f.waiting > 0 { // all of it on its way, but not landed
			again, err := f.pump(ctx)
			if err != nil {
				return err
			}
			if f.waiting > 0 {
				if err := f.wait(ctx, again); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Wherever the fan-out dies, the next one goes on behind what landed: every customer stands on the stream once.
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
			if err := errors.Join(r.expandAll(t.Context(), f, 500), f.settle(t.Context())); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"InTheMiddleOfTheExpansion", func(t *testing.T, r *rig) {
			f := r.newFan(0)
			if err := errors.Join(r.expandAll(t.Context(), f, 1500), f.settle(t.Context())); err != nil {
				t.Fatal(err)
			}
		}, 3},
		{"PublishedWithoutAcknowledgement", func(t *testing.T, r *rig) {
			f := r.newFan(0)
			if err := r.expandAll(t.Context(), f, customers); err != nil {
				t.Fatal(err)
			}
			f.appender.Close() // whatever is on its way lands, or does not, behind our back
		}, 0},
		{"AfterAllOfIt", func(t *testing.T, r *rig) {
			f := r.newFan(0)
			if err := errors.Join(r.expandAll(t.Context(), f, customers), f.settle(t.Context())); err != nil {
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
				streamtest.Eventually(t, "all told, or lost", func() bool {
					select {
					case <-run.done:
						return true
					default:
						done = len(r.told()) >= customers && r.value("folded_sequence") > 0
						return done
					}
				})
				if !done && !errors.Is(run.err, ErrLost) {
					t.Fatalf("Run ended with %v", run.err)
				}
				if done {
					run.stop()
				}
			}
			everyoneOnce(t, r.told(), customers)
			for _, m := range r.reminderMessages() {
				if n := strings.Count(string(m.Payload), "\n"); n > 500 {
					t.Errorf("message %d tells %d customers", m.Sequence, n)
				}
			}
			if len(r.asked()) != 0 {
				t.Errorf("asked %v of a log with nothing due", sortedLines(r.asked()))
			}
		})
	}
}

// The process dies again and again, each time somewhere in the pipeline.
func TestFanOutDiesAtEveryMessage(t *testing.T) {
	const customers = 4100 // nine messages
	r := newRig(t)
	fired(r, customers)
	for n := 1; len(r.told()) < customers; n++ {
		if n > 50 {
			t.Fatalf("%d told after %d lives", len(r.told()), n)
		}
		ctx, die := context.WithCancel(t.Context())
		f := r.newFan(0)
		f.landed = func(uint64) { die() }
		err := r.expandAll(ctx, f, customers)
		if err == nil {
			err = f.settle(ctx)
		}
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
		f.appender.Close()
		die()
	}
	everyoneOnce(t, r.told(), customers)
}

// No acknowledgement ever arrives in time: what became of each publish is found out from the stream.
func TestFanOutWithoutAcknowledgements(t *testing.T) {
	const customers = 1700
	r := newRig(t)
	fired(r, customers)
	f := r.newFan(time.Nanosecond)
	if err := errors.Join(r.expandAll(t.Context(), f, customers), f.settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	everyoneOnce(t, r.told(), customers)
	if len(f.window) != 0 || f.last != 4 {
		t.Errorf("%d on their way, the stream is thought to end at %d", len(f.window), f.last)
	}
}

// A server that does not know the ID of its last message, as a replica that caught up, refuses what names it: the same goes
// out again by number alone.
func TestFanOutWhereTheLastIDIsForgotten(t *testing.T) {
	const customers = 1700
	r := newRig(t)
	fired(r, customers)
	f := r.newFan(0)
	f.lastID = "forgotten"
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := errors.Join(r.expandAll(ctx, f, customers), f.settle(ctx)); err != nil {
		t.Fatal(err)
	}
	everyoneOnce(t, r.told(), customers)
}

// Two fan-outs of one lane at once: the fence lets one through, the other finds out that it lost.
func TestTwoFanOuts(t *testing.T) {
	const customers = 20000
	r := newRig(t)
	fired(r, customers)
	one, two := r.newFan(0), r.newFan(0)
	errs := make(chan error, 2)
	for _, f := range []*fan{one, two} {
		go func() { errs <- errors.Join(r.expandAll(t.Context(), f, customers), f.settle(t.Context())) }()
	}
	lost := 0
	for range 2 {
		if err := <-errs; errors.Is(err, ErrLost) {
			lost++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if lost == 0 {
		t.Error("nobody lost")
	}
	if lost == 2 { // each published before the other's first message was refused; whoever takes the lane goes on
		r.run(r.scheduler())
	}
	everyoneOnce(t, r.waitTold(customers), customers)
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
	if err := errors.Join(r.expandAll(t.Context(), zombie, 500), zombie.settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	run := r.run(r.scheduler())
	r.waitTold(customers)
	run.stop()
	err := r.expandAll(t.Context(), zombie, customers)
	if err == nil {
		err = zombie.settle(t.Context())
	}
	if !errors.Is(err, ErrLost) {
		t.Errorf("the zombie ended with %v", err)
	}
	everyoneOnce(t, r.told(), customers)
}

// A whole Run that loses its reminder stream ends with ErrLost, so that the lease is given up.
func TestRunLosesItsStream(t *testing.T) {
	r := newRig(t)
	fired(r, 10)
	run := r.run(r.scheduler())
	r.waitTold(10)
	other := r.newFan(0)
	m := r.reminderMessages()[0]
	h := eventlog.Header{Owner: "other", Source: m.Source, SourceDigest: m.SourceDigest}
	if _, err := other.appender.Publish(t.Context(), eventlog.Attempt{Expected: 1, Header: h.Encode()}); err != nil {
		t.Fatal(err)
	}
	r.remind("a", 11, 12, "20s")
	r.seen()
	r.clock.set(start + seconds(80))
	if err := run.fails(); !errors.Is(err, ErrLost) {
		t.Errorf("Run ended with %v", err)
	}
}

// mixed makes an event log with firings of many campaigns, several in each of its event messages, some of one customer and
// some of hundreds; and returns whom they are for, as campaign/customer, in order.
func mixed(r *rig) (whom []string) {
	r.t.Helper()
	counts := []int{1, 30, 3, 250, 1, 1, 700, 40, 2, 499, 1, 120}
	var payload []byte
	for i, n := range counts {
		name := fmt.Sprintf("m%d", i)
		r.create(name, `,"opens_at":`+quoted(start+seconds(100)))
		r.remind(name, 1, n, "50s")
	}
	r.clock.set(start + seconds(50))
	for i, n := range counts {
		cmd := domain.Command{ID: "s", Type: domain.RemindDue, Campaign: fmt.Sprintf("m%d", i), Kind: domain.KindOpens, DueAt: start + seconds(50), ThroughR: uint64(n)}
		payload = append(cmd.AppendJSON(payload), '\n')
		if i%3 == 2 {
			r.answer(payload)
			payload = nil
		}
		for c := 1; c <= n; c++ {
			whom = append(whom, fmt.Sprintf("m%d/c%d", i, c))
		}
	}
	r.mu.Lock()
	r.asks, r.messages = nil, 0
	r.mu.Unlock()
	return whom
}

// toldInOrder checks that those were told, each once and in order, and that sources and digests are those of the last
// customer of each message.
func (r *rig) toldInOrder(whom []string) {
	r.t.Helper()
	told := r.told()
	if len(told) != len(whom) {
		r.t.Fatalf("%d told, expected %d", len(told), len(whom))
	}
	for i := range told {
		if got := told[i].Campaign + "/" + told[i].CustomerID; got != whom[i] {
			r.t.Fatalf("told %s in place %d, expected %s", got, i+1, whom[i])
		}
	}
	digests := map[uint64]string{}
	reader, err := eventlog.Events(r.js, 0).Open(r.t.Context(), r.log, eventlog.Position{Log: r.log}, eventlog.ReaderOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer reader.Close()
	lines := map[eventlog.Source]string{} // campaign
	err = reader.CatchUp(r.t.Context(), func(batch []eventlog.Message) error {
		for i := range batch {
			digests[batch[i].Sequence] = batch[i].Digest()
			for n, line := range eventlog.Lines(batch[i].Payload) {
				var ev domain.Event
				if err := domain.ParseEvent(line, &ev); err != nil {
					return err
				}
				lines[eventlog.Source{Sequence: batch[i].Sequence, Line: n + 1}] = ev.Campaign
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	var before eventlog.Source
	for _, m := range r.reminderMessages() {
		var last domain.Event
		for _, line := range eventlog.Lines(m.Payload) {
			if err := domain.ParseEvent(line, &last); err != nil {
				r.t.Fatal(err)
			}
		}
		at := m.Source
		at.LastR = 0
		if m.SourceDigest != digests[at.Sequence] || lines[at] != last.Campaign || fmt.Sprintf("c%d", m.Source.LastR) != last.CustomerID {
			r.t.Errorf("message %d has source %v, which is %s; its last line is %s", m.Sequence, m.Source, lines[at], last.AppendJSON(nil))
		}
		if compareSources(before, m.Source) >= 0 {
			r.t.Errorf("message %d has source %v behind %v", m.Sequence, m.Source, before)
		}
		before = m.Source
	}
}

// Firings of several lines, messages and campaigns share messages.
func TestSharedMessages(t *testing.T) {
	r := newRig(t)
	whom := mixed(r)
	run := r.run(r.scheduler())
	r.waitTold(len(whom))
	run.stop()
	r.toldInOrder(whom)
	if n, least := len(r.reminderMessages()), (len(whom)+499)/500; n != least {
		t.Errorf("%d messages for %d customers, expected %d", n, len(whom), least)
	}
}

// The process dies before or after each publish of messages that mix firings, with batches of all sizes; what is on its
// way then lands, or does not.
func TestSharedMessagesDieAtEveryMessage(t *testing.T) {
	for _, batch := range []int{1, 7, 100, 500} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			r := newRig(t)
			whom := mixed(r)
			for n := 1; len(r.told()) < len(whom); n++ {
				if n > 2000 {
					t.Fatalf("%d told after %d lives", len(r.told()), n)
				}
				ctx, die := context.WithCancel(t.Context())
				f := r.newFan(0)
				f.pace.configure(&config.Settings{ReminderBatch: batch + n%3, ReminderConcurrency: 1 + n%5})
				landed := 0
				f.landed = func(uint64) {
					if landed++; landed > n*10/batch {
						die()
					}
				}
				err := r.expandAll(ctx, f, 1<<30)
				if err == nil {
					err = f.settle(ctx)
				}
				if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrLost) {
					t.Fatal(err)
				}
				f.appender.Close()
				die()
			}
			r.toldInOrder(whom)
		})
	}
}

// Dies at an exact place: after so many messages landed and nothing was on its way.
func TestSharedMessagesResume(t *testing.T) {
	for _, messages := range []int{0, 1, 2, 3, 4} {
		t.Run(fmt.Sprint(messages), func(t *testing.T) {
			r := newRig(t)
			whom := mixed(r)
			f := r.newFan(0)
			f.pace.configure(&config.Settings{ReminderBatch: 333, ReminderConcurrency: 1})
			ctx, die := context.WithCancel(t.Context())
			defer die()
			f.landed = func(seq uint64) {
				if seq == uint64(messages) {
					die()
				}
			}
			if messages > 0 {
				if err := errors.Join(r.expandAll(ctx, f, 1<<30), f.settle(ctx)); !errors.Is(err, context.Canceled) {
					t.Fatalf("died with %v", err)
				}
			}
			f.appender.Close()
			if n := len(r.reminderMessages()); n != messages {
				t.Fatalf("%d messages landed, expected %d", n, messages)
			}
			run := r.run(r.scheduler())
			r.waitTold(len(whom))
			run.stop()
			r.toldInOrder(whom)
		})
	}
}

// The reminder stream is ahead of the event stream, or of another history: going on would tell people twice, or not at
// all, so nothing goes on.
func TestSourceDoesNotFit(t *testing.T) {
	for _, c := range []struct {
		name   string
		source eventlog.Source
	}{
		{"EventLogHasOtherMessageThere", eventlog.Source{Sequence: 1, Line: 1, LastR: 1}},
		{"EventLogLostItsTail", eventlog.Source{Sequence: 1000, Line: 1, LastR: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			fired(r, 3)
			f := r.newFan(0)
			h := eventlog.Header{Owner: "before", Source: c.source, SourceDigest: strings.Repeat("ab", 16)}
			if _, err := f.appender.Publish(t.Context(), eventlog.Attempt{Header: h.Encode(), Payload: []byte("{}\n")}); err != nil {
				t.Fatal(err)
			}
			err := r.run(r.scheduler()).fails()
			if !isOtherLog(err) || !strings.Contains(err.Error(), "restore both from one backup") {
				t.Errorf("Run ended with %v", err)
			}
			if n := len(r.reminderMessages()); n != 1 {
				t.Errorf("%d messages on the reminder stream, expected the one put there", n)
			}
		})
	}
}

// Messages of strangers on the reminder stream are passed over; a newer format is not.
func TestStrangersOnTheReminderStream(t *testing.T) {
	r := newRig(t)
	fired(r, 700)
	f := r.newFan(0)
	if err := errors.Join(r.expandAll(t.Context(), f, 500), f.settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := r.js.Publish(t.Context(), "scrip.rmd.0", []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	run := r.run(r.scheduler())
	everyoneOnce(t, r.waitTold(700), 700)
	run.stop()

	newer := &nats.Msg{Subject: "scrip.rmd.0", Header: nats.Header{"Scrip-Format": {"3"}, "Scrip-Owner": {"x"}, "Scrip-Seal": {strings.Repeat("A", 43)}}}
	if _, err := r.js.PublishMsg(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if err := r.run(r.scheduler()).fails(); !errors.Is(err, eventlog.ErrNewerFormat) {
		t.Errorf("Run ended with %v", err)
	}
}
