package eventlog_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var logOf = topology.Log{UUID: "01234567-89ab-7cde-8f01-23456789abcd", Lanes: 2, Format: topology.Format}

// builder makes messages of a lane.
type builder struct {
	log topology.Log
	seq uint64
}

func (b *builder) raw(h nats.Header, payload string) *eventlog.Raw {
	b.seq++
	return &eventlog.Raw{Header: h, Data: []byte(payload), Sequence: b.seq}
}

// sealed is step n; change is done before it is sealed.
func (b *builder) sealed(n uint64, change ...string) *eventlog.Raw {
	h, data := step("o", n, "x")
	log := b.log.WithKey([32]byte{1})
	out := eventlog.Events(nil, lane).In(log).Sealer().Encode(h, b.seq+1, data)
	for i := 0; i < len(change); i += 2 {
		out.Set(change[i], change[i+1])
	}
	out.Set(topology.HeaderSeal, log.Seal.Message(topology.EvtStream(lane), b.seq+1, out, data))
	return b.raw(out, string(data))
}

// unsealed is step n without a seal, forged with one that only who has no key believes.
func (b *builder) unsealed(n uint64, change ...string) *eventlog.Raw {
	raw := b.sealed(n, change...)
	raw.Header.Del(topology.HeaderSeal)
	return raw
}

func (b *builder) forged(n uint64, change ...string) *eventlog.Raw {
	raw := b.sealed(n, change...)
	raw.Header = streamtest.Sealed(raw.Header)
	return raw
}

func TestWhatCounts(t *testing.T) {
	foreign, newer := eventlog.ErrForeign, eventlog.ErrNewerFormat
	b := builder{log: logOf}
	replayed := func(raw *eventlog.Raw) *eventlog.Raw { return b.raw(raw.Header, string(raw.Data)) }
	keyed, keyless := eventlog.Events(nil, lane).In(logOf.WithKey([32]byte{1})).JudgeWith(nil), eventlog.Events(nil, lane).In(logOf).JudgeWith(nil)
	for _, m := range []struct {
		what    string
		raw     *eventlog.Raw
		keyed   error // nil = it counts
		keyless error
	}{
		{"an unsealed step before the first", b.unsealed(1), foreign, foreign},
		{"the first step", b.sealed(1), nil, nil},
		{"no headers", b.raw(nil, ""), foreign, foreign},
		{"what would be the next step, unsealed", b.unsealed(2), foreign, foreign},
		{"the next step", b.sealed(2), nil, nil},
		{"a sealed one in another place", replayed(b.sealed(2)), foreign, nil},
		{"a forged one", b.forged(3), foreign, nil},
		{"a higher format with a forged seal", b.forged(3, topology.HeaderFormat, "2"), foreign, newer},
		{"a higher format without a seal", b.unsealed(3, topology.HeaderFormat, "2"), foreign, foreign},
		{"a higher format of ours", b.sealed(3, topology.HeaderFormat, "2"), newer, newer},
		{"sealed and not understood", b.sealed(3, topology.HeaderCommands, "five"), eventlog.ErrUnreadable, foreign},
	} {
		if _, err := keyed.Read(m.raw); !errors.Is(err, m.keyed) {
			t.Errorf("message %d, %s: with the key %v, want %v", m.raw.Sequence, m.what, err, m.keyed)
		}
		if _, err := keyless.Read(m.raw); !errors.Is(err, m.keyless) {
			t.Errorf("message %d, %s: without the key %v, want %v", m.raw.Sequence, m.what, err, m.keyless)
		}
	}
}

// TestEveryReaderPassesOverWhatIsSkipped, and nothing else; a message is named by its place and its content.
func TestEveryReaderPassesOverWhatIsSkipped(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	log := newLog(t, js, 1).WithKey([32]byte{1})
	events := eventlog.Events(js, lane).In(log)
	b := builder{log: log}
	publish := func(raw *eventlog.Raw) {
		t.Helper()
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: topology.Evt(lane), Header: raw.Header, Data: raw.Data}); err != nil {
			t.Fatal(err)
		}
	}
	publish(b.sealed(1))
	publish(b.sealed(2, topology.HeaderFormat, "2"))
	publish(b.sealed(2))
	publish(b.sealed(3, topology.HeaderFormat, "2"))
	newer := func() (n int) {
		r := open(t, js, log, eventlog.Position{})
		defer r.Close()
		got, err := untilStopped(t, r)
		if !errors.Is(err, eventlog.ErrNewerFormat) {
			t.Errorf("reading ends with %v", err)
		}
		return len(got)
	}
	if n := newer(); n != 1 {
		t.Errorf("%d messages before the first that is newer", n)
	}
	if tail, err := events.TailAt(t.Context(), 4); err != nil || len(tail.Unread) != 1 || tail.Message == nil || tail.Message.Sequence != 3 {
		t.Errorf("tail %+v %v", tail, err)
	}
	hash, listed, err := events.CheckSkip(t.Context(), 2)
	if err != nil || listed {
		t.Fatal(err)
	}
	store, err := settings.Open(t.Context(), js, settings.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Skip(t.Context(), events.Name(), 2, hash, "ann"); err != nil {
		t.Fatal(err)
	}
	if err := store.Skip(t.Context(), events.Name(), 4, hash, "ann"); err != nil { // the hash of another message
		t.Fatal(err)
	}
	if _, listed, err := events.CheckSkip(t.Context(), 2); err != nil || !listed {
		t.Errorf("listed: %t %v", listed, err)
	}
	if n := newer(); n != 2 {
		t.Errorf("%d messages before the second that is newer", n)
	}

	// A reader that is open all the while goes on when the list has what stopped it, however early that was written.
	r := open(t, js, log, eventlog.Position{})
	got, stopped := untilStopped(t, r)
	var stop *eventlog.StopError
	if len(got) != 2 || !errors.As(stopped, &stop) || stop.Sequence != 4 {
		t.Fatalf("read %v, then %v", got, stopped)
	}
	r.Resume(nil)
	if got, again := untilStopped(t, r); len(got) != 0 || !errors.Is(again, eventlog.ErrNewerFormat) {
		t.Errorf("with the old list: read %v, then %v", got, again)
	}
	publish(b.sealed(3))
	if err := store.Skip(t.Context(), events.Name(), 4, stop.Hash, "ann"); err != nil {
		t.Fatal(err)
	}
	skips, err := events.AwaitSkip(t.Context(), stopped)
	if err != nil {
		t.Fatal(err)
	}
	r.Resume(skips)
	if m, err := r.Next(t.Context()); err != nil || m.Sequence != 5 {
		t.Errorf("then message %d %v", m.Sequence, err)
	}
	publish(b.sealed(4, topology.HeaderFormat, "2"))
	if _, err := events.Tail(t.Context()); !errors.Is(err, eventlog.ErrNewerFormat) {
		t.Errorf("tail: %v", err)
	}
	if _, _, err := events.CheckSkip(t.Context(), 3); err == nil {
		t.Error("a sealed message that can be read is skipped")
	}
}
