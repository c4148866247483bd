package replay

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestAFollowedLaneContinues: one message stops its lane only, and only until an operator has it passed over.
func TestAFollowedLaneContinues(t *testing.T) {
	r := newRig(t)
	var seen [lanes]atomic.Uint64
	sink := Func(func(_ context.Context, b *Batch) error {
		seen[b.Lane].Add(uint64(len(b.Events)))
		return nil
	})
	f := r.follow(sink, Options{})
	event := `{"type":"campaign.paused","campaign":"x","at":"@"}`
	r.Write(0, event)
	f.until(func() bool { return seen[0].Load() == 1 })
	newer := nats.Header{topology.HeaderFormat: {"9"}, topology.HeaderSeal: {strings.Repeat("A", 43)}}
	at := r.Publish(0, newer, nil)
	f.until(func() bool { return strings.Contains(f.logged.String(), "this lane stopped at a message") })
	r.Write(0, event, event)
	r.Write(1, event)
	f.until(func() bool { return seen[1].Load() == 1 })
	streamtest.Equal(t, "events of the lane that stopped", seen[0].Load(), 1)

	stream := eventlog.Events(r.JS, 0).In(r.Log.WithKey([32]byte{1}))
	hash, _, err := stream.CheckSkip(t.Context(), at)
	streamtest.Must(t, err)
	store, err := settings.Open(t.Context(), r.JS, settings.Options{Logger: slog.New(slog.DiscardHandler)})
	streamtest.Must(t, err)
	streamtest.Must(t, store.Skip(t.Context(), stream.Name(), at, hash, "ann"))
	f.until(func() bool { return seen[0].Load() == 3 })
	f.stop()
}

// After an error the sink is not used, not even by a lane that waits for its turn. A lane that stops at a message is no such error.
func TestSinkIsLeftAloneAfterAnError(t *testing.T) {
	r, broken, calls := new(run), errors.New("broken"), 0
	for _, c := range []struct{ result, want error }{
		{nil, nil}, {&eventlog.StopError{Err: broken}, broken}, {broken, broken}, {nil, broken},
	} {
		err := r.alone(func() error { calls++; return c.result })
		if (c.want == nil) != (err == nil) || err != nil && err.Error() != c.want.Error() {
			t.Errorf("call %d: got %v, want %v", calls, err, c.want)
		}
	}
	if calls != 3 {
		t.Errorf("called %d times, want 3", calls)
	}
}
