package timers

import (
	"flag"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

var rounds = flag.Uint64("timers.rounds", 2, "seeds of the tests with random lives of customers, three times as many of short ones")

const start = wire.Instant(1_800_000_000_000_000) // 2027-01-15T08:00:00Z

func seconds(n int) wire.Instant { return wire.Instant(n) * 1e6 }
