package timers

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// The file of a lane's customers: its slots, used and free.

// ErrDisk: the file can not be made, written or read.
var ErrDisk = errors.New("the disk is needed")

func (c *customers) explain(doing string, err error) error {
	where, remedy := c.dir, "make room there"
	if where == "" {
		where, remedy = os.TempDir(), "make room there, or start with another directory for temporary files (TMPDIR)"
	}
	return fmt.Errorf("%w for customers of pending reminders: %s them in a temporary file in %s: %w; %s", ErrDisk, doing, where, err, remedy)
}

// open makes the file when the first block needs it, and removes its name: from here on no other process can open it, and
// when this process ends it is gone.
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

// close releases the file. No view may be read any more.
func (c *customers) close() {
	if c.file != nil {
		c.file.Close() // its content is of no use any more
		c.file = nil
	}
}

// take finds a slot in the file: a free one, or one at its end. Small ones are cut from large ones.
func (c *customers) take(class uint8) (slot uint32) {
	if n := len(c.free[class]); n > 0 {
		slot, c.free[class] = c.free[class][n-1], c.free[class][:n-1]
		return slot
	}
	if class == small {
		slot = c.take(large)
		for i := units(large) - 1; i > 0; i-- {
			c.free[small] = append(c.free[small], slot+i)
		}
		return slot
	}
	slot, c.end = c.end, c.end+units(large)
	return slot
}

// release frees the slot of a block.
func (c *customers) release(b *customerBlock) {
	c.blocks--
	c.stored -= blockSizes[b.class]
	c.put(b.class, b.slot)
	if c.blocks == 0 && c.views == 0 {
		c.empty()
	}
}

// put makes a slot free, now or when no view is left.
func (c *customers) put(class uint8, slot uint32) {
	into := &c.free
	if c.views > 0 {
		into = &c.later
	} else if c.compacting != nil && slot >= c.compacting.beyond {
		into = &c.compacting.cutOff
	}
	into[class] = append(into[class], slot)
}

// empty truncates a file without blocks.
func (c *customers) empty() {
	c.free, c.later, c.end, c.highest, c.gone = [2][]uint32{}, [2][]uint32{}, 0, 0, 0
	c.compacting = nil
	c.file.Truncate(0) // if that fails the next blocks are written over the old ones
}

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
	n, err := f.ReadAt(into, int64(b.slot)*smallBlock)
	if n == len(into) && err == io.EOF {
		err = nil
	}
	return err
}
