package timers

import (
	"flag"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

var rounds = flag.Uint64("timers.rounds", 2, "seeds of the tests with random lives of customers, three times as many of short ones")

func TestMain(m *testing.M) {
	// Few and longer lives than rapid's thirty steps. Flags given still win.
	for name, value := range map[string]string{"rapid.checks": "100", "rapid.steps": "90"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	m.Run()
}

const start = wire.Instant(1_800_000_000_000_000) // 2027-01-15T08:00:00Z

func seconds(n int) wire.Instant { return wire.Instant(n) * 1e6 }
