package domain

// fillFrom is from how many records on an index is filled bucket by bucket.
const fillFrom = 1 << 15

// fill puts n records into an empty index, in their order. Where one has the hash of an earlier one, same is asked whether
// they have the same key; if so, the later stands in the place of the earlier.
//
// Added one by one, each of ten million records waits for another piece of memory. So records are first laid side by side
// by the bucket they belong in, and each bucket is filled while it is at hand: a restart takes a fifth of the time for it.
// That costs 12 bytes a record while it lasts.
func (x *index) fill(n uint32, record func(k uint32) uint32, hash hashOf, same func(record, earlier uint32) bool) {
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
	var left []uint32 // did not find room
	begin := uint32(0)
	for i, b := range x.dir {
		b.widen(most)
		end := ends[i]
		done := b.fill(records[begin:end], hashes[begin:end], same)
		x.n += b.used
		left = append(left, records[begin+done:end]...)
		begin = end
	}
	for _, r := range left { // buckets are split for them
		x.put(r, hash(r), hash, same)
	}
}

// put adds a record, or puts it in the place of an earlier one with the same key.
func (x *index) put(r uint32, h uint64, hash hashOf, same func(record, earlier uint32) bool) {
	earlier, known := x.find(h, func(e uint32) bool { return hash(e) == h && same(r, e) })
	if known {
		x.replace(h, earlier, r)
		return
	}
	x.add(h, r, hash)
}

// fill fills an empty bucket and returns how many records it has taken.
func (b *bucket) fill(records []uint32, hashes []uint64, same func(record, earlier uint32) bool) (taken uint32) {
	var known [maxSlots]uint64 // hash of what stands in a slot
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
