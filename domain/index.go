package domain

// index finds records by a 64-bit hash of their key. It stores only record numbers (4 bytes each); the record itself
// holds the key, so the caller compares. It grows by splitting one small bucket at a time: there is no moment at which
// everything is copied, which for one big table of 8 million entries would stop a lane for half a second.
//
// Source: R. Fagin et al., "Extendible Hashing — A Fast Access Method for Dynamic Files", ACM TODS 4(3), 1979. Within a
// bucket: open addressing with linear probing.
type index struct {
	dir   []*bucket // 2^depth pointers, by the top bits of the hash
	depth uint8
	n     int
}

type bucket struct {
	depth uint8 // how many top bits all its hashes share
	used  uint32
	slots []uint32 // record number + 1; 0 = free
}

const (
	firstSlots = 8
	maxSlots   = 2048
	// maxIndexDepth bounds the directory (32 MiB of pointers): hashes that are not spread, as no honest log has them,
	// make one bucket long instead of the directory huge.
	maxIndexDepth = 22
)

// reserve makes room for n records in an empty index, so that adding them moves nothing.
func (x *index) reserve(n uint32) {
	const perBucket = maxSlots * 5 / 8 // the fullest of thousands stays below the 3/4 at which it would split
	if len(x.dir) > 0 || n == 0 {
		return
	}
	slots := uint32(firstSlots)
	for slots < maxSlots && slots*5/8 < n {
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

// hashOf tells the hash of a record; buckets that split ask for it.
type hashOf func(record uint32) uint64

func (x *index) bucketOf(h uint64) *bucket {
	if x.depth == 0 {
		return x.dir[0]
	}
	return x.dir[h>>(64-x.depth)]
}

// find returns the first record with hash h for which same says yes.
func (x *index) find(h uint64, same func(record uint32) bool) (uint32, bool) {
	if len(x.dir) == 0 {
		return 0, false
	}
	b := x.bucketOf(h)
	mask := uint32(len(b.slots) - 1)
	for i := uint32(h) & mask; b.slots[i] != 0; i = (i + 1) & mask {
		if r := b.slots[i] - 1; same(r) {
			return r, true
		}
	}
	return 0, false
}

// replace changes the record stored for old (found by hash h) to record; both must have hash h.
func (x *index) replace(h uint64, old, record uint32) {
	b := x.bucketOf(h)
	mask := uint32(len(b.slots) - 1)
	for i := uint32(h) & mask; b.slots[i] != 0; i = (i + 1) & mask {
		if b.slots[i] == old+1 {
			b.slots[i] = record + 1
			return
		}
	}
}

// add stores a record under hash h. The caller has made sure that it is not there yet.
func (x *index) add(h uint64, record uint32, hash hashOf) {
	if len(x.dir) == 0 {
		x.dir = []*bucket{{slots: make([]uint32, firstSlots)}}
	}
	for {
		b := x.bucketOf(h)
		if int(b.used) < len(b.slots)*3/4 {
			b.put(h, record)
			x.n++
			return
		}
		if len(b.slots) < maxSlots || b.depth == maxIndexDepth {
			b.grow(hash)
		} else {
			x.split(b, h, hash)
		}
	}
}

func (b *bucket) put(h uint64, record uint32) {
	mask := uint32(len(b.slots) - 1)
	i := uint32(h) & mask
	for b.slots[i] != 0 {
		i = (i + 1) & mask
	}
	b.slots[i] = record + 1
	b.used++
}

func (b *bucket) grow(hash hashOf) {
	old := b.slots
	b.slots, b.used = make([]uint32, 2*len(old)), 0
	for _, s := range old {
		if s != 0 {
			b.put(hash(s-1), s-1)
		}
	}
}

// split divides b, which is full, by the next bit of its hashes.
func (x *index) split(b *bucket, h uint64, hash hashOf) {
	if b.depth == x.depth {
		dir := make([]*bucket, 2*len(x.dir))
		for i, d := range x.dir {
			dir[2*i], dir[2*i+1] = d, d
		}
		x.dir, x.depth = dir, x.depth+1
	}
	old := b.slots
	low := &bucket{depth: b.depth + 1, slots: make([]uint32, maxSlots)}
	high := &bucket{depth: b.depth + 1, slots: make([]uint32, maxSlots)}
	for _, s := range old {
		if s == 0 {
			continue
		}
		hs := hash(s - 1)
		if hs<<b.depth>>63 == 0 {
			low.put(hs, s-1)
		} else {
			high.put(hs, s-1)
		}
	}
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
