package table

import "iter"

// Pages is a growing array in fixed pages, so that growth never copies the records, with copy-on-write: after Freeze, a page
// is copied before it is written. So a snapshot of ten million coupons is written while the lane continues: Freeze costs 32
// bytes a page, a write to a frozen page one copy.
//
// Owner: the lane's goroutine. The frozen copy may be read by another goroutine.
type Pages[T any] struct {
	list  []page[T]
	n     uint32
	epoch uint32
}

// PageSize is the number of records of a page: 512 × 32 bytes = 16 KiB, about 2 µs to copy. The first page starts with a
// single record and grows: a million campaigns of ten coupons must not pay for pages they never fill.
const PageSize = 512

type page[T any] struct {
	records []T
	epoch   uint32
}

// Len returns the number of records.
func (p *Pages[T]) Len() uint32 { return p.n }

// All returns the records page by page, for reading. It is safe on a frozen copy.
func (p *Pages[T]) All() iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for i := range p.list {
			if !yield(p.list[i].records) {
				return
			}
		}
	}
}

// At returns record i for reading.
func (p *Pages[T]) At(i uint32) *T { return &p.list[i/PageSize].records[i%PageSize] }

// Edit returns record i for writing.
func (p *Pages[T]) Edit(i uint32) *T {
	return &p.writable(i / PageSize).records[i%PageSize]
}

// writable makes page k writable: copied first if a frozen copy has it.
func (p *Pages[T]) writable(k uint32) *page[T] {
	pg := &p.list[k]
	if pg.epoch != p.epoch {
		pg.epoch = p.epoch
		pg.records = append(make([]T, 0, cap(pg.records)), pg.records...)
	}
	return pg
}

// Add appends one record and returns it for writing, with its index. There will never be more than most records, so a
// small array need not be larger.
func (p *Pages[T]) Add(most uint32) (uint32, *T) {
	i := p.n
	k := i / PageSize
	if int(k) == len(p.list) {
		size := PageSize
		if k == 0 {
			size = 1
		}
		p.list = append(p.list, page[T]{epoch: p.epoch, records: make([]T, 0, size)})
	}
	pg := p.writable(k)
	if len(pg.records) == cap(pg.records) {
		pg.records = append(make([]T, 0, GrownSize(cap(pg.records), most)), pg.records...)
	}
	pg.records = pg.records[:len(pg.records)+1]
	p.n++
	return i, &pg.records[len(pg.records)-1]
}

// GrownSize is the size of a first page after the given one: 1, 2, 4, 8, 12, 16, 24, 32, 48 … 512, the size classes of the allocator.
func GrownSize(size int, most uint32) int {
	next := 2 * size
	if size >= 8 {
		next = size + size/2
		if size&(size-1) != 0 {
			next = size + size/3
		}
	}
	if uint64(next) > uint64(most) {
		next = max(int(most), size+1)
	}
	return min(next, PageSize)
}

// Reserve makes room for n records in an empty array.
func (p *Pages[T]) Reserve(n uint32) {
	if len(p.list) == 0 && n > 0 {
		p.list = append(make([]page[T], 0, (n+PageSize-1)/PageSize), page[T]{epoch: p.epoch, records: make([]T, 0, min(n, PageSize))})
	}
}

// Freeze makes p copy-on-write: it continues with a list of its own, and a copy of the old p keeps the records as they are.
func (p *Pages[T]) Freeze() {
	if p.n == 0 {
		return
	}
	p.list = append(make([]page[T], 0, len(p.list)+1), p.list...)
	p.epoch++
}
