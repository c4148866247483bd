package timers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sort"
	"unsafe"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// customers holds on disk what is too much for memory: the customers of pending reminders. None is read before its reminder
// fires, and then they are read in order of their numbers.
//
//	list of a campaign (memory)            file of the lane (no name, no fsync)
//	block: first r, slot, live  ───────>  [ 4 KiB: customers of some hundred numbers ]
//	block …                      ───────>  [ … ]
//	tail: what fills no block yet
//
// The file is a cache of what snapshot and log hold, so it has no name, and a crash leaves nothing: the next run makes its
// own. A block is never written twice. When none of its reminders is pending its slot is free for another; while a
// snapshot is read from the file, slots that became free wait. Sparse blocks are merged by compact.
//
// When the disk is full or may not be written, the scheduler of the lane stops with an error; the lane goes on, and the
// scheduler is tried again. Going on in memory instead would take the machine's memory from the lanes.
type customers struct {
	dir  string   // of the file, "" = os.TempDir
	file *os.File // nil until the first block is full

	end   uint32      // of the file, in units of smallBlock
	free  [2][]uint32 // slots of small and of large blocks, in units
	later [2][]uint32 // free once no view is left
	views int         // frozen lists that may be read

	blocks int     // in the file
	stored int     // bytes that they take there
	live   int     // customers in the blocks
	gone   int     // customers that left blocks since compact began last
	known  average // length
	buf    []byte  // the block read last

	highest     uint32      // end of all slots written since compact began, in units
	compacting  *compacting // nil if there is nothing to compact
	compactFrom int         // unused bytes that are worth a pass; 0 = compactFrom
}

// Blocks of a campaign's first reminders are small, so that a million campaigns of fifty do not keep all of them in their
// tails; after the first smallBlocks they are large.
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
	last   uint32          // highest number that was added
	live   uint16          // pending ones in the tail
}

// customerBlock holds the customers of numbers from first to before the next block's.
type customerBlock struct {
	first, slot uint32
	used        uint16 // bytes; the size of the slot follows from class
	live        uint16 // pending ones
	class       uint8
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

// add stores the customer of reminder r, which is higher than all before.
func (c *customers) add(l *customerList, r uint32, customer string) error {
	if r <= l.last {
		return fmt.Errorf("reminder %d is set after reminder %d", r, l.last)
	}
	if len(customer) > wire.MaxCustomerID {
		return fmt.Errorf("reminder %d is for a customer of %d bytes, expected at most %d", r, len(customer), wire.MaxCustomerID)
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

// appendHead appends what precedes a customer: 0 and the count of numbers left out, if there are such; the length + 1.
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
		return customerBlock{}, c.explain("storing", err)
	}
	slot := c.take(class)
	if _, err := c.file.WriteAt(data, int64(slot)*smallBlock); err != nil {
		c.free[class] = append(c.free[class], slot)
		return customerBlock{}, c.explain("storing", err)
	}
	c.blocks++
	c.stored += blockSizes[class]
	c.live += int(live)
	c.highest = max(c.highest, slot+units(class))
	return customerBlock{first: first, slot: slot, used: uint16(len(data)), live: live, class: class}, nil
}

// block is the index in the list of the block that holds r, len(l.blocks) for the tail.
func (l *customerList) block(r uint64) int {
	if len(l.tail) > 0 && r >= uint64(l.first) {
		return len(l.blocks)
	}
	return max(0, sort.Search(len(l.blocks), func(i int) bool { return uint64(l.blocks[i].first) > r })-1)
}

// remove drops r, which is not pending any more.
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

// leave counts n of block i less. A block that is empty then stays in the list for the caller to remove; its slot is free.
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

// fire removes reminders rs, rising, and returns them with their customers. The texts are the caller's to keep.
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
				arena = make([]byte, 0, max(len(customer), min(64<<10, left*len(customer)))) // fired texts in the old one stay valid
			}
			at := len(arena)
			arena = append(arena, customer...)
			// That part of the arena is not written again.
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

// pack removes empty blocks from the list.
func (l *customerList) pack() {
	for len(l.blocks) > 0 && l.blocks[0].live == 0 {
		l.blocks = l.blocks[1:]
	}
	l.blocks = slices.DeleteFunc(l.blocks, func(b customerBlock) bool { return b.live == 0 })
}

func (l *customerList) empty() bool { return len(l.blocks) == 0 && len(l.tail) == 0 }
