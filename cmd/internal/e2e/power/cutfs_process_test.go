package power

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// The file system runs in a separate process: a Go program that uses a mount which it serves itself can deadlock, because
// a thread that waits for the file system in fork or in a page fault blocks the garbage collector.

// variable names the mount point in the environment of the process that serves.
const variable = "CUTFS_MOUNT"

// stream joins two pipes: one to the other process, one from it.
type stream struct {
	io.Reader
	io.WriteCloser
}

// Serve serves the file system and then exits, if Mount has started this process. Call it first in TestMain.
func Serve() {
	dir := os.Getenv(variable)
	if dir == "" {
		return
	}
	m := &Mounted{dir: dir}
	err := m.mount(newTree())
	if err == nil {
		requests := rpc.NewServer()
		_ = requests.Register(m) // its methods have the form that is needed
		requests.ServeCodec(jsonrpc.NewServerCodec(stream{m, os.Stdout}))
		err = m.leave()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cutfs:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Mounted is the file system in the process that serves it, with the requests of the test.
type Mounted struct {
	dir    string
	server atomic.Pointer[server]
	fuse   *fuse.Server
}

// Read reads requests. They end when the test closes the file system or dies; then no request may wait for a freeze.
func (m *Mounted) Read(p []byte) (int, error) {
	n, err := os.Stdin.Read(p)
	if err != nil {
		m.server.Load().freeze()
	}
	return n, err
}

func (m *Mounted) mount(t *tree) (err error) {
	m.server.Store(newServer(t))
	m.fuse, err = m.server.Load().mount(m.dir)
	return err
}

func (m *Mounted) leave() error {
	m.server.Load().freeze()
	if err := syscall.Unmount(m.dir, syscall.MNT_FORCE|syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting %s: %w", m.dir, err)
	}
	close(m.server.Load().lifted)
	ended := make(chan struct{})
	go func() { m.fuse.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-time.After(unmountLimit):
		return fmt.Errorf("%s is still served after %s", m.dir, unmountLimit)
	}
}

// Freeze is FS.Freeze.
func (m *Mounted) Freeze(_, _ *struct{}) error {
	m.server.Load().freeze()
	return nil
}

// After is FS.After.
func (m *Mounted) After(n int, _ *struct{}) error {
	s := m.server.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = n
	return nil
}

// Frozen returns when the file system is frozen.
func (m *Mounted) Frozen(_, _ *struct{}) error {
	<-m.server.Load().frozen
	return nil
}

// Loose is FS.Loose.
func (m *Mounted) Loose(names []string, _ *struct{}) error {
	s := m.server.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tree.loose = map[string]bool{}
	for _, name := range names {
		s.tree.loose[name] = true
	}
	return nil
}

// Choice is how to cut.
type Choice struct {
	Plan Plan
	Seed uint64
}

// Cut is FS.Cut.
func (m *Mounted) Cut(by Choice, r *Report) error {
	if err := m.leave(); err != nil {
		return err
	}
	t := m.server.Load().tree
	*r = t.cut(by.Plan, rand.New(rand.NewPCG(by.Seed, 0)))
	return m.mount(t)
}

// FS is a mounted file system, served by another process.
type FS struct {
	Dir    string
	cmd    *exec.Cmd
	client *rpc.Client
	frozen chan struct{}
}

// Missing returns which requirement of Mount this machine lacks, nil = none.
func Missing() error {
	if os.Geteuid() != 0 {
		return errors.New("mounting needs root")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// Mount starts a process that serves an empty file system at dir, an empty directory. The program must call Serve first.
func Mount(dir string) (*FS, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f := &FS{Dir: dir, cmd: exec.Command(self)}
	f.cmd.Env = append(os.Environ(), variable+"="+dir)
	f.cmd.Stderr = os.Stderr
	// Not this process's signals: it ends when its standard input does.
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, inErr := f.cmd.StdinPipe()
	out, outErr := f.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, f.cmd.Start()); err != nil {
		return nil, err
	}
	f.client = jsonrpc.NewClient(stream{out, in})
	if err := f.After(0); err != nil { // it is mounted
		return nil, errors.Join(err, f.cmd.Wait())
	}
	return f, nil
}

// Freeze stops the file system at once: it replies no more. Processes that use it wait until the cut.
func (f *FS) Freeze() error { return f.client.Call("Mounted.Freeze", struct{}{}, nil) }

// After makes the file system freeze before the n-th change from now (a write, a new name, an fsync), and Frozen receive.
// 0 cancels that.
func (f *FS) After(n int) error {
	err := f.client.Call("Mounted.After", n, nil)
	if frozen := make(chan struct{}); err == nil && n > 0 {
		f.frozen = frozen
		call := f.client.Go("Mounted.Frozen", struct{}{}, nil, make(chan *rpc.Call, 1))
		go func() { <-call.Done; close(frozen) }()
	}
	return err
}

// Frozen is closed once the file system has frozen after the last After.
func (f *FS) Frozen() <-chan struct{} { return f.frozen }

// Loose names directories. Below one of these names the fsync of a new file also keeps its name, and the names of new
// directories above it.
func (f *FS) Loose(names ...string) error { return f.client.Call("Mounted.Loose", names, nil) }

// Cut drops unsynced changes by the plan, and mounts the rest. Kill the processes that use the file system between Freeze
// and Cut, and wait for their end after Cut: a process that waits for the file system does not end before.
func (f *FS) Cut(plan Plan, seed uint64) (r Report, err error) {
	err = f.client.Call("Mounted.Cut", Choice{plan, seed}, &r)
	return r, err
}

// Close unmounts, and loses everything.
func (f *FS) Close() error { return errors.Join(f.client.Close(), f.cmd.Wait()) }
