package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

const lane = 1

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// newLog makes a log of two lanes.
func newLog(t *testing.T, js jetstream.JetStream, replicas int) topology.Log {
	t.Helper()
	log, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 2, Replicas: replicas, KeyFingerprint: "k", CmdMaxBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// step is the n-th step of a lane that covers one command per step.
func step(owner string, n uint64, payload string) (h eventlog.Header, data []byte) {
	at := time.Date(2026, 5, 1, 12, 0, 0, int(n)*1000, time.UTC)
	return eventlog.Header{Commands: [2]uint64{n, n}, CommandTime: at, LaneTime: at, Owner: owner}, []byte(payload)
}

func attempt(owner string, n uint64, payload string) eventlog.Attempt {
	h, data := step(owner, n, payload)
	return eventlog.Attempt{Expected: n - 1, Header: streamtest.Sealed(h.Encode()), Payload: data}
}

// write writes steps first..last.
func write(t *testing.T, js jetstream.JetStream, owner string, first, last uint64) {
	t.Helper()
	a, err := eventlog.Events(js, lane).NewAppender(0)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for n := first; n <= last; n++ {
		seq, err := a.Publish(t.Context(), attempt(owner, n, fmt.Sprintf("{\"n\":%d}\n", n)))
		if err != nil || seq != n {
			t.Fatalf("writing step %d: %d %v", n, seq, err)
		}
	}
}

// foreign writes a message that scrip would not.
func foreign(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	if _, err := js.Publish(t.Context(), topology.Evt(lane), []byte("hello")); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, js jetstream.JetStream, log topology.Log, after eventlog.Position) *eventlog.Reader {
	t.Helper()
	after.Log, after.Lane = log.UUID, lane
	r, err := eventlog.Events(js, lane).In(log).Open(t.Context(), log.UUID, after, eventlog.ReaderOptions{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// read reads messages first..last and checks them.
func read(t *testing.T, r *eventlog.Reader, first, last uint64) {
	t.Helper()
	ctx := within(t)
	for n := first; n <= last; n++ {
		m, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("reading message %d: %v", n, err)
		}
		if m.Commands != [2]uint64{n, n} || string(m.Payload) != fmt.Sprintf("{\"n\":%d}\n", n) {
			t.Fatalf("read %+v, want step %d", m, n)
		}
	}
}

// failsWith reads until an error and checks its kind.
func failsWith(t *testing.T, r *eventlog.Reader, want error) {
	t.Helper()
	if _, err := untilStopped(t, r); !errors.Is(err, want) {
		t.Errorf("reading ends with %v, want %v", err, want)
	}
}

// untilStopped is what a reader delivers until it stops.
func untilStopped(t *testing.T, r *eventlog.Reader) (got []uint64, err error) {
	t.Helper()
	ctx := within(t)
	for {
		m, err := r.Next(ctx)
		if err != nil {
			return got, err
		}
		got = append(got, m.Sequence)
	}
}

// delivers checks which messages come next, one by one.
func delivers(t *testing.T, f *eventlog.Feed, want ...uint64) {
	t.Helper()
	for _, sequence := range want {
		raw, err := f.NextBatch(within(t), 1)
		if err != nil || len(raw) != 1 || raw[0].Sequence != sequence {
			t.Fatalf("read %+v, %v, want message %d", raw, err, sequence)
		}
	}
}

func position(t *testing.T, js jetstream.JetStream, log topology.Log) eventlog.Position {
	t.Helper()
	tail, err := eventlog.Events(js, lane).Tail(t.Context())
	if err != nil || tail.Message == nil {
		t.Fatalf("%+v %v", tail, err)
	}
	return tail.Message.Position(log.UUID, lane)
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
