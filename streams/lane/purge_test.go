package lane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestCoveredCommandsArePurged: by age, and sooner when the stream is more than half full; never the last covered one,
// whose timestamp proves after a restore that commands and events belong together.
func TestCoveredCommandsArePurged(t *testing.T) {
	for _, c := range []struct {
		name     string
		after    time.Duration
		maxBytes int64
		claims   int
		fill     int // bytes of attributes per claim
	}{
		{"older than the retention", 10 * time.Minute, 0, 50, 0},
		{"more than half full", 0, 64 << 10, 50, 900},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRigOf(t, c.maxBytes)
			clock := streamtest.NewClock()
			o := r.options()
			o.Clock = clock
			run := r.up(r.start(o))
			r.one(create("c", 100_000, ""))
			numbered := func(n int) string {
				return fmt.Sprintf(`{"id":"claim-%d","type":"claim","campaign":"c","customer_id":"customer-%d","attributes":{"note":"%s"}}`, n, n, strings.Repeat("x", c.fill))
			}
			for n := 1; n <= c.claims; n++ {
				if out := r.one(numbered(n)); out.N != uint32(n) {
					t.Fatalf("claim %d: %+v", n, out)
				}
			}
			last := uint64(1 + c.claims)
			// The first round notes what is covered; that is old enough when the retention has passed since.
			streamtest.Eventually(t, "purged", func() bool {
				clock.Move(5*time.Second + c.after)
				bounds, err := eventlog.Commands(r.js, 0).Bounds(t.Context())
				return err == nil && bounds.Messages == 1 && bounds.First == last && bounds.Last == last
			})
			if first := run.Signals().Purged.Wait(t); first != last {
				t.Errorf("purged up to %d", first)
			}
			if err := run.stop(); err != nil {
				t.Fatal(err)
			}
			r.up(r.start(r.options()))
			if out := r.one(numbered(c.claims + 1)); out.N != uint32(c.claims+1) {
				t.Fatalf("claim after the restart: %+v", out)
			}
			if again := r.one(numbered(1)); !again.Repeat || again.N != 1 {
				t.Fatalf("a command whose message is purged is still known: %+v", again)
			}
		})
	}
}
