package reminder

import (
	"slices"
	"sort"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// groupOrder is the groups of a series by key, then lead: a list of short lists. A new group is nearly always the last;
// one that lands inside moves a kilobyte, whatever there is.
type groupOrder struct{ chunks []groupChunk }

type groupChunk struct {
	key  wire.Instant // not above that of the first group in it, above all of the chunk before
	lead uint32
	ids  []uint32
}

// maxChunk is the most groups of a chunk.
const maxChunk = 256

// less compares (key, lead) with a group's.
func less(key wire.Instant, lead uint32, otherKey wire.Instant, otherLead uint32) bool {
	return key < otherKey || key == otherKey && lead < otherLead
}

// slot returns the chunk and the index in it of the first group not before (key, lead); the index may be the chunk's end.
func (o *groupOrder) slot(p *pending, key wire.Instant, lead uint32) (c, i int) {
	c = max(0, sort.Search(len(o.chunks), func(c int) bool { return less(key, lead, o.chunks[c].key, o.chunks[c].lead) })-1)
	if c == len(o.chunks) {
		return c, 0
	}
	ids := o.chunks[c].ids
	return c, sort.Search(len(ids), func(i int) bool {
		g := p.group(ids[i])
		return !less(g.key(), g.lead, key, lead)
	})
}

// insert puts a group in that is not there yet.
func (o *groupOrder) insert(p *pending, id uint32) {
	g := p.group(id)
	key, lead := g.key(), g.lead
	c, i := o.slot(p, key, lead)
	if c == len(o.chunks) {
		o.chunks = append(o.chunks, groupChunk{key, lead, []uint32{id}})
		return
	}
	if chunk := &o.chunks[c]; len(chunk.ids) == maxChunk {
		if c == len(o.chunks)-1 && i == maxChunk {
			o.chunks = append(o.chunks, groupChunk{key, lead, []uint32{id}})
			return
		}
		const half = maxChunk / 2
		middle := p.group(chunk.ids[half])
		right := groupChunk{middle.key(), middle.lead, slices.Clone(chunk.ids[half:])}
		chunk.ids = slices.Clone(chunk.ids[:half])
		o.chunks = slices.Insert(o.chunks, c+1, right)
		if i > half {
			c, i = c+1, i-half
		}
	}
	chunk := &o.chunks[c]
	chunk.ids = slices.Insert(chunk.ids, i, id)
	if less(key, lead, chunk.key, chunk.lead) {
		chunk.key, chunk.lead = key, lead
	}
}

// remove takes out the group with that key and lead, which is there.
func (o *groupOrder) remove(p *pending, key wire.Instant, lead uint32) {
	c, i := o.slot(p, key, lead)
	chunk := &o.chunks[c]
	chunk.ids = slices.Delete(chunk.ids, i, i+1)
	switch n := len(chunk.ids); {
	case n == 0 && c == 0:
		o.chunks[0] = groupChunk{}
		o.chunks = o.chunks[1:]
	case n == 0:
		o.chunks = slices.Delete(o.chunks, c, c+1)
	case n*4 <= cap(chunk.ids):
		chunk.ids = append(make([]uint32, 0, 2*n), chunk.ids...)
	}
}

// orderCursor goes over a series from one group to the next. It is good until groups come or go.
type orderCursor struct {
	chunks []groupChunk
	i      int
}

// seek returns a cursor at the first group not before (key, lead).
func (o *groupOrder) seek(p *pending, key wire.Instant, lead uint32) orderCursor {
	c, i := o.slot(p, key, lead)
	at := orderCursor{o.chunks[c:], i}
	if len(at.chunks) > 0 && i == len(at.chunks[0].ids) {
		at.chunks, at.i = at.chunks[1:], 0
	}
	return at
}

// first returns a cursor at the first group.
func (o *groupOrder) first() orderCursor { return orderCursor{o.chunks, 0} }

// group is the number of the group at the cursor, 0 at the end.
func (c *orderCursor) group() uint32 {
	if len(c.chunks) == 0 {
		return 0
	}
	return c.chunks[0].ids[c.i]
}

func (c *orderCursor) next() {
	if c.i++; c.i == len(c.chunks[0].ids) {
		c.chunks, c.i = c.chunks[1:], 0
	}
}
