package table

import (
	"math"
	"math/bits"
)

// Index finds records by a 64-bit hash of their key. It stores only record numbers (4 bytes each); the record itself holds
// the key, so the caller compares. It grows by splitting one small bucket at a time and never copies everything, which for
// one big table of 8 million entries would stop a lane for half a second.
//
// A slot is a record number and, in the upper bits that numbers do not need yet, a part of the hash: a search for a missing
// key, as every claim makes twice, must not read other records only to find that their keys differ.
//
// Source: R. Fagin et al., "Extendible Hashing — A Fast Access Method for Dynamic Files", ACM TODS 4(3), 1979. Within a
// bucket: open addressing with linear probing.
type Index struct {
	dir   []*bucket // 2^depth pointers, by the top bits of the hash
	depth uint8
	n     uint32
}

type bucket struct {
	slots []uint32 // tag of the hash, record number + 1; 0 = free
	used  uint32   // slots that are not free, removed ones included
	left  uint16   // slots whose record was removed
	depth uint8    // how many top bits all its hashes share
	width uint8    // bits of a slot that hold the number
}

// left marks a slot whose record was removed while others may follow it: a tag without a number.
const left = 1 << 31

const (
	firstSlots = 8
	maxSlots   = 2048
	// maxIndexDepth bounds the directory (32 MiB of pointers): hashes that are not spread, which no honest log has,
	// make one bucket long instead of the directory huge.
	maxIndexDepth = 22
)

// Len returns the number of records.
func (x *Index) Len() int { return int(x.n) }

// Slots returns how many slots the index has, taken and free, and in how many buckets at least one.
func (x *Index) Slots() (n, buckets int) {
	for i, b := range x.dir {
		if i == 0 || b != x.dir[i-1] {
			n += len(b.slots)
			buckets++
		}
	}
	return n, buckets
}

// reserve makes room for n records in an empty index, so that adding them copies nothing.
func (x *Index) reserve(n uint32) {
	const perBucket = maxSlots * 11 / 16 // the fullest of thousands stays below the 13/16 at which it would split
	if len(x.dir) > 0 || n == 0 {
		return
	}
	slots := uint32(firstSlots)
	for slots < maxSlots && slots*11/16 < n {
		slots *= 2
	}
	for x.depth < maxIndexDepth && n>>x.depth > perBucket {
		x.depth++
	}
	x.dir = make([]*bucket, 1<<x.depth)
	for i := range x.dir {
		x.dir[i] = &bucket{depth: x.depth, slots: make([]uint32, slots)}
	}
}

// HashOf returns the hash of a record. Buckets that split call it.
type HashOf func(record uint32) uint64

func (x *Index) bucketOf(h uint64) *bucket {
	if x.depth == 0 {
		return x.dir[0]
	}
	return x.dir[h>>(64-x.depth)]
}

// tag is the part of a hash that is stored in a slot. Neither the directory nor the position in the bucket uses its bits.
func (b *bucket) tag(h uint64) uint32 { return uint32(h>>11) &^ b.numbers() }

// numbers has the bits of a slot set that hold the record number + 1.
func (b *bucket) numbers() uint32 { return uint32(uint64(1)<<b.width - 1) }

// Find returns the first record with hash h for which same returns true.
func (x *Index) Find(h uint64, same func(record uint32) bool) (uint32, bool) {
	if len(x.dir) == 0 {
		return 0, false
	}
	b := x.bucketOf(h)
	tag, numbers := b.tag(h), b.numbers()
	mask := uint32(len(b.slots) - 1)
	for i := uint32(h) & mask; b.slots[i] != 0; i = (i + 1) & mask {
		if s := b.slots[i]; s&^numbers == tag {
			if n := s & numbers; n != 0 && same(n-1) {
				return n - 1, true
			}
		}
	}
	return 0, false
}

// Prefetch reads the memory where hash h is searched, without waiting for it. The caller must use the result, so that the read is not optimised away, but not its value.
func (x *Index) Prefetch(h uint64) uint32 {
	if len(x.dir) == 0 {
		return 0
	}
	b := x.bucketOf(h)
	return b.slots[uint32(h)&uint32(len(b.slots)-1)]
}

// Replace changes the record stored for old (found by hash h) to record; both must have hash h. Not in an index that
// records are removed from: widening would free the slots they left.
func (x *Index) Replace(h uint64, old, record uint32) {
	b := x.bucketOf(h)
	b.widen(record)
	was, is := b.tag(h)|(old+1), b.tag(h)|(record+1)
	mask := uint32(len(b.slots) - 1)
	for i := uint32(h) & mask; b.slots[i] != 0; i = (i + 1) & mask {
		if b.slots[i] == was {
			b.slots[i] = is
			return
		}
	}
}

// Remove takes out a record that is stored under hash h. Records after it must still be found: its slot is marked as
// left until the bucket is rebuilt. A bucket that is an eighth full shrinks.
func (x *Index) Remove(h uint64, record uint32, hash HashOf) {
	b := x.bucketOf(h)
	mask := uint32(len(b.slots) - 1)
	was, i := b.tag(h)|(record+1), uint32(h)&mask
	for ; b.slots[i] != was; i = (i + 1) & mask {
		if b.slots[i] == 0 {
			return
		}
	}
	x.n--
	switch {
	case b.slots[(i+1)&mask] == 0:
		b.slots[i] = 0
		b.used--
	case b.width == 32: // there is no bit for the mark
		b.close(i, hash)
	case b.left < math.MaxUint16:
		b.slots[i] = left
		b.left++
	default:
		b.slots[i] = 0
		b.resize(len(b.slots), hash)
	}
	if len(b.slots) > firstSlots && int(b.used)-int(b.left) < len(b.slots)/8 {
		b.resize(max(firstSlots, len(b.slots)/4), hash)
	}
}

// close frees slot i of a bucket without marks: what follows moves up unless its own position is after the gap. Source:
// D. Knuth, The Art of Computer Programming vol. 3, 6.4, algorithm R.
func (b *bucket) close(i uint32, hash HashOf) {
	mask := uint32(len(b.slots) - 1)
	for j := (i + 1) & mask; b.slots[j] != 0; j = (j + 1) & mask {
		if home := uint32(hash(b.slots[j]-1)) & mask; (j-home)&mask >= (j-i)&mask {
			b.slots[i] = b.slots[j]
			i = j
		}
	}
	b.slots[i] = 0
	b.used--
}

// Add stores a record under hash h. The caller has made sure that it is not there yet.
func (x *Index) Add(h uint64, record uint32, hash HashOf) {
	if len(x.dir) == 0 {
		x.dir = []*bucket{{slots: make([]uint32, firstSlots)}}
	}
	for {
		b := x.bucketOf(h)
		if int(b.used) < len(b.slots)*13/16 && (b.left == 0 || bits.Len32(record+1) < 31) {
			b.put(h, record)
			x.n++
			return
		}
		if b.left > 0 && (int(b.left) > len(b.slots)/8 || bits.Len32(record+1) >= 31) {
			b.resize(len(b.slots), hash)
		} else if len(b.slots) < maxSlots || b.depth == maxIndexDepth {
			b.resize(2*len(b.slots), hash)
		} else {
			x.split(b, h, hash)
		}
	}
}

func (b *bucket) put(h uint64, record uint32) {
	b.widen(record)
	mask := uint32(len(b.slots) - 1)
	i := uint32(h) & mask
	for b.slots[i] != 0 {
		i = (i + 1) & mask
	}
	b.slots[i] = b.tag(h) | (record + 1)
	b.used++
}

// widen makes room for the number of a record in the slots, which takes it from the tags. It happens once when the number
// of records has doubled twice.
func (b *bucket) widen(record uint32) {
	need := uint8(bits.Len32(record + 1))
	if need <= b.width {
		return
	}
	was := b.numbers()
	b.width = min(need+1, 32)
	between := b.numbers() &^ was
	for i := range b.slots {
		b.slots[i] &^= between
	}
}

// records calls f with each record of the bucket.
func (b *bucket) records(f func(record uint32)) {
	for _, s := range b.slots {
		if n := s & b.numbers(); n != 0 {
			f(n - 1)
		}
	}
}

func (b *bucket) resize(slots int, hash HashOf) {
	old := *b
	b.slots, b.used, b.left = make([]uint32, slots), 0, 0
	old.records(func(r uint32) { b.put(hash(r), r) })
}

// split divides b, which is full, by the next bit of its hashes.
func (x *Index) split(b *bucket, h uint64, hash HashOf) {
	if b.depth == x.depth {
		dir := make([]*bucket, 2*len(x.dir))
		for i, d := range x.dir {
			dir[2*i], dir[2*i+1] = d, d
		}
		x.dir, x.depth = dir, x.depth+1
	}
	low := &bucket{depth: b.depth + 1, width: b.width, slots: make([]uint32, maxSlots)}
	high := &bucket{depth: b.depth + 1, width: b.width, slots: make([]uint32, maxSlots)}
	// First all hashes, then all slots: records are anywhere in memory, and reads overlap if nothing waits for one of them.
	var hashes [maxSlots]uint64
	n := 0
	b.records(func(r uint32) {
		hashes[n] = hash(r)
		n++
	})
	n = 0
	halves := [2]*bucket{low, high}
	b.records(func(r uint32) {
		hr := hashes[n]
		halves[hr<<b.depth>>63].put(hr, r)
		n++
	})
	// The directory entries of b are the ones whose top b.depth bits are those of h.
	span := 1 << (x.depth - b.depth)
	from := 0
	if b.depth > 0 {
		from = int(h>>(64-b.depth)) << (x.depth - b.depth)
	}
	for i := 0; i < span/2; i++ {
		x.dir[from+i] = low
		x.dir[from+span/2+i] = high
	}
}

// fillFrom is from how many records on an index is filled bucket by bucket.
const fillFrom = 1 << 15

// Fill puts n records into an empty index, in their order. Where one has the hash of an earlier one, same compares
// their keys; if they are equal, the later replaces the earlier.
//
// Added one by one, each of ten million records waits for memory. So records are first sorted by bucket, and each bucket is
// filled while it is in the cache: a restart takes a fifth of the time for it. That costs 12 bytes a record while it runs.
func (x *Index) Fill(n uint32, record func(k uint32) uint32, hash HashOf, same func(record, earlier uint32) bool) {
	x.reserve(n)
	if n < fillFrom || x.depth == 0 {
		for k := range n {
			r := record(k)
			x.put(r, hash(r), hash, same)
		}
		return
	}
	shift := 64 - x.depth
	ends := make([]uint32, len(x.dir)+1) // of each bucket's part; first its beginning
	for k := range n {
		ends[hash(record(k))>>shift+1]++
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	records, hashes := make([]uint32, n), make([]uint64, n)
	for k := range n {
		r := record(k)
		h := hash(r)
		at := ends[h>>shift]
		ends[h>>shift]++
		records[at], hashes[at] = r, h
	}
	most := uint32(0)
	for _, r := range records {
		most = max(most, r)
	}
	var left []uint32 // found no room
	from := uint32(0)
	for i, b := range x.dir {
		b.widen(most)
		end := ends[i]
		done := b.fill(records[from:end], hashes[from:end], same)
		x.n += b.used
		left = append(left, records[from+done:end]...)
		from = end
	}
	for _, r := range left { // their buckets are split
		x.put(r, hash(r), hash, same)
	}
}

// put adds a record, or replaces an earlier one with the same key.
func (x *Index) put(r uint32, h uint64, hash HashOf, same func(record, earlier uint32) bool) {
	earlier, known := x.Find(h, func(e uint32) bool { return hash(e) == h && same(r, e) })
	if known {
		x.Replace(h, earlier, r)
		return
	}
	x.Add(h, r, hash)
}

// fill fills an empty bucket and returns how many records it has taken.
func (b *bucket) fill(records []uint32, hashes []uint64, same func(record, earlier uint32) bool) (taken uint32) {
	var known [maxSlots]uint64 // hash of the record in a slot
	mask, numbers := uint32(len(b.slots)-1), b.numbers()
next:
	for k, r := range records {
		h := hashes[k]
		i := uint32(h) & mask
		for ; b.slots[i] != 0; i = (i + 1) & mask {
			if known[i] == h && same(r, b.slots[i]&numbers-1) {
				b.slots[i] = b.tag(h) | (r + 1)
				continue next
			}
		}
		if int(b.used) >= len(b.slots)*13/16 {
			return uint32(k)
		}
		b.slots[i], known[i] = b.tag(h)|(r+1), h
		b.used++
	}
	return uint32(len(records))
}
