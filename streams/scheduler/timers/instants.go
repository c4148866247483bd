package timers

import (
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/tidwall/btree"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// instants are those at which coupons of a campaign expire by an expiry of their own, each once, however many coupons: about
// two bytes an instant. A few are a slice: a bitmap of one costs some hundred bytes, and there may be a million campaigns.
type instants struct {
	few        []uint32                 // seconds since 1970, rising; empty if there is a bitmap
	many       *roaring.Bitmap          // seconds since 1970; nil while few are enough
	fractional *btree.Set[wire.Instant] // with microseconds, or after the year 2106; nil if there are none
	n          int
}

// fewInstants is how many whole seconds the slice holds at most.
const fewInstants = 8

const maxSecond = 1<<32 - 1

// floor is the last whole second at or before the instant, of those that fit a bitmap.
func floor(at wire.Instant) uint32 { return uint32(min(max(at, 0)/1e6, maxSecond)) }

// insert puts an instant in; false if it is there.
func (f *instants) insert(at wire.Instant) bool {
	added := false
	if at%1e6 == 0 && at >= 0 && at/1e6 <= maxSecond {
		added = f.insertSecond(uint32(at / 1e6))
	} else {
		if f.fractional == nil {
			f.fractional = new(btree.Set[wire.Instant])
		}
		if added = !f.fractional.Contains(at); added {
			f.fractional.Insert(at)
		}
	}
	if added {
		f.n++
	}
	return added
}

func (f *instants) insertSecond(s uint32) bool {
	if f.many != nil {
		return f.many.CheckedAdd(s)
	}
	i, found := slices.BinarySearch(f.few, s)
	switch {
	case found:
		return false
	case len(f.few) < fewInstants:
		f.few = slices.Insert(f.few, i, s)
		return true
	}
	f.many = roaring.BitmapOf(f.few...)
	f.few = nil
	f.many.Add(s)
	return true
}

// forget drops what is at or before through.
func (f *instants) forget(through wire.Instant) {
	s := floor(through)
	if f.many != nil {
		f.n -= int(f.many.Rank(s))
		f.many.RemoveRange(0, uint64(s)+1)
		if f.many.IsEmpty() {
			f.many = nil
		}
	}
	i, found := slices.BinarySearch(f.few, s)
	if found {
		i++
	}
	f.n -= i
	if f.few = f.few[i:]; len(f.few) == 0 {
		f.few = nil
	}
	for f.fractional != nil {
		if first, ok := f.fractional.Min(); !ok || first > through {
			break
		}
		f.fractional.PopMin()
		f.n--
	}
	if f.fractional != nil && f.fractional.Len() == 0 {
		f.fractional = nil
	}
}

// after is the first one after the given instant, Never if there is none.
func (f *instants) after(now wire.Instant) wire.Instant {
	next := wire.Never
	if s := floor(now); s < maxSecond {
		if i, _ := slices.BinarySearch(f.few, s+1); i < len(f.few) {
			next = wire.Instant(f.few[i]) * 1e6
		}
		if f.many != nil {
			if v := f.many.NextValue(s + 1); v >= 0 {
				next = wire.Instant(v) * 1e6
			}
		}
	}
	if f.fractional != nil && now < wire.Never {
		f.fractional.Ascend(now+1, func(at wire.Instant) bool {
			next = min(next, at)
			return false
		})
	}
	return next
}

// upTo is the last one at or before the given instant, 0 if there is none.
func (f *instants) upTo(now wire.Instant) (last wire.Instant) {
	s := floor(now)
	if i, found := slices.BinarySearch(f.few, s); found {
		last = wire.Instant(s) * 1e6
	} else if i > 0 {
		last = wire.Instant(f.few[i-1]) * 1e6
	}
	if f.many != nil {
		if v := f.many.PreviousValue(s); v >= 0 {
			last = wire.Instant(v) * 1e6
		}
	}
	if f.fractional != nil {
		f.fractional.Descend(now, func(at wire.Instant) bool {
			last = max(last, at)
			return false
		})
	}
	return last
}

// frozen is a copy that the owner's writing does not change.
func (f *instants) frozen() (seconds []uint32, fractional []wire.Instant) {
	seconds = slices.Clone(f.few)
	if f.many != nil {
		seconds = f.many.ToArray()
	}
	if f.fractional != nil {
		fractional = f.fractional.Keys()
	}
	return seconds, fractional
}
