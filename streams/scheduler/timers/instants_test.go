package timers

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// However instants come and go, instants know the same as a sorted list.
func TestFallsEqualASortedList(t *testing.T) {
	for seed := range 3 * *rounds {
		rng := rand.New(rand.NewPCG(seed, 1))
		var f instants
		var list []wire.Instant
		end := start
		for step := range 6000 {
			var at wire.Instant
			switch rng.IntN(10) {
			case 0, 1, 2, 3, 4, 5:
				end += seconds(rng.IntN(3))
				at = end
			case 6, 7:
				at = start + seconds(rng.IntN(5000))
			case 8:
				at = start + wire.Instant(rng.IntN(5e9)) // fractional
			default:
				at = []wire.Instant{1, 1e6, 4294967295e6, 4294967296e6, 253402300799_999999}[rng.IntN(5)]
			}
			switch i, found := slices.BinarySearch(list, at); {
			case f.insert(at) == found:
				t.Fatalf("seed %d step %d: %s inserted, known %t", seed, step, at, found)
			case !found:
				list = slices.Insert(list, i, at)
			}
			if step%500 == 499 && seed%2 == 0 && len(list) > 0 {
				through := list[rng.IntN(len(list))] - wire.Instant(rng.IntN(2))
				f.forget(through)
				i, _ := slices.BinarySearch(list, through+1)
				list = list[i:]
			}
			if step%100 != 99 || len(list) == 0 {
				continue
			}
			if f.n != len(list) {
				t.Fatalf("seed %d step %d: %d instants, expected %d", seed, step, f.n, len(list))
			}
			for range 10 {
				now := start + wire.Instant(rng.IntN(6e9))
				switch rng.IntN(4) {
				case 0:
					now = list[rng.IntN(len(list))]
				case 1:
					now = []wire.Instant{0, 1, 4294967295e6, 253402300799_999999, wire.Never}[rng.IntN(5)]
				}
				i, found := slices.BinarySearch(list, now)
				if found {
					i++
				}
				next, last := wire.Never, wire.Instant(0)
				if i < len(list) {
					next = list[i]
				}
				if i > 0 {
					last = list[i-1]
				}
				if f.after(now) != next || f.upTo(now) != last {
					t.Fatalf("seed %d step %d: around %s are %s and %s, expected %s and %s", seed, step, now, f.upTo(now), f.after(now), last, next)
				}
			}
			whole, fractional := f.frozen()
			if len(whole)+len(fractional) != len(list) || !slices.IsSorted(whole) || !slices.IsSorted(fractional) {
				t.Fatalf("seed %d step %d: frozen %d and %d of %d", seed, step, len(whole), len(fractional), len(list))
			}
		}
		f.forget(wire.Never)
		if f.n != 0 || f.few != nil || f.many != nil || f.fractional != nil {
			t.Fatalf("seed %d: %d left in the end", seed, f.n)
		}
	}
}

// Which coupons have an expiry of their own is kept as sets of numbers are.
func TestOwnExpiriesEqualASet(t *testing.T) {
	for seed := range 3 * *rounds {
		rng := rand.New(rand.NewPCG(seed, 2))
		var o ownExpiries
		set := map[uint32]bool{}
		claimed := uint32(0)
		for step := range 3000 {
			switch k := rng.IntN(20); {
			case k < 12:
				claimed++
				if step/300%2 == 0 {
					o.add(claimed)
					set[claimed] = true
				}
			case k < 19:
				n := rng.Uint32N(claimed + 3)
				o.add(n + 1)
				set[n+1] = true
				claimed = max(claimed, n+1)
			default:
				n := rng.Uint32N(claimed + 3)
				o.remove(n)
				delete(set, n)
			}
			if step%300 == 200 { // read back
				var back ownExpiries
				runs := 0
				frozen := o.frozen()
				frozen.runs(func(from, through uint32) {
					back.load(from, through)
					runs++
				})
				back.runs(func(uint32, uint32) { runs-- })
				if runs != 0 {
					t.Fatalf("seed %d step %d: another number of runs came back", seed, step)
				}
				o = back
			}
			n := rng.Uint32N(claimed + 2)
			if o.has(n) != set[n] {
				t.Fatalf("seed %d step %d: has coupon %d %t", seed, step, n, o.has(n))
			}
		}
		for n := range claimed + 2 {
			if o.has(n) != set[n] {
				t.Fatalf("seed %d: has coupon %d %t", seed, n, o.has(n))
			}
		}
	}
}
