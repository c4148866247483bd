package timers

import (
	"flag"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

var rounds = flag.Uint64("timers.rounds", 2, "seeds of the tests with random lives of customers, three times as many of short ones")

const start = wire.Instant(1_800_000_000_000_000) // 2027-01-15T08:00:00Z

func seconds(n int) wire.Instant { return wire.Instant(n) * 1e6 }

// fold folds an event that the timers take, and returns who fired.
func fold(t testing.TB, b *Timers, ev wire.Event) []Fired {
	t.Helper()
	gone, err := b.Fold(&ev)
	if err != nil {
		t.Fatalf("%s: %v", ev.AppendJSON(nil), err)
	}
	return gone
}
