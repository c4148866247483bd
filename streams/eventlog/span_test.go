package eventlog_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// A span has the messages from its first to its last, once, also where one pull has no room for all, and leaves no consumer.
func TestSpan(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	newLog(t, js, 1)
	big := strings.Repeat("x", 600<<10)
	for range 3 {
		foreign(t, js)
		if _, err := js.Publish(t.Context(), topology.Evt(lane), []byte(big)); err != nil {
			t.Fatal(err)
		}
	}
	events := eventlog.Events(js, lane)
	for span, want := range map[[2]uint64][]int{{1, 6}: {5, 600 << 10, 5, 600 << 10, 5, 600 << 10}, {2, 2}: {600 << 10}, {3, 5}: {5, 600 << 10, 5}} {
		next := span[0]
		streamtest.Must(t, events.Span(within(t), span[0], span[1], func(raw *eventlog.Raw) {
			if raw.Sequence != next || len(raw.Data) != want[next-span[0]] || raw.Time.IsZero() {
				t.Errorf("%v: message %d of %d bytes at %s, want %d", span, raw.Sequence, len(raw.Data), raw.Time, next)
			}
			next++
		}))
		if next != span[1]+1 {
			t.Errorf("%v: it ended before %d", span, next)
		}
	}
	var some []uint64
	for _, after := range []uint64{0, 4} {
		streamtest.Must(t, events.Some(within(t), []string{topology.Evt(lane), "none"}, after, 5, func(raw *eventlog.Raw) { some = append(some, raw.Sequence) }))
	}
	streamtest.Must(t, events.Some(within(t), []string{"none"}, 0, 5, func(raw *eventlog.Raw) { t.Errorf("message %d is of no such subject", raw.Sequence) }))
	if !slices.Equal(some, []uint64{1, 2, 3, 4, 5, 5, 6}) {
		t.Errorf("five after none and after message 4 are %v", some)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := events.Span(ended, 1, 6, func(*eventlog.Raw) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	streamtest.Eventually(t, "spans leave no consumers", func() bool {
		stream, err := js.Stream(t.Context(), topology.EvtStream(lane))
		return err == nil && stream.CachedInfo().State.Consumers == 0
	})
}
