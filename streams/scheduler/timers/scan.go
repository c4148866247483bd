package timers

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// customerScan reads a block by rising number.
type customerScan struct {
	data []byte
	next uint64 // number of the next customer
}

var errNoCustomer = errors.New("not where it was stored; the file was changed by another program, or the disk is failing")

// find skips what comes before r and returns the customer of r.
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

// one returns the next customer; false at the end, or if the rest can not be read.
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

// frozenCustomers is a list as it was when it was frozen, read by another goroutine beside the owner. Until thaw no segment
// is closed.
type frozenCustomers struct {
	blocks []customerBlock // not read yet; the one without a segment is the tail
	tail   []byte
	scan   customerScan
	buf    *[largeBlock]byte // shared by all lists of a snapshot, which are read one after the other
}

// frozen is the list as it is now, read through buf.
func (l *customerList) frozen(buf *[largeBlock]byte) frozenCustomers {
	blocks := append(make([]customerBlock, 0, len(l.blocks)+1), l.blocks...)
	if len(l.tail) > 0 {
		blocks = append(blocks, customerBlock{first: l.first})
	}
	return frozenCustomers{blocks: blocks, tail: l.tail, buf: buf}
}

// customer returns the customer of r; it is valid until the next call. Numbers must rise from call to call.
func (f *frozenCustomers) customer(r uint64) ([]byte, error) {
	next := 0
	for next < len(f.blocks) && r >= uint64(f.blocks[next].first) {
		next++
	}
	if next > 0 {
		b := f.blocks[next-1]
		f.blocks = f.blocks[next:]
		data := f.tail
		if b.segment != nil {
			data = f.buf[:b.size]
			if err := b.read(data); err != nil {
				return nil, fmt.Errorf("reading customers of pending reminders: %w", err)
			}
		}
		f.scan = customerScan{data, uint64(b.first)}
	}
	return f.scan.find(r)
}
