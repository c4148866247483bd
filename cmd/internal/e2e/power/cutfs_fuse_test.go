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

// look answers a request about an inode, with the lock held. Once the server is frozen it waits for the end of the mount.
func (s *server) look(number uint64, answer func(n *inode) fuse.Status) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.frozen:
		s.mu.Unlock()
		<-s.lifted
		s.mu.Lock()
		return fuse.EIO
	default:
		return answer(s.tree.nodes[number])
	}
}

// change is look for a request that changes something; the one at which the count is over is not carried out.
func (s *server) change(number uint64, answer func(n *inode) fuse.Status) fuse.Status {
	s.mu.Lock()
	if s.left > 0 {
		if s.left--; s.left == 0 {
			s.freezeLocked()
		}
	}
	s.mu.Unlock()
	return s.look(number, answer)
}

func (n *inode) fill(a *fuse.Attr) {
	size := uint64(len(n.content))
	*a = fuse.Attr{Ino: n.number, Size: size, Blocks: (size + 511) / 512, Mode: n.attr.mode, Nlink: uint32(n.links), Blksize: pageSize,
		Owner: fuse.Owner{Uid: n.attr.uid, Gid: n.attr.gid}}
	a.SetTimes(&n.modified, &n.modified, &n.modified)
}

func (n *inode) entry(out *fuse.EntryOut) fuse.Status {
	out.NodeId, out.Generation, out.EntryValid, out.AttrValid = n.number, 1, cacheFor, cacheFor
	n.fill(&out.Attr)
	return fuse.OK
}

func (n *inode) attributes(out *fuse.AttrOut) fuse.Status {
	out.AttrValid = cacheFor
	n.fill(&out.Attr)
	return fuse.OK
}

func (s *server) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return s.look(h.NodeId, func(dir *inode) fuse.Status {
		if n := dir.entries[name]; n != nil {
			return n.entry(out)
		}
		return fuse.ENOENT
	})
}

func (s *server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return s.look(in.NodeId, func(n *inode) fuse.Status { return n.attributes(out) })
}

func (s *server) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return s.change(in.NodeId, func(n *inode) fuse.Status {
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
			n.truncate(int(size))
		}
		if at, ok := in.GetMTime(); ok {
			n.modified = at
		}
		return n.attributes(out)
	})
}

// create adds an inode for a request of its caller.
func (s *server) create(h *fuse.InHeader, name string, mode uint32, out *fuse.EntryOut) fuse.Status {
	return s.change(h.NodeId, func(dir *inode) fuse.Status {
		return s.tree.make(dir, name, attributes{mode: mode, uid: h.Uid, gid: h.Gid}).entry(out)
	})
}

func (s *server) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.create(&in.InHeader, name, in.Mode, out)
}

func (s *server) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.create(&in.InHeader, name, syscall.S_IFDIR|in.Mode&0o7777, out)
}

func (s *server) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	return s.create(&in.InHeader, name, syscall.S_IFREG|in.Mode&0o7777, &out.EntryOut)
}

func (s *server) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return s.change(h.NodeId, func(dir *inode) fuse.Status { return s.tree.remove(dir, name) })
}

func (s *server) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return s.Unlink(cancel, h, name)
}

func (s *server) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	return s.change(in.NodeId, func(dir *inode) fuse.Status {
		return s.tree.rename(dir, from, s.tree.nodes[in.Newdir], to)
	})
}

func (s *server) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.change(in.NodeId, func(dir *inode) fuse.Status {
		n := s.tree.nodes[in.Oldnodeid]
		n.links++
		s.tree.apply(set{dir, name, n})
		return n.entry(out)
	})
}

func (s *server) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	if in.Flags&syscall.O_TRUNC == 0 {
		return fuse.OK
	}
	return s.change(in.NodeId, func(n *inode) fuse.Status {
		n.truncate(0)
		return fuse.OK
	})
}

func (s *server) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (result fuse.ReadResult, status fuse.Status) {
	status = s.look(in.NodeId, func(n *inode) fuse.Status {
		count := copy(buf, n.content[min(int(in.Offset), len(n.content)):])
		result = fuse.ReadResultData(buf[:count])
		return fuse.OK
	})
	return result, status
}

func (s *server) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return uint32(len(data)), s.change(in.NodeId, func(n *inode) fuse.Status {
		n.write(int(in.Offset), data)
		if in.Flags&syscall.O_DSYNC != 0 { // O_SYNC has this bit, too
			s.tree.sync(n)
		}
		return fuse.OK
	})
}

func (s *server) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status   { return fuse.ENOSYS } // close writes nothing back
func (s *server) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.ENOSYS } // the kernel does, by default_permissions
func (s *server) Release(<-chan struct{}, *fuse.ReleaseIn)           {}
func (s *server) Forget(uint64, uint64)                              {}

func (s *server) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return s.change(in.NodeId, func(n *inode) fuse.Status {
		s.tree.sync(n)
		return fuse.OK
	})
}

func (s *server) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return s.Fsync(cancel, in)
}

func (s *server) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return s.look(in.NodeId, func(dir *inode) fuse.Status {
		var list []fuse.DirEntry
		for _, name := range slices.Sorted(maps.Keys(dir.entries)) {
			n := dir.entries[name]
			list = append(list, fuse.DirEntry{Name: name, Mode: n.attr.mode, Ino: n.number})
		}
		s.last++
		s.lists[s.last], out.Fh = list, s.last
		return fuse.OK
	})
}

func (s *server) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return s.look(in.NodeId, func(*inode) fuse.Status {
		list := s.lists[in.Fh]
		for i := int(in.Offset); i < len(list) && out.AddDirEntry(list[i]); i++ {
		}
		return fuse.OK
	})
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
