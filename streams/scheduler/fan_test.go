package scheduler

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/fanout"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

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
			streamtest.Equal(t, "messages on the reminder stream", len(r.reminderMessages()), 1)
		})
	}
}

// Messages of strangers on the reminder stream are passed over; a newer format is not.
func TestStrangersOnTheReminderStream(t *testing.T) {
	r := newRig(t)
	fired(r, 700)
	f := r.newFan(0)
	streamtest.Must(t, errors.Join(r.expandAll(t.Context(), f, 500), f.Drain(t.Context(), 0)))
	for range 3 {
		if _, err := r.js.Publish(t.Context(), "scrip.rmd.0", []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	run := r.run(r.scheduler())
	eachOnce(t, r.waitPublished(700), 700)
	run.stop()

	bounds, err := f.Stream.Bounds(t.Context())
	streamtest.Must(t, err)
	newer := &nats.Msg{Subject: "scrip.rmd.0", Header: nats.Header{"Scrip-Format": {"2"}, "Scrip-Owner": {"x"}}}
	newer.Header.Set(topology.HeaderSeal, r.sealed().Seal.Message(topology.RmdStream(0), bounds.Last+1, newer.Header, nil))
	if _, err := r.js.PublishMsg(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if err := r.run(r.scheduler()).fails(); !errors.Is(err, eventlog.ErrNewerFormat) {
		t.Errorf("Run ended with %v", err)
	}
}

// No acknowledgement arrives in time, so that what became of each publish is found out from the stream; or the server does
// not know the ID of its last message, as a replica that caught up, and refuses what names it: the same goes out again by
// number alone.
func TestFanOutWithoutAcknowledgements(t *testing.T) {
	for _, c := range []struct {
		name    string
		ackWait time.Duration
		lastID  string
	}{{"AllLate", time.Nanosecond, ""}, {"TheLastIDIsForgotten", 0, "forgotten"}} {
		t.Run(c.name, func(t *testing.T) {
			const customers = 1700
			r := newRig(t)
			fired(r, customers)
			f := r.newFan(c.ackWait)
			f.LastID = c.lastID
			streamtest.Must(t, errors.Join(r.expandAll(t.Context(), f, customers), f.Drain(t.Context(), 0)))
			eachOnce(t, r.published(), customers)
			if !f.Settled() || f.Last != 4 {
				t.Errorf("%d on their way, the stream is thought to end at %d", f.Unpublished(), f.Last)
			}
		})
	}
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
	r.set(start + seconds(80))
	if err := run.fails(); !errors.Is(err, fanout.ErrLost) {
		t.Errorf("Run ended with %v", err)
	}
}
