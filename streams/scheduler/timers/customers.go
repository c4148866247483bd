package timers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sort"
	"unsafe"

	"github.com/seed-4a2410e3/scrip/domain"
)

// customers is on disk what is too much for memory: whom the pending reminders are for. Nobody looks at a customer before
// the reminder fires, and then at all of them in order of their numbers.
//
//	list of a campaign (memory)            file of the lane (no name, no fsync)
//	block: first r, place, live  ───────>  [ 4 KiB: customers of some hundred numbers ]
//	block …                      ───────>  [ … ]
//	tail: what fills no block yet
//
// The file is a cache of what snapshot and log tell, so it has no name, and a crash leaves nothing: the next run makes its
// own. A block is never written twice. When none of its reminders is pending its place is free for another; while a
// snapshot is read from the file, places that became free wait. What is left of thinned-out blocks is put together by compact.
//
// When the disk is full or may not be written, the scheduler of the lane stops and says so; the lane goes on, and the
// scheduler is tried again. Going on in memory instead would take the machine's memory from the lanes.
type customers struct {
	dir  string   // of the file, "" = os.TempDir
	file *os.File // nil until the first block is full

	end   uint32      // of the file, in units of smallBlock
	free  [2][]uint32 // places of small and of large blocks, in units
	later [2][]uint32 // free once no view is left
	views int         // frozen lists that somebody may read

	blocks int     // in the file
	stored int     // bytes that they take there
	live   int     // customers in the blocks
	gone   int     // customers that left blocks since compact began last
	known  average // length
	buf    []byte  // the block read last

	highest     uint32      // end of all places written since compact began, in units
	compacting  *compacting // nil if there is nothing to compact
	compactFrom int         // bytes of nobody's that are worth it; 0 = compactFrom
}

// Blocks of a campaign's first reminders are small, so that a million campaigns of fifty do not keep all of them in their
// tails; from smallBlocks on they are large.
const (
	smallBlock  = 512
	largeBlock  = 4096
	smallBlocks = 8
)

const (
	small = iota
	large
)

var blockSizes = [2]int{small: smallBlock, large: largeBlock}

func units(class uint8) uint32 { return uint32(blockSizes[class] / smallBlock) }

// customerList is what is in memory of a campaign's customers: twelve bytes for each block and the tail.
type customerList struct {
	blocks []customerBlock // rising
	tail   []byte          // only ever appended to: a frozen view may hold its beginning
	first  uint32          // number that the tail begins with
	last   uint32          // number put in last
	live   uint16          // pending ones in the tail
}

// customerBlock holds the customers of numbers from first to before the next block's.
type customerBlock struct {
	first, place uint32
	used         uint16 // bytes; the size of the place follows from class
	live         uint16 // pending ones
	class        uint8
}

// firing is one reminder that fired or was dropped.
type Fired struct {
	R        uint64
	Customer string
}

// average length of a customer, for what is worth knowing only roughly.
type average struct{ n, sum float64 }

func (a *average) add(x int) {
	if a.n++; a.n > 1<<20 {
		a.n, a.sum = a.n/2, a.sum/2
	}
	a.sum += float64(x)
}

func (a *average) of(n int) float64 { return float64(n) * a.sum / max(a.n, 1) }

// add keeps the customer of reminder r, which is higher than all before.
func (c *customers) add(l *customerList, r uint32, customer string) error {
	if r <= l.last {
		return fmt.Errorf("reminder %d is set after reminder %d", r, l.last)
	}
	if len(customer) > domain.MaxCustomerID {
		return fmt.Errorf("reminder %d is for a customer of %d bytes, expected at most %d", r, len(customer), domain.MaxCustomerID)
	}
	var head [2*binary.MaxVarintLen32 + 1]byte
	h := appendHead(head[:0], l, r, len(customer))
	if class := l.class(); len(l.tail)+len(h)+len(customer) > blockSizes[class] {
		if err := c.flush(l, class); err != nil {
			return err
		}
		h = appendHead(head[:0], l, r, len(customer))
	}
	if len(l.tail) == 0 {
		l.first = r
	}
	if need := len(l.tail) + len(h) + len(customer); need > cap(l.tail) {
		room := need + need/2 // not twice: there may be a million tails
		if len(l.blocks) >= smallBlocks {
			room = max(2*need, largeBlock/4)
		}
		l.tail = append(make([]byte, 0, min(room, blockSizes[l.class()])), l.tail...)
	}
	l.tail = append(append(l.tail, h...), customer...)
	l.last = r
	l.live++
	c.known.add(len(h) + len(customer))
	return nil
}

// appendHead appends what stands before a customer: 0 and the count of numbers left out, if there are such; the length + 1.
func appendHead(dst []byte, l *customerList, r uint32, length int) []byte {
	if skipped := r - l.last - 1; len(l.tail) > 0 && skipped > 0 {
		dst = binary.AppendUvarint(append(dst, 0), uint64(skipped))
	}
	return binary.AppendUvarint(dst, uint64(length)+1)
}

// class of the block that the tail will fill. A tail that has outgrown a small one fills a large one, even if the blocks
// before it have become few.
func (l *customerList) class() uint8 {
	if len(l.blocks) < smallBlocks && len(l.tail) <= smallBlock {
		return small
	}
	return large
}

// flush puts the tail into a block of the file.
func (c *customers) flush(l *customerList, class uint8) error {
	b, err := c.write(l.tail, l.first, l.live, class)
	if err != nil {
		return err
	}
	l.blocks = append(l.blocks, b)
	l.tail, l.live = nil, 0
	return nil
}

// write makes a block of data.
func (c *customers) write(data []byte, first uint32, live uint16, class uint8) (customerBlock, error) {
	err := c.open()
	if err == nil && c.end > math.MaxUint32-largeBlock/smallBlock {
		err = errors.New("the file has 2 TiB")
	}
	if err != nil {
		return customerBlock{}, c.explain("keeping", err)
	}
	place := c.take(class)
	if _, err := c.file.WriteAt(data, int64(place)*smallBlock); err != nil {
		c.free[class] = append(c.free[class], place)
		return customerBlock{}, c.explain("keeping", err)
	}
	c.blocks++
	c.stored += blockSizes[class]
	c.live += int(live)
	c.highest = max(c.highest, place+units(class))
	return customerBlock{first: first, place: place, used: uint16(len(data)), live: live, class: class}, nil
}

// ErrDisk: the file can not be made, written or read.
var ErrDisk = errors.New("the disk is needed")

func (c *customers) explain(doing string, err error) error {
	where, remedy := c.dir, "make room there"
	if where == "" {
		where, remedy = os.TempDir(), "make room there, or start with another directory for temporary files (TMPDIR)"
	}
	return fmt.Errorf("%w for customers of pending reminders: %s them in a temporary file in %s: %w; %s", ErrDisk, doing, where, err, remedy)
}

// open makes the file when the first block needs it, and takes its name away: from here on nobody else can reach it, and
// whenever this process ends it is gone.
func (c *customers) open() error {
	if c.file != nil {
		return nil
	}
	f, err := os.CreateTemp(c.dir, "scrip-customers-*")
	if err != nil {
		return err
	}
	if err := os.Remove(f.Name()); err != nil {
		return errors.Join(err, f.Close())
	}
	c.file = f
	return nil
}

// close lets go of the file. No view may be read any more.
func (c *customers) close() {
	if c.file != nil {
		c.file.Close() // what it holds is of no use to anybody
		c.file = nil
	}
}

// take finds a place in the file: a free one, or one at its end. Small ones are cut from large ones.
func (c *customers) take(class uint8) (place uint32) {
	if n := len(c.free[class]); n > 0 {
		place, c.free[class] = c.free[class][n-1], c.free[class][:n-1]
		return place
	}
	if class == small {
		place = c.take(large)
		for i := units(large) - 1; i > 0; i-- {
			c.free[small] = append(c.free[small], place+i)
		}
		return place
	}
	place, c.end = c.end, c.end+units(large)
	return place
}

// release gives a block's place back.
func (c *customers) release(b *customerBlock) {
	c.blocks--
	c.stored -= blockSizes[b.class]
	c.put(b.class, b.place)
	if c.blocks == 0 && c.views == 0 {
		c.empty()
	}
}

// put makes a place free, now or when nobody reads it any more.
func (c *customers) put(class uint8, place uint32) {
	into := &c.free
	if c.views > 0 {
		into = &c.later
	} else if c.compacting != nil && place >= c.compacting.beyond {
		into = &c.compacting.restorable
	}
	into[class] = append(into[class], place)
}

// empty gives the disk back what is not used at all.
func (c *customers) empty() {
	c.free, c.later, c.end, c.highest, c.gone = [2][]uint32{}, [2][]uint32{}, 0, 0, 0
	c.compacting = nil
	c.file.Truncate(0) // if that fails the next blocks are written over the old ones
}

// block is the place in the list of the block that holds r, len(l.blocks) for the tail.
func (l *customerList) block(r uint64) int {
	if len(l.tail) > 0 && r >= uint64(l.first) {
		return len(l.blocks)
	}
	return max(0, sort.Search(len(l.blocks), func(i int) bool { return uint64(l.blocks[i].first) > r })-1)
}

// remove says that r is not pending any more.
func (c *customers) remove(l *customerList, r uint64) {
	i := l.block(r)
	c.leave(l, i, 1)
	if i < len(l.blocks) && l.blocks[i].live == 0 {
		if i == 0 {
			l.blocks = l.blocks[1:]
		} else {
			l.blocks = slices.Delete(l.blocks, i, i+1)
		}
	}
}

// leave says that n of block i are not pending any more. One that is empty then stays in the list for the caller to take
// out; its place is free.
func (c *customers) leave(l *customerList, i, n int) {
	if i == len(l.blocks) {
		if l.live -= uint16(n); l.live == 0 {
			l.tail = nil
		}
		return
	}
	b := &l.blocks[i]
	b.live -= uint16(n)
	c.live -= n
	c.gone += n
	if b.live == 0 {
		c.release(b)
	}
}

// fire takes out reminders rs, rising, and returns whom they were for. The texts are the caller's to keep.
func (c *customers) fire(l *customerList, rs []uint64) ([]Fired, error) {
	fired := make([]Fired, 0, len(rs))
	var arena []byte
	emptied := false
	for len(fired) < len(rs) {
		i := l.block(rs[len(fired)])
		beyond := uint64(math.MaxUint64) // number that the next block begins with
		scan := customerScan{data: l.tail, next: uint64(l.first)}
		if i < len(l.blocks) {
			if i+1 < len(l.blocks) {
				beyond = uint64(l.blocks[i+1].first)
			} else if len(l.tail) > 0 {
				beyond = uint64(l.first)
			}
			data, err := c.read(&l.blocks[i])
			if err != nil {
				return nil, err
			}
			scan = customerScan{data: data, next: uint64(l.blocks[i].first)}
		}
		begin := len(fired)
		for len(fired) < len(rs) && rs[len(fired)] < beyond {
			r := rs[len(fired)]
			customer, err := scan.find(r)
			if err != nil {
				return nil, err
			}
			if len(arena)+len(customer) > cap(arena) {
				left := len(rs) - len(fired)
				arena = make([]byte, 0, max(len(customer), min(64<<10, left*len(customer)))) // what is in the old one stays there
			}
			at := len(arena)
			arena = append(arena, customer...)
			// Nobody writes there again.
			fired = append(fired, Fired{r, unsafe.String(unsafe.SliceData(arena[at:]), len(customer))})
		}
		c.leave(l, i, len(fired)-begin)
		emptied = emptied || i < len(l.blocks) && l.blocks[i].live == 0
	}
	if emptied {
		l.pack()
	}
	return fired, nil
}

// pack takes empty blocks out of the list.
func (l *customerList) pack() {
	for len(l.blocks) > 0 && l.blocks[0].live == 0 {
		l.blocks = l.blocks[1:]
	}
	l.blocks = slices.DeleteFunc(l.blocks, func(b customerBlock) bool { return b.live == 0 })
}

func (l *customerList) empty() bool { return len(l.blocks) == 0 && len(l.tail) == 0 }

// read returns what a block holds, until the next read.
func (c *customers) read(b *customerBlock) ([]byte, error) {
	if c.buf == nil {
		c.buf = make([]byte, largeBlock)
	}
	data := c.buf[:b.used]
	if err := readBlock(c.file, b, data); err != nil {
		return nil, c.explain("reading", err)
	}
	return data, nil
}

func readBlock(f *os.File, b *customerBlock, into []byte) error {
	n, err := f.ReadAt(into, int64(b.place)*smallBlock)
	if n == len(into) && err == io.EOF {
		err = nil
	}
	return err
}

// customerScan goes over a block by rising number.
type customerScan struct {
	data []byte
	next uint64 // number of what comes next
}

var errNoCustomer = errors.New("not where it was put; the file was changed by somebody else, or the disk is failing")

// find passes over what comes before r and returns r's customer.
func (s *customerScan) find(r uint64) ([]byte, error) {
	for {
		number, customer, ok := s.one()
		if !ok || number > r {
			return nil, fmt.Errorf("customer of reminder %d: %w", r, errNoCustomer)
		}
		if number == r {
			return customer, nil
		}
	}
}

// one returns what comes next, false if nothing does or it can not be read.
func (s *customerScan) one() (r uint64, customer []byte, ok bool) {
	for len(s.data) > 0 {
		v, n := binary.Uvarint(s.data)
		if n <= 0 {
			break
		}
		s.data = s.data[n:]
		if v > 0 {
			if v--; v > uint64(len(s.data)) {
				break
			}
			r, customer = s.next, s.data[:v]
			s.data, s.next = s.data[v:], s.next+1
			return r, customer, true
		}
		skipped, n := binary.Uvarint(s.data)
		if n <= 0 {
			break
		}
		s.data, s.next = s.data[n:], s.next+skipped
	}
	return 0, nil, false
}

// frozenCustomers is a list as it was when it was frozen, read by another goroutine beside the owner.
type frozenCustomers struct {
	file   *os.File
	blocks []customerBlock
	tail   []byte
	first  uint32
	scan   customerScan
	buf    *[largeBlock]byte // shared by all lists of a view, which are read one after the other
}

// freeze makes views possible: until thaw no place that is in use now is written.
func (c *customers) freeze() { c.views++ }

// view is a list as it is now, to be read through buf.
func (c *customers) view(l *customerList, buf *[largeBlock]byte) *frozenCustomers {
	return &frozenCustomers{file: c.file, blocks: slices.Clone(l.blocks), tail: l.tail, first: l.first, buf: buf}
}

// thaw says that the views of one freeze are not read any more.
func (c *customers) thaw() {
	if c.views--; c.views > 0 {
		return
	}
	later := c.later
	c.later = [2][]uint32{}
	for class, places := range later {
		for _, place := range places {
			c.put(uint8(class), place)
		}
	}
	if c.blocks == 0 && c.file != nil {
		c.empty()
	}
}

// customer returns whom r is for, until it is asked again. Numbers must rise from one time to the next.
func (f *frozenCustomers) customer(r uint64) ([]byte, error) {
	for f.scan.data == nil || len(f.blocks) > 0 && r >= uint64(f.blocks[0].first) || len(f.blocks) == 0 && len(f.tail) > 0 && r >= uint64(f.first) {
		switch {
		case len(f.blocks) > 0:
			b := f.blocks[0]
			f.blocks = f.blocks[1:]
			if len(f.blocks) > 0 && r >= uint64(f.blocks[0].first) || len(f.blocks) == 0 && len(f.tail) > 0 && r >= uint64(f.first) {
				continue // nothing of it is wanted
			}
			f.scan = customerScan{data: f.buf[:b.used], next: uint64(b.first)}
			if err := readBlock(f.file, &b, f.scan.data); err != nil {
				return nil, fmt.Errorf("reading customers of pending reminders: %w", err)
			}
		case len(f.tail) > 0:
			f.scan = customerScan{data: f.tail, next: uint64(f.first)}
			f.tail = nil
		default:
			return nil, fmt.Errorf("customer of reminder %d: %w", r, errNoCustomer)
		}
	}
	return f.scan.find(r)
}
