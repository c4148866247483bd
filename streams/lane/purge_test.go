package lane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestCoveredCommandsArePurged: by age, and sooner when the stream is more than half full; never the last covered one,
// whose timestamp proves after a restore that commands and events belong together.
func TestCoveredCommandsArePurged(t *testing.T) {
	for _, c := range []struct {
		name      string
		retention time.Duration
		maxBytes  int64
		fill      int // bytes of attributes per claim
	}{
		{"older than the retention", time.Millisecond, 0, 0},
		{"more than half full", time.Hour, 512 << 10, 900},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &rig{t: t, srv: streamtest.Start(t, streamtest.Lanes(1))}
			r.connect()
			var err error
			if r.log, err = topology.Ensure(t.Context(), r.js, topology.Spec{Lanes: 1, KeyFingerprint: "test", CmdMaxBytes: c.maxBytes}); err != nil {
				t.Fatal(err)
			}
			o := r.options()
			o.Retention, o.PurgeEvery = c.retention, 20*time.Millisecond
			run := r.up(r.start(o))
			r.one(create("c", 100_000, ""))
			commands := eventlog.Commands(r.js, 0)
			n := 0
			streamtest.Eventually(t, "the first commands are purged", func() bool {
				for range 50 {
					n++
					attributes := ""
					if c.fill > 0 {
						attributes = fmt.Sprintf(`,"attributes":{"note":"%s"}`, strings.Repeat("x", c.fill))
					}
					line := fmt.Sprintf(`{"id":"claim-%d","type":"claim","campaign":"c","customer_id":"customer-%d"%s}`, n, n, attributes)
					if out := r.one(line); out.N != uint32(n) {
						t.Fatalf("claim %d: %+v", n, out)
					}
				}
				bounds, err := commands.Bounds(t.Context())
				return err == nil && bounds.First > 50
			})
			// With nothing more to decide, all but the last covered command may go.
			if c.fill == 0 {
				streamtest.Eventually(t, "only the last covered command is left", func() bool {
					bounds, err := commands.Bounds(t.Context())
					return err == nil && bounds.Messages == 1 && bounds.First == bounds.Last
				})
			}
			if err := run.stop(); err != nil {
				t.Fatal(err)
			}
			r.up(r.start(r.options()))
			if out := r.one(claim("c", "1x")); out.Status != wire.StatusClaimed || out.N != uint32(n+1) {
				t.Fatalf("claim after the restart: %+v", out)
			}
			if again := r.one(`{"id":"claim-1","type":"claim","campaign":"c","customer_id":"customer-1"}`); !again.Repeat || again.N != 1 {
				t.Fatalf("a command whose message is purged is still known: %+v", again)
			}
		})
	}
}
