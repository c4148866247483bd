package timers

import (
	"slices"
	"sort"

	"github.com/tidwall/btree"

	"github.com/seed-4a2410e3/scrip/domain"
)

// instants are the instants at which coupons of a campaign fall by an expiry of their own, each once, however many coupons:
// four bytes an instant and little else. Where coupons live for some time from their claim, instants are appended at the
// end and taken away at the front; an extension may put one in the middle.
type instants struct {
	chunks     [][]uint32                 // seconds since 1970, rising; no chunk is empty, none has more than chunkInstants
	fractional *btree.Set[domain.Instant] // with microseconds, or beyond the year 2106; nil if there never was one
	n          int
}

// chunkInstants bounds what an instant in the middle moves: 2 KiB.
const chunkInstants = 512

// second is the instant as seconds since 1970; false if it is an fractional one.
func second(at domain.Instant) (uint32, bool) {
	s := at / 1e6
	return uint32(s), at%1e6 == 0 && s >= 0 && s < 1<<32
}

// floor is the last whole second at or before the instant, of those that chunks can hold.
func floor(at domain.Instant) uint32 { return uint32(min(max(at, 0)/1e6, 1<<32-1)) }

// insert puts an instant in; false if it is there.
func (f *instants) insert(at domain.Instant) bool {
	s, whole := second(at)
	switch {
	case !whole:
		if f.fractional == nil {
			f.fractional = new(btree.Set[domain.Instant])
		}
		if f.fractional.Contains(at) {
			return false
		}
		f.fractional.Insert(at)
	case !f.insertSecond(s):
		return false
	}
	f.n++
	return true
}

func (f *instants) insertSecond(s uint32) bool {
	if len(f.chunks) == 0 {
		f.chunks = append(f.chunks, []uint32{s})
		return true
	}
	i := f.chunk(s)
	c := f.chunks[i]
	j, found := slices.BinarySearch(c, s)
	switch {
	case found:
		return false
	case len(c) < chunkInstants:
	case j == len(c) && i == len(f.chunks)-1:
		f.chunks = append(f.chunks, []uint32{s}) // the common case: full chunks stay behind
		return true
	default:
		half := len(c) / 2
		f.chunks = slices.Insert(f.chunks, i+1, slices.Clone(c[half:]))
		f.chunks[i] = slices.Clone(c[:half])
		if j > half {
			i, j = i+1, j-half
		}
		c = f.chunks[i]
	}
	if len(c) == cap(c) {
		// An eighth more: a campaign must not hold twice what it needs, and what fell at the front is left behind.
		c = append(make([]uint32, 0, min(len(c)+len(c)/8+4, chunkInstants)), c...)
	}
	f.chunks[i] = slices.Insert(c, j, s)
	return true
}

// chunk is the place of the last chunk that begins at or before s, 0 if none does.
func (f *instants) chunk(s uint32) int {
	last := len(f.chunks) - 1
	if f.chunks[last][0] <= s {
		return last
	}
	return max(0, sort.Search(last, func(i int) bool { return f.chunks[i][0] > s })-1)
}

// forget drops what instants up to through.
func (f *instants) forget(through domain.Instant) {
	s := floor(through)
	for len(f.chunks) > 0 && f.chunks[0][0] <= s {
		c := f.chunks[0]
		j, found := slices.BinarySearch(c, s)
		if found {
			j++
		}
		f.n -= j
		if j < len(c) {
			f.chunks[0] = c[j:]
			break
		}
		f.chunks[0] = nil
		f.chunks = f.chunks[1:]
	}
	if len(f.chunks) == 0 {
		f.chunks = nil
	}
	if f.fractional == nil {
		return
	}
	for first, ok := f.fractional.Min(); ok && first <= through; first, ok = f.fractional.Min() {
		f.fractional.PopMin()
		f.n--
	}
	if f.fractional.Len() == 0 {
		f.fractional = nil
	}
}

// after is the first one after the given instant, Never if there is none.
func (f *instants) after(now domain.Instant) domain.Instant {
	next := domain.Never
	if s := floor(now); len(f.chunks) > 0 && s < 1<<32-1 {
		i := f.chunk(s)
		j, found := slices.BinarySearch(f.chunks[i], s)
		if found {
			j++
		}
		if j == len(f.chunks[i]) {
			i, j = i+1, 0
		}
		if i < len(f.chunks) {
			next = domain.Instant(f.chunks[i][j]) * 1e6
		}
	}
	if f.fractional != nil && now < domain.Never {
		f.fractional.Ascend(now+1, func(at domain.Instant) bool {
			next = min(next, at)
			return false
		})
	}
	return next
}

// upTo is the last one at or before the given instant, 0 if there is none.
func (f *instants) upTo(now domain.Instant) (last domain.Instant) {
	if s := floor(now); len(f.chunks) > 0 {
		c := f.chunks[f.chunk(s)]
		j, found := slices.BinarySearch(c, s)
		if found {
			j++
		}
		if j > 0 {
			last = domain.Instant(c[j-1]) * 1e6
		}
	}
	if f.fractional != nil {
		f.fractional.Descend(now, func(at domain.Instant) bool {
			last = max(last, at)
			return false
		})
	}
	return last
}

// frozen is a copy that the owner's writing does not change: 43 MB for ten million instants.
func (f *instants) frozen() (seconds []uint32, fractional []domain.Instant) {
	n := 0
	for _, c := range f.chunks {
		n += len(c)
	}
	if n > 0 {
		seconds = make([]uint32, 0, n)
	}
	for _, c := range f.chunks {
		seconds = append(seconds, c...)
	}
	if f.fractional != nil {
		fractional = f.fractional.Keys()
	}
	return seconds, fractional
}
