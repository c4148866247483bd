package eventlog_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Readers continue after a position, and by themselves, without loss or repetition, when the server was killed.
func TestReaderContinues(t *testing.T) {
	s := streamtest.Start(t)
	js := s.JetStream(t)
	log := newLog(t, js, 1)
	write(t, js, "o", 1, 3)
	third := position(t, js, log)
	write(t, js, "o", 4, 10)

	all := open(t, js, log, eventlog.Position{})
	read(t, all, 1, 10)
	tail := open(t, js, log, third)
	if tail.Lag() != 7 {
		t.Errorf("it lags by %d, want 7", tail.Lag())
	}
	read(t, tail, 4, 10)
	if tail.Lag() != 0 || tail.Sequence() != 10 {
		t.Errorf("it lags by %d at %d", tail.Lag(), tail.Sequence())
	}
	if batch, err := tail.TryBatch(10, nil); err != nil || len(batch) != 0 {
		t.Errorf("nothing there, and yet: %v %v", batch, err)
	}
	s.Kill(t)
	if _, err := eventlog.Events(js, lane).Bounds(t.Context()); err != nil { // retries until the server is back
		t.Fatal(err)
	}
	write(t, js, "o", 11, 12)
	read(t, tail, 11, 12)
	read(t, all, 11, 12)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next with a cancelled context: %v", err)
	}
	all.Close()
	tail.Close()
	streamtest.Eventually(t, "closed readers leave no consumers", func() bool {
		stream, err := js.Stream(t.Context(), topology.EvtStream(lane))
		return err == nil && stream.CachedInfo().State.Consumers == 0
	})
}

func TestCatchUpEndsWhereTheStreamEnded(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	log := newLog(t, js, 1)
	r := open(t, js, log, eventlog.Position{})
	if err := r.CatchUp(t.Context(), func([]eventlog.Message) error { return errors.New("of nothing") }); err != nil {
		t.Fatal(err)
	}
	write(t, js, "o", 1, 700)
	foreign(t, js) // a tail of foreign messages only moves the sequence
	tail, err := eventlog.Events(js, lane).Tail(t.Context())
	if err != nil || tail.Last != 701 || tail.Message == nil || tail.Message.Sequence != 700 || !slices.Equal(tail.Foreign, []uint64{701}) {
		t.Errorf("tail %+v %v", tail, err)
	}
	var next uint64 = 1
	err = r.CatchUp(t.Context(), func(batch []eventlog.Message) error {
		for i := range batch {
			if batch[i].Sequence != next {
				t.Errorf("message %d, want %d", batch[i].Sequence, next)
			}
			next++
		}
		return nil
	})
	if err != nil || next != 701 || r.Sequence() != 701 || r.Foreign() != 1 {
		t.Errorf("caught up to %d (%d foreign) with %d valid: %v", r.Sequence(), r.Foreign(), next-1, err)
	}
	foreign(t, js)
	if err := r.CatchUp(t.Context(), func([]eventlog.Message) error { return errors.New("no") }); err != nil || r.Sequence() != 702 {
		t.Errorf("over a foreign message: %d %v", r.Sequence(), err)
	}
}

// TestTheFeedOfSettingsPassesOverGaps: in a bucket that another program made, keys can be replaced.
func TestTheFeedOfSettingsPassesOverGaps(t *testing.T) {
	server := streamtest.Start(t)
	js := server.JetStream(t)
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: topology.SettingsBucket, Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	put := func(keys ...string) {
		t.Helper()
		// On a new connection: one that has not noticed the restart yet loses what it sends.
		kv, err := server.JetStream(t).KeyValue(t.Context(), topology.SettingsBucket)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if _, err := kv.Put(t.Context(), key, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	put("a", "b", "c", "a", "c", "d") // 1 and 3 are gone
	feed, err := eventlog.Bucket(js, topology.SettingsStream).OpenFeed(t.Context(), 0, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(feed.Close)
	delivers(t, feed, 2, 4, 5, 6)
	server.Restart(t)
	put("e", "f")
	delivers(t, feed, 7, 8)
}

// A stream whose middle is missing is never read over.
func TestReaderStopsAtAGap(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	// Not scrip's settings, which refuse the deletion.
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: topology.EvtStream(lane), Subjects: []string{topology.Evt(lane)}})
	if err != nil {
		t.Fatal(err)
	}
	log := topology.Log{UUID: "u"}
	write(t, js, "o", 1, 5)
	if err := stream.DeleteMsg(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	r := open(t, js, log, eventlog.Position{})
	read(t, r, 1, 2)
	_, err = r.Next(t.Context())
	var gap *eventlog.GapError
	if !errors.As(err, &gap) || gap.After != 2 || gap.Next != 4 {
		t.Errorf("reading ends with %v", err)
	}
	if err := eventlog.Events(js, lane).Verify(t.Context(), "u", eventlog.Position{Log: "u", Sequence: 3}); !errors.Is(err, eventlog.ErrHole) {
		t.Errorf("Verify in the gap: %v", err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(5)); err != nil {
		t.Fatal(err)
	}
	if err := eventlog.Events(js, lane).Verify(t.Context(), "u", eventlog.Position{Log: "u", Sequence: 2}); !errors.Is(err, eventlog.ErrTrimmed) {
		t.Errorf("Verify before the first: %v", err)
	}
	if _, err := open(t, js, log, eventlog.Position{}).Next(t.Context()); !errors.As(err, &gap) || gap.After != 0 || gap.Next != 5 {
		t.Errorf("reading a trimmed stream from its start: %v", err)
	}
}

// The server restarts with an older copy of its store: a reader that was ahead of it reports that.
func TestLostTail(t *testing.T) {
	s := streamtest.Start(t)
	js := s.JetStream(t)
	log := newLog(t, js, 1)
	write(t, js, "o", 1, 3)
	older := s.CopyStore(t)
	write(t, js, "o", 4, 6)
	at6 := position(t, js, log)
	r := open(t, js, log, eventlog.Position{})
	read(t, r, 1, 6)
	s.RestoreStore(t, older)

	events := eventlog.Events(js, lane)
	if err := events.Verify(t.Context(), log.UUID, at6); !errors.Is(err, eventlog.ErrLostTail) {
		t.Errorf("Verify: %v", err)
	}
	failsWith(t, r, eventlog.ErrLostTail) // without any call
	if _, err := events.Open(t.Context(), log.UUID, at6, eventlog.ReaderOptions{Logger: quiet}); !errors.Is(err, eventlog.ErrLostTail) {
		t.Errorf("Open: %v", err)
	}
	write(t, js, "p", 4, 7) // others take the numbers
	if err := events.Verify(t.Context(), log.UUID, at6); !errors.Is(err, eventlog.ErrDiverged) {
		t.Errorf("Verify: %v", err)
	}
	at6.Log = "another"
	if err := events.Verify(t.Context(), log.UUID, at6); !errors.Is(err, eventlog.ErrDiverged) {
		t.Errorf("Verify of another log's position: %v", err)
	}
	if err := events.Verify(t.Context(), log.UUID, eventlog.Position{Log: log.UUID}); err != nil {
		t.Errorf("the start is a place in every log: %v", err)
	}
}

// As TestLostTail, with the lost numbers already taken when the reader comes back.
func TestReaderSeesThatItsPlaceIsAnothers(t *testing.T) {
	s := streamtest.Start(t)
	js := s.JetStream(t)
	log := newLog(t, js, 1)
	write(t, js, "o", 1, 3)
	older := s.CopyStore(t)
	write(t, js, "o", 4, 6)

	r := open(t, s.JetStream(t), log, eventlog.Position{})
	read(t, r, 1, 6)
	s.Shutdown()
	other := streamtest.Start(t, streamtest.Dir(older)) // on another port: our reader does not see it yet
	write(t, other.JetStream(t), "p", 4, 9)
	copied := other.CopyStore(t)
	other.Shutdown()
	s.RestoreStore(t, copied)
	failsWith(t, r, eventlog.ErrDiverged)
}

func TestFeedReadsCommandsAfterAPurge(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	newLog(t, js, 1)
	commands := eventlog.Commands(js, lane)
	for range 10 {
		if _, err := js.Publish(t.Context(), topology.LaneCmd(lane), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := js.Stream(t.Context(), topology.CmdStream(lane))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(5)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		after uint64
		want  error
	}{{3, eventlog.ErrTrimmed}, {4, nil}, {5, nil}, {10, nil}, {11, eventlog.ErrLostTail}} {
		f, err := commands.OpenFeed(t.Context(), tc.after, quiet)
		if !errors.Is(err, tc.want) {
			t.Errorf("after %d: %v, want %v", tc.after, err, tc.want)
		}
		if err != nil {
			continue
		}
		if tc.after < 10 {
			got, err := f.NextBatch(t.Context(), 1)
			if err != nil || len(got) != 1 || got[0].Sequence != tc.after+1 || got[0].Subject != topology.LaneCmd(lane) || got[0].Time.IsZero() {
				t.Errorf("after %d comes %+v %v", tc.after, got, err)
			}
		}
		f.Close()
	}
	bounds, err := commands.Bounds(t.Context())
	if err != nil || bounds.First != 5 || bounds.Last != 10 || bounds.Messages != 6 || bounds.MaxBytes != 16<<20 || bounds.Bytes == 0 {
		t.Errorf("%+v %v", bounds, err)
	}
}

// A feed of a narrow stream takes little from the server without a reader, and still delivers the longest message.
func TestNarrowFeed(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	newLog(t, js, 1)
	const messages, bytes, longest = 60, 256 << 10, 1<<20 - 1<<10
	size := func(i int) int { return map[bool]int{true: longest, false: bytes}[i == 40] }
	for i := range messages {
		if _, err := js.Publish(t.Context(), topology.Evt(lane), make([]byte, size(i))); err != nil {
			t.Fatal(err)
		}
	}
	f, err := eventlog.Events(js, lane).Narrow().OpenFeed(t.Context(), 0, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	streamtest.Eventually(t, "the queue is full", func() bool { return f.Queued() >= eventlog.NarrowBytes })
	stream, err := js.Stream(t.Context(), topology.EvtStream(lane))
	if err != nil {
		t.Fatal(err)
	}
	for c := range stream.ListConsumers(t.Context()).Info() {
		if sent := int(c.Delivered.Stream) * bytes; sent > 4*eventlog.NarrowBytes || f.Queued() > eventlog.NarrowBytes+2*bytes {
			t.Errorf("the server sent %d bytes, %d of them are in the queue", sent, f.Queued())
		}
	}
	var got []eventlog.Raw
	for len(got) < messages {
		more, err := f.NextBatch(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, more...)
	}
	for i := range got {
		if got[i].Sequence != uint64(i+1) || len(got[i].Data) != size(i) {
			t.Errorf("message %d: %d with %d bytes", i+1, got[i].Sequence, len(got[i].Data))
		}
	}
}
