package eventlog_test

import (
	"context"
	"errors"
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
