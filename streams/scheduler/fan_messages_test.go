package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/fanout"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

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
		cmd := wire.Command{ID: "s", Type: wire.RemindDue, Campaign: fmt.Sprintf("m%d", i), Kind: wire.KindOpens, DueAt: start + seconds(50), ThroughR: uint64(n)}
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
	r.requests, r.messages = nil, 0
	r.mu.Unlock()
	return whom
}

// publishedInOrder checks that those were published, each once and in order, and that sources and digests are those of the last
// customer of each message.
func (r *rig) publishedInOrder(whom []string) {
	r.t.Helper()
	published := r.published()
	if len(published) != len(whom) {
		r.t.Fatalf("%d published, expected %d", len(published), len(whom))
	}
	for i := range published {
		if got := published[i].Campaign + "/" + published[i].CustomerID; got != whom[i] {
			r.t.Fatalf("published %s in place %d, expected %s", got, i+1, whom[i])
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
				var ev wire.Event
				if err := wire.ParseEvent(line, &ev); err != nil {
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
		var last wire.Event
		for _, line := range eventlog.Lines(m.Payload) {
			if err := wire.ParseEvent(line, &last); err != nil {
				r.t.Fatal(err)
			}
		}
		at := m.Source
		at.LastR = 0
		if m.SourceDigest != digests[at.Sequence] || lines[at] != last.Campaign || fmt.Sprintf("c%d", m.Source.LastR) != last.CustomerID {
			r.t.Errorf("message %d has source %v, which is %s; its last line is %s", m.Sequence, m.Source, lines[at], last.AppendJSON(nil))
		}
		if fanout.CompareSources(before, m.Source) >= 0 {
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
	r.waitPublished(len(whom))
	run.stop()
	r.publishedInOrder(whom)
	// The feed may deliver the event messages one by one, and the scheduler does not wait for the next.
	const eventMessages = 4
	if n, least := len(r.reminderMessages()), (len(whom)+499)/500; n < least || n >= least+eventMessages {
		t.Errorf("%d messages for %d customers, expected %d to %d", n, len(whom), least, least+eventMessages-1)
	}
}

// The process dies before or after each publish of messages that mix firings, with batches of all sizes; what is on its
// way then lands, or does not.
func TestSharedMessagesDieAtEveryMessage(t *testing.T) {
	for _, batch := range []int{1, 7, 100, 500} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			r := newRig(t)
			whom := mixed(r)
			for n := 1; len(r.published()) < len(whom); n++ {
				if n > 2000 {
					t.Fatalf("%d published after %d lives", len(r.published()), n)
				}
				ctx, die := context.WithCancel(t.Context())
				f := r.newFan(0)
				f.Pace.Configure(&settings.Settings{ReminderBatch: batch + n%3, ReminderConcurrency: 1 + n%5})
				landed := 0
				f.Stored = func(uint64) {
					if landed++; landed > n*10/batch {
						die()
					}
				}
				err := r.expandAll(ctx, f, 1<<30)
				if err == nil {
					err = f.Settle(ctx)
				}
				if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, fanout.ErrLost) {
					t.Fatal(err)
				}
				f.Appender.Close()
				die()
			}
			r.publishedInOrder(whom)
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
			f.Pace.Configure(&settings.Settings{ReminderBatch: 333, ReminderConcurrency: 1})
			ctx, die := context.WithCancel(t.Context())
			defer die()
			f.Stored = func(seq uint64) {
				if seq == uint64(messages) {
					die()
				}
			}
			if messages > 0 {
				if err := errors.Join(r.expandAll(ctx, f, 1<<30), f.Settle(ctx)); !errors.Is(err, context.Canceled) {
					t.Fatalf("died with %v", err)
				}
			}
			f.Appender.Close()
			if n := len(r.reminderMessages()); n != messages {
				t.Fatalf("%d messages landed, expected %d", n, messages)
			}
			run := r.run(r.scheduler())
			r.waitPublished(len(whom))
			run.stop()
			r.publishedInOrder(whom)
		})
	}
}

// The reminder stream is ahead of the event stream, or of another history: going on would publish people twice, or not at
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
			if _, err := f.Appender.Publish(t.Context(), eventlog.Attempt{Header: f.Sealer.Encode(h, 1, []byte("{}\n")), Payload: []byte("{}\n")}); err != nil {
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
	if err := errors.Join(r.expandAll(t.Context(), f, 500), f.Settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := r.js.Publish(t.Context(), "scrip.rmd.0", []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	run := r.run(r.scheduler())
	eachOnce(t, r.waitPublished(700), 700)
	run.stop()

	bounds, err := f.Stream.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	newer := &nats.Msg{Subject: "scrip.rmd.0", Header: nats.Header{"Scrip-Format": {"2"}, "Scrip-Owner": {"x"}}}
	newer.Header.Set(topology.HeaderSeal, r.sealed().Seal.Message(topology.RmdStream(0), bounds.Last+1, newer.Header, nil))
	if _, err := r.js.PublishMsg(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if err := r.run(r.scheduler()).fails(); !errors.Is(err, eventlog.ErrNewerFormat) {
		t.Errorf("Run ended with %v", err)
	}
}
