package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestServersUnderFaults: servers are cut off, slow and deaf, stop, die and start again, at random. Once that ends each has
// its share, and nothing moves any more.
func TestServersUnderFaults(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, 8, func(t *testing.T, o *office) {
				rng := rand.New(rand.NewPCG(seed, 1))
				all := make([]*server, 2+rng.IntN(3)) // nil = it does not run
				name := func(i int) string { return string(rune('a' + i)) }
				heal := func(s *server) {
					s.deaf.Store(false)
					s.slow.Store(0)
					s.cut(false)
				}
				for range 60 {
					i := rng.IntN(len(all))
					s := all[i]
					switch kind := rng.IntN(8); {
					case s == nil:
						all[i] = o.start(name(i))
						all[i].slow.Store(int64(time.Millisecond)) // two runs of a server that take each other's leases take time
					case kind < 2:
						s.cut(true)
					case kind == 2:
						s.deaf.Store(true)
					case kind == 3:
						s.slow.Store(int64(rng.IntN(1200)) * int64(time.Millisecond))
					case kind == 4:
						all[i] = nil
						s.stop()
					case kind == 5: // it dies: nothing is released
						all[i] = nil
						s.cut(true)
						s.stop()
					default:
						heal(s)
					}
					pass(time.Duration(rng.IntN(6000)) * time.Millisecond)
				}
				var running []string
				for i, s := range all {
					if s == nil {
						all[i] = o.start(name(i))
						s = all[i]
					}
					heal(s)
					running = append(running, name(i))
				}
				pass(time.Minute)
				o.spread(running...)
				o.change(func() { o.causes, o.twice = map[string][]error{}, false })
				pass(10 * time.Minute)
				o.spread(running...)
				o.undisturbed()
				for key, h := range o.inspect().Holders {
					if at := o.at(key); !slices.Equal(at, []string{h.Server}) {
						t.Errorf("key %d is worked on by %s and held by %s", key, at, h.Server)
					}
				}
				synctest.Wait()
			})
		})
	}
}
