package power

import (
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// pageSize is what a disk writes as a whole. PostgreSQL (8 KiB pages) and NATS (records of any length) must live with less.
const pageSize = 4096

// attributes are what chmod and chown change, and the file's type.
type attributes struct {
	mode     uint32
	uid, gid uint32
}

// inode is a file or a directory: what processes see, and what of it is not durable yet.
type inode struct {
	number   uint64
	attr     attributes
	modified time.Time
	links    int

	// File.
	content []byte
	held    *held // nil = the contents are durable

	// Directory.
	entries map[string]*inode
	kept    map[string]*inode // the durable entries

	parent *inode // the directory in which it got its last name
	name   string // that name

	keptAttr attributes
	born     *change // the change that gave it its first name, while that is not durable
}

// held is the durable contents of a file, where they differ from what processes see.
type held struct {
	size  int
	pages map[int][]byte
}

// change is one change of names, atomic as in the journal of a file system. A rename between directories changes two.
type change struct {
	sets []set
}

type set struct {
	dir  *inode
	name string
	to   *inode // nil = the name is gone
}

// tree is a file system in memory.
type tree struct {
	root    *inode
	nodes   map[uint64]*inode
	last    uint64
	journal []*change // not durable yet, oldest first
	// loose are names of directories. The fsync of a new file below one of them also makes its name durable, and the names
	// of new directories above it.
	loose map[string]bool
}

func newTree() *tree {
	t := &tree{nodes: map[uint64]*inode{}}
	t.root = t.node(attributes{mode: syscall.S_IFDIR | 0o755})
	return t
}

func (n *inode) isDir() bool { return n.attr.mode&syscall.S_IFMT == syscall.S_IFDIR }

func (t *tree) node(attr attributes) *inode {
	t.last++
	n := &inode{number: t.last, attr: attr, keptAttr: attr, modified: time.Now(), links: 1} // of a directory: not counted
	if n.isDir() {
		n.entries, n.kept = map[string]*inode{}, map[string]*inode{}
	}
	t.nodes[n.number] = n
	return n
}

// apply makes a change visible and holds it.
func (t *tree) apply(sets ...set) *change {
	c := &change{sets: sets}
	t.journal = append(t.journal, c)
	for _, s := range sets {
		s.dir.modified = time.Now()
		if s.to == nil {
			delete(s.dir.entries, s.name)
			continue
		}
		s.dir.entries[s.name], s.to.parent, s.to.name = s.to, s.dir, s.name
	}
	return c
}

// make adds a new inode. That a name is free, or there, and of which type, the kernel knows before it requests a change.
func (t *tree) make(dir *inode, name string, attr attributes) *inode {
	n := t.node(attr)
	n.born = t.apply(set{dir, name, n})
	return n
}

func (t *tree) remove(dir *inode, name string) fuse.Status {
	status := dir.entries[name].unlink()
	if status == fuse.OK {
		t.apply(set{dir, name, nil})
	}
	return status
}

// unlink is for an inode that loses a name.
func (n *inode) unlink() fuse.Status {
	if len(n.entries) > 0 {
		return fuse.Status(syscall.ENOTEMPTY)
	}
	n.links--
	return fuse.OK
}

func (t *tree) rename(dir *inode, name string, newDir *inode, newName string) fuse.Status {
	if there := newDir.entries[newName]; there != nil {
		if status := there.unlink(); status != fuse.OK {
			return status
		}
	}
	t.apply(set{dir, name, nil}, set{newDir, newName, dir.entries[name]})
	return fuse.OK
}

// page is a part of the contents, shorter or empty at their end.
func (n *inode) page(i int) []byte {
	size := len(n.content)
	return n.content[min(i*pageSize, size):min((i+1)*pageSize, size)]
}

// hold keeps the durable contents of what is about to change.
func (n *inode) hold(from, to int) {
	n.modified = time.Now()
	if n.held == nil {
		n.held = &held{size: len(n.content), pages: map[int][]byte{}}
	}
	for i := from / pageSize; i*pageSize < to; i++ {
		if _, have := n.held.pages[i]; !have {
			n.held.pages[i] = slices.Clone(n.page(i))
		}
	}
}

// write changes the contents from off on.
func (n *inode) write(off int, data []byte) {
	end := off + len(data)
	n.hold(off, end)
	n.grow(end)
	copy(n.content[off:end], data)
}

// grow appends zeroes until there are size bytes.
func (n *inode) grow(size int) {
	if more := size - len(n.content); more > 0 {
		n.content = append(n.content, make([]byte, more)...)
	}
}

func (n *inode) truncate(size int) {
	if size == len(n.content) {
		return
	}
	n.hold(size, len(n.content))
	n.grow(size)
	n.content = n.content[:size]
}

// sync is fsync and fdatasync: of a file its contents, of a directory its names, of both their attributes.
func (t *tree) sync(n *inode) {
	n.held, n.keptAttr = nil, n.attr
	if n.isDir() {
		t.commit(len(t.journal), n)
	}
	if !t.isLoose(n) {
		return
	}
	for ; n != nil; n = n.parent {
		if i := slices.Index(t.journal, n.born); i >= 0 {
			t.commit(i+1, n.born.sets[0].dir)
		}
	}
}

func (t *tree) isLoose(n *inode) bool {
	for n = n.parent; n != nil; n = n.parent {
		if t.loose[n.name] {
			return true
		}
	}
	return false
}

// commit makes durable what the first end changes of the journal did to a directory, and with it, as a rename is one
// change, what happened before in the directories it came from.
func (t *tree) commit(end int, dir *inode) {
	dirs := map[*inode]bool{dir: true}
	chosen := map[*change]bool{}
	for _, c := range slices.Backward(t.journal[:end]) {
		if slices.ContainsFunc(c.sets, func(s set) bool { return dirs[s.dir] }) {
			chosen[c] = true
			for _, s := range c.sets {
				dirs[s.dir] = true
			}
		}
	}
	t.settle(func(c *change) bool { return chosen[c] })
}

// settle makes the chosen changes durable. Their order in each directory is kept by the caller's choice.
func (t *tree) settle(chosen func(*change) bool) {
	t.journal = slices.DeleteFunc(t.journal, func(c *change) bool {
		if !chosen(c) {
			return false
		}
		for _, s := range c.sets {
			if s.to == nil {
				delete(s.dir.kept, s.name)
				continue
			}
			s.dir.kept[s.name] = s.to
			if s.to.born == c {
				s.to.born = nil
			}
		}
		return true
	})
}

// path is for people: the last name that it got.
func (t *tree) path(n *inode) string {
	path := ""
	for ; n.parent != nil; n = n.parent {
		path = "/" + n.name + path
	}
	return path
}
