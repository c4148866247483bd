package timers

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// segments keep the customers of pending reminders on disk. They are files that are only appended to:
//
//	[ 64 MiB: blocks of all campaigns ] [ 64 MiB ] [ filling ]
//	   all customers gone   ──> closed
//	   half of them gone    ──> blocks copied to the one that is filled, a few with each event; then closed
//
// A segment is a cache of what snapshot and log hold, so it has no name and is never synced, and a crash leaves nothing: the
// next run makes its own. Nothing that was written changes, so a snapshot is read from segments beside the owner's work;
// they are closed when it is written.
//
// When the disk is full or may not be written, the scheduler of the lane stops with an error; the lane goes on, and the
// scheduler is tried again. Continuing in memory would take the machine's memory from the lanes.
type segments struct {
	dir     string     // "" = os.TempDir
	full    int64      // bytes from which a segment is full; 0 = segmentSize
	open    []*segment // all of them
	filling *segment   // one of them, nil = the next block makes another
	sparse  []*segment // half of their customers are gone: they are copied in this order
	views   int        // snapshots that may be read
	buf     []byte     // the block read last
}

type segment struct {
	file   *os.File
	end    int64 // of what is written
	stored int   // customers written
	live   int   // those that are still needed
	sparse bool  // it is in the list of those
	blocks []writtenBlock
}

// writtenBlock is where the copying of a segment looks for a block, which may be gone.
type writtenBlock struct {
	list  *customerList
	first uint32
}

const (
	// segmentSize is the size of a full segment in bytes.
	segmentSize = 64 << 20
	// compactSteps is how many blocks are looked for with one event, at most, and mergeMax how many are copied.
	compactSteps, mergeMax = 64, 8
)

// ErrDisk: a segment cannot be made, written or read.
var ErrDisk = errors.New("the disk is needed")

func (s *segments) explain(doing string, err error) error {
	where, remedy := s.dir, "make room there"
	if where == "" {
		where, remedy = os.TempDir(), "make room there, or start with another directory for temporary files (TMPDIR)"
	}
	return fmt.Errorf("%w for customers of pending reminders: %s them in a temporary file in %s: %w; %s", ErrDisk, doing, where, err, remedy)
}

// create makes a file and removes its name: no other process can open it, and when this process ends it is gone.
func (s *segments) create() (*os.File, error) {
	f, err := os.CreateTemp(s.dir, "scrip-customers-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// write appends data to the segment that is filled, and sets where block b of list of lies.
func (s *segments) write(b *customerBlock, of *customerList, data []byte) error {
	if s.filling == nil {
		file, err := s.create()
		if err != nil {
			return s.explain("storing", err)
		}
		s.filling = &segment{file: file}
		s.open = append(s.open, s.filling)
	}
	into := s.filling
	if _, err := into.file.WriteAt(data, into.end); err != nil {
		return s.explain("storing", err)
	}
	b.segment, b.offset, b.size = into, uint32(into.end), uint16(len(data))
	into.end += int64(len(data))
	into.stored += int(b.live)
	into.live += int(b.live)
	into.blocks = append(into.blocks, writtenBlock{of, b.first})
	if into.end >= cmp.Or(s.full, segmentSize) {
		s.filling = nil
		s.drop(into, 0) // it may be sparse already
	}
	return nil
}

func (s *segments) drop(of *segment, n int) {
	of.live -= n
	switch {
	case of.live == 0:
		s.closeEmpty()
	case 2*of.live < of.stored && of != s.filling && !of.sparse:
		of.sparse = true
		s.sparse = append(s.sparse, of)
	}
}

// closeEmpty closes segments of which nothing is needed, unless a view may read them.
func (s *segments) closeEmpty() {
	if s.views > 0 {
		return
	}
	s.open = slices.DeleteFunc(s.open, func(of *segment) bool {
		if of.live > 0 {
			return false
		}
		if of.file.Close(); of == s.filling { // its content is of no use any more
			s.filling = nil
		}
		return true
	})
}

// close closes all segments. No view may be read any more.
func (s *segments) close() {
	for _, of := range s.open {
		of.file.Close()
	}
	s.open, s.filling, s.sparse = nil, nil, nil
}

// freeze makes views possible: until thaw no segment is closed.
func (s *segments) freeze() { s.views++ }

func (s *segments) thaw() {
	s.views--
	s.closeEmpty()
}

// compact copies a few blocks of a sparse segment. It is called with each event, so nothing waits for a whole segment.
func (s *segments) compact() error {
	for range compactSteps {
		if len(s.sparse) == 0 {
			return nil
		}
		of := s.sparse[0]
		if of.live == 0 || len(of.blocks) == 0 {
			s.sparse = slices.Delete(s.sparse, 0, 1)
			continue
		}
		w := of.blocks[0]
		of.blocks = of.blocks[1:]
		if i := w.list.block(uint64(w.first)); i < len(w.list.blocks) && w.list.blocks[i].segment == of {
			return s.copy(w.list, i)
		}
	}
	return nil
}

// copy copies what is needed of block i of a list, and of those after it in the same segment, into as few blocks as possible.
// A small block before them is included: it is as a rule what the last copy left.
func (s *segments) copy(l *customerList, i int) error {
	from, through := i, i+1
	for through < min(len(l.blocks), i+mergeMax) && l.blocks[through].segment == l.blocks[i].segment {
		through++
	}
	if i > 0 && l.blocks[i-1].size < largeBlock/2 {
		from--
	}
	var into customerList
	for _, b := range l.blocks[from:through] {
		data, err := s.read(&b)
		if err != nil {
			return err
		}
		scan, found := customerScan{data, uint64(b.first)}, 0
		for r, customer, ok := scan.one(); ok; r, customer, ok = scan.one() {
			if !l.kept(r) {
				continue
			}
			if err := s.put(&into, l, largeBlock, uint32(r), string(customer)); err != nil {
				return err
			}
			found++
		}
		if found != int(b.live) {
			return fmt.Errorf("%d customers in a block of %d pending reminders: %w", found, b.live, errNoCustomer)
		}
	}
	if err := s.flush(&into, l); err != nil {
		return err
	}
	for _, b := range l.blocks[from:through] {
		s.drop(b.segment, int(b.live))
	}
	l.blocks = slices.Replace(l.blocks, from, through, into.blocks...)
	return nil
}

// read returns what a block holds, until the next read.
func (s *segments) read(b *customerBlock) ([]byte, error) {
	if s.buf == nil {
		s.buf = make([]byte, largeBlock)
	}
	data := s.buf[:b.size]
	if err := b.read(data); err != nil {
		return nil, s.explain("reading", err)
	}
	return data, nil
}

func (b *customerBlock) read(into []byte) error {
	n, err := b.segment.file.ReadAt(into, int64(b.offset))
	if n == len(into) && err == io.EOF {
		err = nil
	}
	return err
}
