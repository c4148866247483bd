package reminder

import (
	"math/rand/v2"
	"runtime"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

const (
	second = wire.Instant(1e6)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// start is 2026-11-27T00:00:00Z.
const start = wire.Instant(1795737600 * 1e6)

// failer is what testing.T and rapid.T have in common.
type failer interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

// chooser draws 0 to n-1.
type chooser func(n int) int

func randomChooser(seed uint64) chooser { return rand.New(rand.NewPCG(seed, 1)).IntN }

func rapidChooser(t *rapid.T) chooser {
	return func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
}

func pick[T any](c chooser, of ...T) T { return of[c(len(of))] }

// heapBytes is what is on the heap after a collection.
func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
