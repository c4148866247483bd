package crash

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
)

var (
	rounds  = flag.Int("crash.rounds", 5, "how often TestKillNine kills; the tests of keys and of lanes that move do it less often")
	lasting = flag.Duration("crash.for", 0, "no round begins later than that; 0 = no limit")
	seeded  = flag.Uint64("crash.seed", 0, "of the random moments and choices; 0 = a new one")
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }

// runs is what a test with random rounds needs.
type runs struct {
	*rand.Rand
	seed uint64
	most int // rounds
	end  time.Time
	n    int
}

// newRuns are one of every so many rounds.
func newRuns(t *testing.T, every int) *runs {
	r := &runs{seed: *seeded, most: max(1, *rounds/every)}
	if r.seed == 0 {
		r.seed = uint64(time.Now().UnixNano())
	}
	if *lasting > 0 {
		r.end = time.Now().Add(*lasting)
	}
	t.Logf("seed %d", r.seed)
	r.Rand = rand.New(rand.NewPCG(r.seed, 1))
	return r
}

// next is true while there is another round.
func (r *runs) next() bool {
	if r.n == r.most || !r.end.IsZero() && time.Now().After(r.end) {
		return false
	}
	r.n++
	return true
}

// stream is a source of chance of its own, for a goroutine.
func (r *runs) stream(n int) *rand.Rand { return rand.New(rand.NewPCG(r.seed, uint64(n)+2)) }
