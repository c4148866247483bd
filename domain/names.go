package domain

import "sort"

// maxNames is how many slots a chunk has before it is split.
const maxNames = 512

// Index takes up to most campaigns into the order that List and CustomerAfter walk in, and reports whether all are in. It
// costs 1 to 2 µs a campaign.
func (l *Lane) Index(most int) (done bool) {
	for ; l.names.taken < len(l.bySlot) && most > 0; most-- {
		l.take(uint32(l.names.taken))
		l.names.taken++
	}
	return l.names.taken == len(l.bySlot)
}

// take puts the campaign at a slot into the order.
func (l *Lane) take(slot uint32) {
	n := &l.names
	if len(n.chunks) == 0 {
		n.chunks = [][]uint32{append(make([]uint32, 0, maxNames), slot)}
		return
	}
	k, i := l.seek(l.bySlot[slot].name)
	if i == 0 && k > 0 {
		k--
		i = len(n.chunks[k])
	}
	chunk := append(n.chunks[k], 0)
	copy(chunk[i+1:], chunk[i:])
	chunk[i] = slot
	n.chunks[k] = chunk
	if len(chunk) < maxNames {
		return
	}
	// Names that are added in order fill every chunk: the last one is split near its end.
	cut := maxNames / 2
	if k == len(n.chunks)-1 && i == len(chunk)-1 {
		cut = maxNames - 1
	}
	n.chunks = append(n.chunks, nil)
	copy(n.chunks[k+2:], n.chunks[k+1:])
	n.chunks[k+1] = append(make([]uint32, 0, maxNames), chunk[cut:]...)
	n.chunks[k] = chunk[:cut:cut]
}

// seek returns the position of the first campaign whose name follows after. At the end of a chunk it is the start of the
// next one.
func (l *Lane) seek(after string) (chunk, i int) {
	chunks := l.names.chunks
	// The chunk before the first one whose first name comes after it.
	k := sort.Search(len(chunks), func(k int) bool { return l.bySlot[chunks[k][0]].name > after })
	if k == 0 {
		return 0, 0
	}
	c := chunks[k-1]
	i = sort.Search(len(c), func(i int) bool { return l.bySlot[c[i]].name > after })
	if i == len(c) {
		return k, 0
	}
	return k - 1, i
}

// walk visits the campaigns whose names follow after, by name, until visit returns false or the end, which is done.
func (l *Lane) walk(after string, visit func(*campaign) bool) (done bool) {
	for !l.Index(1 << 20) {
	}
	k, i := l.seek(after)
	for ; k < len(l.names.chunks); k, i = k+1, 0 {
		for _, slot := range l.names.chunks[k][i:] {
			if !visit(l.bySlot[slot]) {
				return false
			}
		}
	}
	return true
}
