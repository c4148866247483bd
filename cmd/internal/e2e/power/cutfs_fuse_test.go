package power

import (
	"io"
	"log"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// cacheFor is how long the kernel may keep names and attributes: for ever, since everything passes through it.
const cacheFor = 3600

// server answers the kernel for one mount of a tree.
type server struct {
	fuse.RawFileSystem

	mu     sync.Mutex
	tree   *tree
	lists  map[uint64][]fuse.DirEntry // open directories
	last   uint64
	left   int           // changes until it freezes by itself, 0 = never
	over   func()        // called when it does
	frozen chan struct{} // closed when nothing is answered any more
	lifted chan struct{} // closed when the mount is gone: what waits may end
}

func newServer(t *tree) *server {
	return &server{RawFileSystem: fuse.NewDefaultRawFileSystem(), tree: t, lists: map[uint64][]fuse.DirEntry{},
		frozen: make(chan struct{}), lifted: make(chan struct{})}
}

func (s *server) String() string { return "cutfs" }

// freeze ends all replies. Pending requests of processes wait until these are killed and the mount is removed, so that
// none of them can observe the cut.
func (s *server) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freezeLocked()
}

func (s *server) freezeLocked() {
	select {
	case <-s.frozen:
	default:
		close(s.frozen)
	}
}

// begin takes the lock for a request about an inode. It is false, without the lock, once the server is frozen.
func (s *server) begin(number uint64) (*inode, bool) {
	s.mu.Lock()
	select {
	case <-s.frozen:
		s.mu.Unlock()
		<-s.lifted
		return nil, false
	default:
		return s.tree.nodes[number], true
	}
}

// beginChange is begin for a request that changes something; the one at which the count is over is not carried out.
func (s *server) beginChange(number uint64) (*inode, bool) {
	s.mu.Lock()
	if s.left > 0 {
		if s.left--; s.left == 0 {
			s.freezeLocked()
			s.over()
		}
	}
	s.mu.Unlock()
	return s.begin(number)
}

func status(e syscall.Errno) fuse.Status { return fuse.Status(e) }

func (n *inode) fill(a *fuse.Attr) {
	size := uint64(n.size)
	*a = fuse.Attr{Ino: n.number, Size: size, Blocks: (size + 511) / 512, Mode: n.attr.mode, Nlink: uint32(n.links), Rdev: n.rdev, Blksize: pageSize,
		Owner: fuse.Owner{Uid: n.attr.uid, Gid: n.attr.gid}}
	a.SetTimes(&n.modified, &n.modified, &n.modified)
}

func (n *inode) entry(out *fuse.EntryOut) {
	out.NodeId, out.Generation, out.EntryValid, out.AttrValid = n.number, 1, cacheFor, cacheFor
	n.fill(&out.Attr)
}

func (s *server) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	dir, ok := s.begin(h.NodeId)
	if !ok {
		return fuse.EIO
	}
	defer s.mu.Unlock()
	n := dir.entries[name]
	if n == nil {
		return fuse.ENOENT
	}
	n.entry(out)
	return fuse.OK
}

func (s *server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n, ok := s.begin(in.NodeId)
	if !ok {
		return fuse.EIO
	}
	defer s.mu.Unlock()
	out.AttrValid = cacheFor
	n.fill(&out.Attr)
	return fuse.OK
}

func (s *server) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	n, ok := s.beginChange(in.NodeId)
	if !ok {
		return fuse.EIO
	}
	defer s.mu.Unlock()
	if mode, ok := in.GetMode(); ok {
		n.attr.mode = n.attr.mode&syscall.S_IFMT | mode&0o7777
	}
	if uid, ok := in.GetUID(); ok {
		n.attr.uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		n.attr.gid = gid
	}
	if size, ok := in.GetSize(); ok {
		n.truncate(int64(size))
	}
	if at, ok := in.GetMTime(); ok {
		n.modified = at
	}
	out.AttrValid = cacheFor
	n.fill(&out.Attr)
	return fuse.OK
}

// create adds an inode for a request of its caller.
func (s *server) create(h *fuse.InHeader, name string, mode uint32, out *fuse.EntryOut, more func(*inode)) fuse.Status {
	dir, ok := s.beginChange(h.NodeId)
	if !ok {
		return fuse.EIO
	}
	defer s.mu.Unlock()
	n, errno := s.tree.make(dir, name, attributes{mode: mode, uid: h.Uid, gid: h.Gid})
	if errno != 0 {
		return status(errno)
	}
	more(n)
	n.entry(out)
	return fuse.OK
}

func (s *server) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.create(&in.InHeader, name, in.Mode, out, func(n *inode) { n.rdev = in.Rdev })
}

func (s *server) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.create(&in.InHeader, name, syscall.S_IFDIR|in.Mode&0o7777, out, func(*inode) {})
}

func (s *server) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	return s.create(&in.InHeader, name, syscall.S_IFREG|in.Mode&0o7777, &out.EntryOut, func(*inode) {})
}

func (s *server) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return s.remove(h, name, false)
}

func (s *server) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return s.remove(h, name, true)
}

func (s *server) remove(h *fuse.InHeader, name string, dir bool) fuse.Status {
	parent, ok := s.beginChange(h.NodeId)
	if !ok {
		return fuse.EIO
	}
	defer s.mu.Unlock()
	return status(s.tree.remove(parent, name, dir))
}

func (s *server) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	dir, ok := s.beginChange(in.NodeId)
	if !ok {
		return fuse.EIO
	}
	defer s.mu.Unlock()
	return status(s.tree.rename(dir, from, s.tree.nodes[in.Newdir], to, in.Flags))
}

func (s *server) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	dir, ok := s.beginChange(in.NodeId)
	if !ok {
		return fuse.EIO
	}
	defer s.mu.Unlock()
	n := s.tree.nodes[in.Oldnodeid]
	if errno := s.tree.link(n, dir, name); errno != 0 {
		return status(errno)
	}
	n.entry(out)
	return fuse.OK
}

func (s *server) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	if in.Flags&syscall.O_TRUNC == 0 {
		return fuse.OK
	}
	n, ok := s.beginChange(in.NodeId)
	if !ok {
		return fuse.EIO
	}
	defer s.mu.Unlock()
	n.truncate(0)
	return fuse.OK
}

func (s *server) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, ok := s.begin(in.NodeId)
	if !ok {
		return nil, fuse.EIO
	}
	defer s.mu.Unlock()
	return fuse.ReadResultData(buf[:n.read(int64(in.Offset), buf)]), fuse.OK
}

func (s *server) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n, ok := s.beginChange(in.NodeId)
	if !ok {
		return 0, fuse.EIO
	}
	defer s.mu.Unlock()
	n.write(int64(in.Offset), data)
	if in.Flags&syscall.O_DSYNC != 0 { // O_SYNC has this bit, too
		s.tree.sync(n)
	}
	return uint32(len(data)), fuse.OK
}

func (s *server) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status   { return fuse.ENOSYS } // close writes nothing back
func (s *server) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.ENOSYS } // the kernel does, by default_permissions
func (s *server) Release(<-chan struct{}, *fuse.ReleaseIn)           {}
func (s *server) Forget(uint64, uint64)                              {}

func (s *server) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	n, ok := s.beginChange(in.NodeId)
	if !ok {
		return fuse.EIO
	}
	defer s.mu.Unlock()
	s.tree.sync(n)
	return fuse.OK
}

func (s *server) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return s.Fsync(cancel, in)
}

const (
	fallocKeepSize  = 1
	fallocPunchHole = 2
	fallocZero      = 16
)

func (s *server) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	n, ok := s.beginChange(in.NodeId)
	if !ok {
		return fuse.EIO
	}
	defer s.mu.Unlock()
	end := int64(in.Offset + in.Length)
	switch {
	case in.Mode&^(fallocKeepSize|fallocPunchHole|fallocZero) != 0:
		return fuse.Status(syscall.EOPNOTSUPP)
	case in.Mode&(fallocPunchHole|fallocZero) != 0:
		n.zero(int64(in.Offset), min(end, n.size))
	}
	if in.Mode&fallocKeepSize == 0 && end > n.size {
		n.truncate(end)
	}
	return fuse.OK
}

func (s *server) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	dir, ok := s.begin(in.NodeId)
	if !ok {
		return fuse.EIO
	}
	defer s.mu.Unlock()
	above := dir.number
	if dir.parent != nil {
		above = dir.parent.number
	}
	list := []fuse.DirEntry{{Name: ".", Mode: syscall.S_IFDIR, Ino: dir.number}, {Name: "..", Mode: syscall.S_IFDIR, Ino: above}}
	for _, name := range slices.Sorted(maps.Keys(dir.entries)) {
		n := dir.entries[name]
		list = append(list, fuse.DirEntry{Name: name, Mode: n.attr.mode, Ino: n.number})
	}
	s.last++
	s.lists[s.last], out.Fh = list, s.last
	return fuse.OK
}

func (s *server) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if _, ok := s.begin(in.NodeId); !ok {
		return fuse.EIO
	}
	defer s.mu.Unlock()
	list := s.lists[in.Fh]
	for i := int(in.Offset); i < len(list) && out.AddDirEntry(list[i]); i++ {
	}
	return fuse.OK
}

func (s *server) ReleaseDir(in *fuse.ReleaseIn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lists, in.Fh)
}

// StatFs reports 64 GiB, all free.
func (s *server) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	const blocks = 64 << 30 / pageSize
	*out = fuse.StatfsOut{Blocks: blocks, Bfree: blocks, Bavail: blocks, Files: 1 << 20, Ffree: 1 << 20, Bsize: pageSize, Frsize: pageSize, NameLen: 255}
	return fuse.OK
}

// mount serves the tree at dir. Only root can.
func (s *server) mount(dir string) (*fuse.Server, error) {
	served, err := fuse.NewServer(s, dir, &fuse.MountOptions{
		FsName: "cutfs", Name: "cutfs", DirectMountStrict: true, AllowOther: true, Options: []string{"default_permissions"},
		DisableXAttrs: true, DisableReadDirPlus: true, ExplicitDataCacheControl: true, MaxWrite: 1 << 20, MaxBackground: 64,
		Logger: log.New(io.Discard, "", 0), // every answer to a dead mount is an error there
	})
	if err != nil {
		return nil, err
	}
	go served.Serve()
	return served, served.WaitMount()
}

// unmountLimit bounds how long an abandoned mount may take to end.
const unmountLimit = time.Minute
