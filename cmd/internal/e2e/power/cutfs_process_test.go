package power

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// The file system runs in a separate process: a Go program that uses a mount which it serves itself can deadlock, because
// a thread that waits for the file system in fork or in a page fault blocks the garbage collector.

// variable names the mount point in the environment of the process that serves.
const variable = "CUTFS_MOUNT"

type request struct {
	Do    string   // freeze, cut, after, loose
	Plan  Plan     `json:",omitempty"`
	Seed  uint64   `json:",omitempty"`
	Count int      `json:",omitempty"`
	Names []string `json:",omitempty"`
}

type reply struct {
	Frozen bool   `json:",omitempty"` // not a reply: the count of After is over
	Err    string `json:",omitempty"`
	Report Report
}

// Serve serves the file system and then exits, if Mount has started this process. Call it first in TestMain.
func Serve() {
	dir := os.Getenv(variable)
	if dir == "" {
		return
	}
	if err := serve(dir, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cutfs:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve answers requests until in ends, which it does also when the test dies.
func serve(dir string, in io.Reader, out io.Writer) error {
	var mu sync.Mutex
	to := json.NewEncoder(out)
	send := func(r reply) {
		mu.Lock()
		defer mu.Unlock()
		_ = to.Encode(r) // the reader is gone: in ends
	}
	s := newServer(newTree())
	served, err := s.mount(dir)
	if err != nil {
		return err
	}
	leave := func() error {
		s.freeze()
		if err := syscall.Unmount(dir, syscall.MNT_FORCE|syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", dir, err)
		}
		close(s.lifted)
		ended := make(chan struct{})
		go func() { served.Wait(); close(ended) }()
		select {
		case <-ended:
			return nil
		case <-time.After(unmountLimit):
			return fmt.Errorf("%s is still served after %s", dir, unmountLimit)
		}
	}
	send(reply{})
	requests := json.NewDecoder(in)
	for {
		var q request
		if err := requests.Decode(&q); err != nil {
			err := leave()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var r reply
		switch q.Do {
		case "freeze":
			s.freeze()
		case "after":
			s.mu.Lock()
			s.left, s.over = q.Count, func() { send(reply{Frozen: true}) }
			s.mu.Unlock()
		case "loose":
			s.mu.Lock()
			s.tree.loose = map[string]bool{}
			for _, name := range q.Names {
				s.tree.loose[name] = true
			}
			s.mu.Unlock()
		case "cut":
			err := leave()
			if err == nil {
				r.Report = s.tree.cut(q.Plan, rand.New(rand.NewPCG(q.Seed, 0)))
				s = newServer(s.tree)
				served, err = s.mount(dir)
			}
			if err != nil {
				r.Err = err.Error()
			}
		default:
			r.Err = "unknown request " + q.Do
		}
		send(r)
	}
}

// FS is a mounted file system, served by another process.
type FS struct {
	Dir     string
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies chan reply
	frozen  chan struct{}
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
	f := &FS{Dir: dir, cmd: exec.Command(self), replies: make(chan reply), frozen: make(chan struct{}, 1)}
	f.cmd.Env = append(os.Environ(), variable+"="+dir)
	f.cmd.Stderr = os.Stderr
	// Not this process's signals: it ends when its standard input does.
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if f.in, err = f.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(f.replies)
		for from := json.NewDecoder(bufio.NewReader(out)); ; {
			var r reply
			if err := from.Decode(&r); err != nil {
				return
			}
			if r.Frozen {
				select {
				case f.frozen <- struct{}{}:
				default:
				}
				continue
			}
			f.replies <- r
		}
	}()
	if _, err := f.reply(); err != nil {
		return nil, errors.Join(err, f.cmd.Wait())
	}
	return f, nil
}

func (f *FS) do(q request) (Report, error) {
	if err := json.NewEncoder(f.in).Encode(q); err != nil {
		return Report{}, fmt.Errorf("the file system's process: %w", err)
	}
	return f.reply()
}

func (f *FS) reply() (Report, error) {
	r, ok := <-f.replies
	switch {
	case !ok:
		return Report{}, errors.New("the file system's process has ended")
	case r.Err != "":
		return Report{}, errors.New(r.Err)
	}
	return r.Report, nil
}

// Freeze stops the file system at once: it replies no more. Processes that use it wait until the cut.
func (f *FS) Freeze() error {
	_, err := f.do(request{Do: "freeze"})
	return err
}

// After makes the file system freeze before the n-th change from now (a write, a new name, an fsync), and Frozen receive.
// 0 cancels that.
func (f *FS) After(n int) error {
	select {
	case <-f.frozen:
	default:
	}
	_, err := f.do(request{Do: "after", Count: n})
	return err
}

// Frozen receives once the file system has frozen after After.
func (f *FS) Frozen() <-chan struct{} { return f.frozen }

// Loose names directories. Below one of these names the fsync of a new file also keeps its name, and the names of new
// directories above it.
func (f *FS) Loose(names ...string) error {
	_, err := f.do(request{Do: "loose", Names: names})
	return err
}

// Cut drops unsynced changes by the plan, and mounts the rest. Kill the processes that use the file system between Freeze
// and Cut, and wait for their end after Cut: a process that waits for the file system does not end before.
func (f *FS) Cut(plan Plan, seed uint64) (Report, error) {
	return f.do(request{Do: "cut", Plan: plan, Seed: seed})
}

// Close unmounts, and loses everything.
func (f *FS) Close() error { return errors.Join(f.in.Close(), f.cmd.Wait()) }
