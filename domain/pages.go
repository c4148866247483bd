package domain

// pages is a growing array in fixed pages, so that growing never copies what is there, with copy-on-write: freeze hands
// out the pages as they are now, and a page that is written afterwards is copied first. That is how a snapshot of ten
// million coupons is written while the lane goes on: freezing costs a pointer per page, a write to a frozen page one copy.
//
// Owner: the lane's goroutine. A frozen view may be read by another goroutine.
type pages[T any] struct {
	list  []*page[T]
	n     uint32
	epoch uint32
}

// pageSize is the number of records of a page: 512 × 32 bytes = 16 KiB, about 2 µs to copy. The first page of a small
// array starts smaller and doubles: a million campaigns of ten coupons must not pay for pages they never fill.
const (
	pageSize  = 512
	firstPage = 4
)

type page[T any] struct {
	epoch   uint32
	records []T
}

// len returns the number of records.
func (p *pages[T]) len() uint32 { return p.n }

// at returns record i for reading.
func (p *pages[T]) at(i uint32) *T { return &p.list[i/pageSize].records[i%pageSize] }

// edit returns record i for writing.
func (p *pages[T]) edit(i uint32) *T {
	return &p.own(i / pageSize).records[i%pageSize]
}

// own makes page k writable: copied first if a frozen view still shows it.
func (p *pages[T]) own(k uint32) *page[T] {
	pg := p.list[k]
	if pg.epoch != p.epoch {
		pg = &page[T]{epoch: p.epoch, records: append(make([]T, 0, cap(pg.records)), pg.records...)}
		p.list[k] = pg
	}
	return pg
}

// add appends one record and returns it for writing, with its index.
func (p *pages[T]) add() (uint32, *T) {
	i := p.n
	k := i / pageSize
	if int(k) == len(p.list) {
		size := pageSize
		if k == 0 {
			size = firstPage
		}
		p.list = append(p.list, &page[T]{epoch: p.epoch, records: make([]T, 0, size)})
	}
	pg := p.own(k)
	if len(pg.records) == cap(pg.records) {
		pg.records = append(make([]T, 0, min(2*cap(pg.records), pageSize)), pg.records...)
	}
	pg.records = pg.records[:len(pg.records)+1]
	p.n++
	return i, &pg.records[len(pg.records)-1]
}

// freeze returns the records as they are now; later writes do not show in it.
func (p *pages[T]) freeze() frozenPages[T] {
	if p.n == 0 {
		return frozenPages[T]{}
	}
	p.epoch++
	f := frozenPages[T]{n: p.n, list: make([][]T, len(p.list))}
	for i, pg := range p.list {
		f.list[i] = pg.records
	}
	return f
}

// frozenPages is what freeze saw. It is safe to read from another goroutine.
type frozenPages[T any] struct {
	list [][]T
	n    uint32
}
