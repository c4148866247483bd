package timers

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// customerList is what is in memory of a campaign's customers: 24 bytes for each block, the tail, and in the segments 16 bytes
// for each block that was written.
//
//	block: first number, segment, offset  ───>  customers of some hundred numbers, in a segment
//	block …
//	tail: what fills no block yet
//
// No customer is read before its reminder fires, and then customers are read in order of their numbers.
type customerList struct {
	kept   func(r uint64) bool // whether the customer of r is still needed
	blocks []customerBlock     // rising
	tail   []byte              // only ever appended to: a frozen view may hold its first part
	first  uint32              // number that the tail starts with
	last   uint32              // highest number that was added
	live   uint16              // customers in the tail that are still needed
}

// customerBlock holds the customers of numbers from first to before the next block's.
type customerBlock struct {
	segment *segment
	first   uint32
	offset  uint32
	size    uint16 // bytes
	live    uint16 // customers that are still needed
}

const (
	smallBlock = 512
	largeBlock = 4096
	// smallBlocks is how many blocks of a campaign are small, so that a million campaigns of fifty reminders do not keep all
	// of them in their tails.
	smallBlocks = 8
)

// blockSize is the size in bytes of the block that the tail will fill.
func (l *customerList) blockSize() int {
	if len(l.blocks) < smallBlocks {
		return smallBlock
	}
	return largeBlock
}

// Fired is one reminder that fired or was dropped.
type Fired struct {
	R        uint64
	Customer string        // with the time zone, where that is known: see Name
	Before   time.Duration // what it announces
}

// Name returns the customer and its time zone; "" = not known.
func (f *Fired) Name() (customer, zone string) {
	if i := strings.IndexByte(f.Customer, zoneMark[0]); i >= 0 {
		return f.Customer[:i], f.Customer[i+1:]
	}
	return f.Customer, ""
}

// zoneMark is between a customer and its time zone, where that is known: no customer's id has it.
const zoneMark = "\n"

// add stores the customer of reminder r, which is higher than all before.
func (s *segments) add(l *customerList, r uint32, customer string) error {
	if r <= l.last {
		return fmt.Errorf("reminder %d is set after reminder %d", r, l.last)
	}
	if name, zone, _ := strings.Cut(customer, zoneMark); len(name) > wire.MaxCustomerID || len(zone) > wire.MaxZone {
		return fmt.Errorf("reminder %d is for a customer of %d bytes in a time zone of %d, expected at most %d and %d", r, len(name), len(zone), wire.MaxCustomerID, wire.MaxZone)
	}
	return s.put(l, l, l.blockSize(), r, customer)
}

// put appends the customer of r to the tail of a list. A tail that would exceed size bytes becomes a block of list of before.
func (s *segments) put(l, of *customerList, size int, r uint32, customer string) error {
	var buf [2*binary.MaxVarintLen32 + 1]byte
	head := appendHead(buf[:0], l, r, len(customer))
	if len(l.tail)+len(head)+len(customer) > size {
		if err := s.flush(l, of); err != nil {
			return err
		}
		head = appendHead(buf[:0], l, r, len(customer))
	}
	if len(l.tail) == 0 {
		l.first = r
	}
	if need := len(l.tail) + len(head) + len(customer); need > cap(l.tail) {
		room := need + need/2 // not twice: there may be a million tails
		if size == largeBlock {
			room = max(2*need, largeBlock/4)
		}
		l.tail = append(make([]byte, 0, min(room, size)), l.tail...)
	}
	l.tail = append(append(l.tail, head...), customer...)
	l.last = r
	l.live++
	return nil
}

// appendHead appends what precedes a customer: 0 and the count of numbers left out, if there are such; the length + 1.
func appendHead(dst []byte, l *customerList, r uint32, length int) []byte {
	if skipped := r - l.last - 1; len(l.tail) > 0 && skipped > 0 {
		dst = binary.AppendUvarint(append(dst, 0), uint64(skipped))
	}
	return binary.AppendUvarint(dst, uint64(length)+1)
}

// flush writes the tail of a list, if it has one, as a block of list of.
func (s *segments) flush(l, of *customerList) error {
	if len(l.tail) == 0 {
		return nil
	}
	b := customerBlock{first: l.first, live: l.live}
	if err := s.write(&b, of, l.tail); err != nil {
		return err
	}
	l.blocks = append(l.blocks, b)
	l.tail, l.live = nil, 0
	return nil
}

// block is the index in the list of the block that holds r, len(l.blocks) for the tail.
func (l *customerList) block(r uint64) int {
	if len(l.tail) > 0 && r >= uint64(l.first) {
		return len(l.blocks)
	}
	return max(0, sort.Search(len(l.blocks), func(i int) bool { return uint64(l.blocks[i].first) > r })-1)
}

// scan reads block i of a list, or its tail. The numbers in it are lower than beyond. It is valid until the next read.
func (s *segments) scan(l *customerList, i int) (scan customerScan, beyond uint64, err error) {
	if i == len(l.blocks) {
		return customerScan{l.tail, uint64(l.first)}, math.MaxUint64, nil
	}
	beyond = math.MaxUint64
	if i+1 < len(l.blocks) {
		beyond = uint64(l.blocks[i+1].first)
	} else if len(l.tail) > 0 {
		beyond = uint64(l.first)
	}
	data, err := s.read(&l.blocks[i])
	return customerScan{data, uint64(l.blocks[i].first)}, beyond, err
}

// remove drops the customer of r, which is not needed any more.
func (s *segments) remove(l *customerList, r uint64) {
	i := l.block(r)
	if !s.leave(l, i, 1) {
		return
	}
	if i == 0 {
		l.blocks = l.blocks[1:]
	} else {
		l.blocks = slices.Delete(l.blocks, i, i+1)
	}
}

// leave counts n customers less in block i, or in the tail. It returns true if a block is empty then: the caller removes it
// from the list.
func (s *segments) leave(l *customerList, i, n int) (emptied bool) {
	if i == len(l.blocks) {
		if l.live -= uint16(n); l.live == 0 {
			l.tail = nil
		}
		return false
	}
	b := &l.blocks[i]
	b.live -= uint16(n)
	s.drop(b.segment, n)
	return b.live == 0
}

// fire removes reminders rs, rising, and returns them with their customers. The texts are the caller's to keep.
func (s *segments) fire(l *customerList, rs []uint64) ([]Fired, error) {
	fired := make([]Fired, 0, len(rs))
	var text strings.Builder // one for many: a million reminders fire at once
	emptied := false
	for len(fired) < len(rs) {
		i := l.block(rs[len(fired)])
		scan, beyond, err := s.scan(l, i)
		if err != nil {
			return nil, err
		}
		before := len(fired)
		for len(fired) < len(rs) && rs[len(fired)] < beyond {
			r := rs[len(fired)]
			customer, err := scan.find(r)
			if err != nil {
				return nil, err
			}
			if text.Len()+len(customer) > text.Cap() {
				text.Reset() // what was taken from it stays valid
				text.Grow(max(len(customer), min(64<<10, (len(rs)-len(fired))*len(customer))))
			}
			at := text.Len()
			text.Write(customer)
			fired = append(fired, Fired{R: r, Customer: text.String()[at:]})
		}
		emptied = s.leave(l, i, len(fired)-before) || emptied
	}
	if emptied {
		for len(l.blocks) > 0 && l.blocks[0].live == 0 {
			l.blocks = l.blocks[1:]
		}
		l.blocks = slices.DeleteFunc(l.blocks, func(b customerBlock) bool { return b.live == 0 })
	}
	return fired, nil
}

func (l *customerList) empty() bool { return len(l.blocks) == 0 && len(l.tail) == 0 }
