package table

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// indexRig is an index beside a map.
type indexRig struct {
	index  Index
	hashes []uint64 // of record i
	want   map[uint64]uint32
}

func (r *indexRig) hash(i uint32) uint64 { return r.hashes[i] }

func (r *indexRig) find(h uint64) (uint32, bool) {
	return r.index.Find(h, func(i uint32) bool { return r.hashes[i] == h })
}

func (r *indexRig) add(h uint64) {
	i := uint32(len(r.hashes))
	r.hashes = append(r.hashes, h)
	if old, known := r.want[h]; known {
		r.index.Replace(h, old, i)
	} else {
		r.index.Add(h, i, r.hash)
	}
	r.want[h] = i
}

func (r *indexRig) check(t failer) {
	for h, i := range r.want {
		if got, ok := r.find(h); !ok || got != i {
			t.Fatalf("hash %x is found as %d, %v; want %d", h, got, ok, i)
		}
	}
	if int(r.index.n) != len(r.want) {
		t.Fatalf("%d records, want %d", r.index.n, len(r.want))
	}
	// Every bucket is at the directory entry of the top bits of its hashes.
	for i := range r.index.dir {
		b := r.index.dir[i]
		if i > 0 && b == r.index.dir[i-1] {
			continue
		}
		used := uint32(0)
		b.records(func(record uint32) {
			used++
			if h := r.hashes[record]; r.index.bucketOf(h) != b {
				t.Fatalf("hash %x lies in the wrong bucket", h)
			}
		})
		if used != b.used-uint32(b.left) || int(b.used) > len(b.slots)*13/16 || b.depth > r.index.depth {
			t.Fatalf("bucket %d: %d used, %d counted of %d, depth %d of %d", i, used, b.used, len(b.slots), b.depth, r.index.depth)
		}
	}
}

func TestIndexIsAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := &indexRig{want: make(map[uint64]uint32)}
		r.index.reserve(rapid.Uint32Range(0, 5000).Draw(rt, "reserved"))
		// Few distinct bits somewhere make crowds.
		shift := rapid.SampledFrom([]int{0, 20, 44, 56}).Draw(rt, "shift")
		for _, h := range rapid.SliceOfN(rapid.Uint64Range(0, 255), 0, 200).Draw(rt, "hashes") {
			r.add(h<<shift | 7)
		}
		if _, ok := r.find(1); ok {
			rt.Fatalf("found what was never added")
		}
		r.check(rt)
	})
}

func TestIndexGrowsAndSplits(t *testing.T) {
	for _, n := range []int{0, 1, 7, 100, maxSlots, 100_000} {
		for _, reserved := range []bool{false, true} {
			t.Run(fmt.Sprint(n, " records, reserved ", reserved), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(uint64(n), 2))
				r := &indexRig{want: make(map[uint64]uint32)}
				if reserved {
					r.index.reserve(uint32(n))
				}
				dir := len(r.index.dir)
				for range n {
					r.add(rnd.Uint64())
				}
				r.check(t)
				if reserved && len(r.index.dir) != dir && n > 0 {
					t.Fatalf("the directory grew from %d to %d in spite of the reservation", dir, len(r.index.dir))
				}
			})
		}
	}
}

// TestIndexOfCrowdedHashes: hashes that are not spread cost time, not memory beyond bounds.
func TestIndexOfCrowdedHashes(t *testing.T) {
	r := &indexRig{want: make(map[uint64]uint32)}
	for i := range uint64(2 * maxSlots) {
		r.add(0xabcdef<<40 | i)
	}
	r.check(t)
	if r.index.depth > maxIndexDepth {
		t.Fatalf("depth %d", r.index.depth)
	}
}

func TestPagesAreASliceAndFrozenOnesDoNotChange(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var p Pages[uint64]
		most := rapid.SampledFrom([]uint32{0, 1, 5, 1 << 31}).Draw(rt, "most, as foreseen")
		var want []uint64
		type frozen struct {
			is   Pages[uint64]
			want []uint64
		}
		var views []frozen
		same := func(list []uint64, view Pages[uint64]) {
			var got []uint64
			for _, page := range view.list {
				got = append(got, page.records...)
			}
			if fmt.Sprint(got) != fmt.Sprint(list) || view.n != uint32(len(list)) {
				rt.Fatalf("a frozen view changed: %d records, %d counted, want %d", len(got), view.n, len(list))
			}
		}
		for _, do := range rapid.SliceOfN(rapid.IntRange(0, 9), 0, 40).Draw(rt, "steps") {
			switch {
			case do < 5:
				for range rapid.SampledFrom([]int{1, 3, PageSize / 2, PageSize}).Draw(rt, "how many") {
					i, r := p.Add(most)
					*r = uint64(i) * 3
					want = append(want, uint64(i)*3)
				}
			case do < 8 && len(want) > 0:
				i := rapid.IntRange(0, len(want)-1).Draw(rt, "which")
				*p.Edit(uint32(i)) += 1000
				want[i] += 1000
			case do >= 8:
				views = append(views, frozen{p, append([]uint64(nil), want...)})
				p.Freeze()
			}
		}
		for i := range want {
			if *p.At(uint32(i)) != want[i] {
				rt.Fatalf("record %d is %d, want %d", i, *p.At(uint32(i)), want[i])
			}
		}
		if p.Len() != uint32(len(want)) {
			rt.Fatalf("%d records, want %d", p.Len(), len(want))
		}
		for _, v := range views {
			same(v.want, v.is)
		}
	})
}

func TestASmallArrayTakesASmallPage(t *testing.T) {
	var p, exact Pages[[4]uint64]
	for range 10 {
		p.Add(1000)
		exact.Add(10)
	}
	if c := cap(p.list[0].records); c > 12 {
		t.Fatalf("10 records take a page of %d", c)
	}
	if c := cap(exact.list[0].records); c != 10 {
		t.Fatalf("10 records of 10 take a page of %d", c)
	}
}

// TestIndexFilledAtOnce: as if records had been added one by one, wherever their hashes lie.
func TestIndexFilledAtOnce(t *testing.T) {
	type key struct {
		hash uint64
		kind uint32
	}
	for _, n := range []uint32{0, 1, 5, 1000, fillFrom - 1, fillFrom, 100_000} {
		for name, hashes := range map[string]func(*rand.Rand) uint64{
			"spread":     (*rand.Rand).Uint64,
			"each twice": func(r *rand.Rand) uint64 { return r.Uint64N(uint64(n)/2+1) * 0x9e3779b97f4a7c15 },
			"in a crowd": func(r *rand.Rand) uint64 { return 0xabcdef<<40 | r.Uint64N(1<<9) },
			"half of them in a crowd": func(r *rand.Rand) uint64 {
				if h := r.Uint64(); h&1 == 0 {
					return h
				}
				return 0x123<<52 | r.Uint64N(1<<9)<<8
			},
		} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(uint64(n), 3))
				keys := make([]key, 3*n+1) // records are numbers with gaps
				want := map[key]uint32{}
				for k := range n {
					keys[3*k] = key{hashes(rnd), rnd.Uint32N(2)}
					want[keys[3*k]] = 3 * k
				}
				var x Index
				hash := func(r uint32) uint64 { return keys[r].hash }
				same := func(r, earlier uint32) bool {
					if keys[r].hash != keys[earlier].hash || earlier >= r {
						t.Fatalf("compared %d with %d", r, earlier)
					}
					return keys[r] == keys[earlier]
				}
				x.Fill(n, func(k uint32) uint32 { return 3 * k }, hash, same)
				if int(x.n) != len(want) {
					t.Fatalf("%d records, want %d", x.n, len(want))
				}
				for k, r := range want {
					if got, ok := x.Find(k.hash, func(r uint32) bool { return keys[r] == k }); !ok || got != r {
						t.Fatalf("record %d of %v, %v, want %d", got, k, ok, r)
					}
				}
				for _, b := range x.dir {
					if int(b.used) > len(b.slots)*13/16 {
						t.Fatalf("a bucket has %d of %d slots used", b.used, len(b.slots))
					}
				}
			})
		}
	}
}

// TestIndexForgetsWhatIsRemoved: others are still found, and room comes back, also where numbers leave no bit for a mark.
func TestIndexForgetsWhatIsRemoved(t *testing.T) {
	for _, base := range []uint32{0, 1<<30 - 3000, 1<<31 - 3000, 1<<32 - 6002} {
		for _, crowded := range []bool{false, true} {
			rnd := rand.New(rand.NewPCG(uint64(base), 3))
			hash := func(r uint32) uint64 {
				if crowded {
					return uint64(r%50) << 40
				}
				return uint64(r+1) * 0x9e3779b97f4a7c15
			}
			var x Index
			size := uint32(6000)
			if crowded {
				size = 600
			}
			there := make(map[uint32]bool)
			check := func() {
				found := 0
				for r := base; r < base+size; r++ {
					got, ok := x.Find(hash(r), func(o uint32) bool { return o == r })
					if ok != there[r] || ok && got != r {
						t.Fatalf("from %d on: %d is found: %v, want %v", base, r, ok, there[r])
					}
					if ok {
						found++
					}
				}
				if int(x.n) != found {
					t.Fatalf("%d records, want %d", x.n, found)
				}
			}
			for range 3 {
				for range size {
					if r := base + rnd.Uint32N(size); !there[r] {
						x.Add(hash(r), r, hash)
						there[r] = true
					}
					if r := base + rnd.Uint32N(size); there[r] {
						x.Remove(hash(r), r, hash)
						delete(there, r)
					}
				}
				check()
			}
			for r := range there {
				x.Remove(hash(r), r, hash)
				delete(there, r)
			}
			x.Remove(hash(base), base, hash) // not there
			check()
			for i, b := range x.dir {
				if len(b.slots) > firstSlots && !crowded {
					t.Fatalf("bucket %d keeps %d slots", i, len(b.slots))
				}
			}
		}
	}
}
