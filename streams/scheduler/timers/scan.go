package timers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
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

// frozenCustomers is a list as it was when it was frozen, read by another goroutine beside the owner.
type frozenCustomers struct {
	file   *os.File
	blocks []customerBlock
	tail   []byte
	first  uint32
	scan   customerScan
	buf    *[largeBlock]byte // shared by all lists of a view, which are read one after the other
}

// freeze makes views possible: until thaw no slot that is in use now is written.
func (c *customers) freeze() { c.views++ }

// view is a list as it is now, read through buf.
func (c *customers) view(l *customerList, buf *[largeBlock]byte) *frozenCustomers {
	return &frozenCustomers{file: c.file, blocks: slices.Clone(l.blocks), tail: l.tail, first: l.first, buf: buf}
}

// thaw ends the views of one freeze.
func (c *customers) thaw() {
	if c.views--; c.views > 0 {
		return
	}
	later := c.later
	c.later = [2][]uint32{}
	for class, slots := range later {
		for _, slot := range slots {
			c.put(uint8(class), slot)
		}
	}
	if c.blocks == 0 && c.file != nil {
		c.empty()
	}
}

// customer returns the customer of r; it is valid until the next call. Numbers must rise from call to call.
func (f *frozenCustomers) customer(r uint64) ([]byte, error) {
	for f.scan.data == nil || len(f.blocks) > 0 && r >= uint64(f.blocks[0].first) || len(f.blocks) == 0 && len(f.tail) > 0 && r >= uint64(f.first) {
		switch {
		case len(f.blocks) > 0:
			b := f.blocks[0]
			f.blocks = f.blocks[1:]
			if len(f.blocks) > 0 && r >= uint64(f.blocks[0].first) || len(f.blocks) == 0 && len(f.tail) > 0 && r >= uint64(f.first) {
				continue // none of it is needed
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
