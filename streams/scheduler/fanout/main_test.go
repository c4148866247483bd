package fanout

import (
	"flag"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil { // a flag given still wins
		panic(err)
	}
	m.Run()
}

const start = wire.Instant(1_800_000_000_000_000) // 2027-01-15T08:00:00Z
