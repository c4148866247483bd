package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// clockTick is the unit of CPU times in /proc, a hundredth of a second on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// process is a server that we have started.
type process struct {
	cmd  *exec.Cmd
	log  string
	gone chan struct{}
}

// startProcess runs a program whose output goes to a file.
func startProcess(log string, program string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program, args...), log: log, gone: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = dieWithUs()
	started := make(chan error)
	go func() {
		// The kernel's signal is sent when the thread that started the process ends, so that thread is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is asked for where it matters
		}
		_ = out.Close()
		close(p.gone)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop asks for a clean end and, after the given time, for any.
func (p *process) stop(within time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-p.gone:
	case <-late.C:
		_ = p.cmd.Process.Kill()
		<-p.gone
	}
}

// died says why a server that should run does not, with what it said last.
func (p *process) died() error {
	said, _ := os.ReadFile(p.log)
	if len(said) > 2000 {
		said = said[len(said)-2000:]
	}
	return fmt.Errorf("%s ended (%s); it said: %s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, bytes.TrimSpace(said))
}

// usage is what a process and all that it started have used.
type usage struct {
	cpu    time.Duration
	memory int64 // bytes: what is theirs alone, and what they share counted once; no file cache
}

// usageOf adds up a process tree; zero where there is no /proc.
func usageOf(root int) usage {
	var u usage
	var shared int64
	for _, pid := range tree(root) {
		if f, err := statFields(pid); err == nil {
			for _, field := range []int{13, 14, 15, 16} { // utime stime and those of children that have ended
				n, _ := strconv.ParseInt(f[field], 10, 64)
				u.cpu += time.Duration(n) * clockTick
			}
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has just ended
		}
		u.memory += statusKiB(status, "RssAnon:") << 10
		shared = max(shared, statusKiB(status, "RssShmem:")<<10)
	}
	u.memory += shared
	return u
}

func statusKiB(status []byte, name string) int64 {
	_, rest, ok := bytes.Cut(status, []byte("\n"+name))
	if !ok {
		return 0
	}
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	return n
}

// statFields are those of /proc/<pid>/stat, counted from 0; the program's name, which may hold anything, is left empty.
func statFields(pid int) ([]string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(raw, ')')
	fields := append([]string{strconv.Itoa(pid), ""}, strings.Fields(string(raw[end+1:]))...)
	if len(fields) < 17 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields, nil
}

// tree is a process and all that it started and that live.
func tree(root int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if f, err := statFields(pid); err == nil {
			parent, _ := strconv.Atoi(f[3])
			children[parent] = append(children[parent], pid)
		}
	}
	all := []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// ownCPU is what this process has used: the load generator and the clients.
func ownCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// meter watches a server during a run.
type meter struct {
	root        int
	server, own time.Duration
	all         time.Duration
	stopped     chan struct{}
	watching    sync.WaitGroup
	peak        int64
}

// memoryEvery is how often memory is looked at.
const memoryEvery = 250 * time.Millisecond

func startMeter(root int) *meter {
	m := &meter{root: root, stopped: make(chan struct{})}
	first := usageOf(root)
	m.server, m.own, m.all, m.peak = first.cpu, ownCPU(), machineCPU(), first.memory
	m.watching.Go(func() {
		tick := time.NewTicker(memoryEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				m.peak = max(m.peak, usageOf(root).memory)
			case <-m.stopped:
				return
			}
		}
	})
	return m
}

// stop returns the CPU time of server, clients and everybody else since the start, and the peak of the server's memory.
func (m *meter) stop() (server, own, others time.Duration, peak int64) {
	close(m.stopped)
	m.watching.Wait()
	last := usageOf(m.root)
	server, own = last.cpu-m.server, ownCPU()-m.own
	return server, own, max(0, machineCPU()-m.all-server-own), max(m.peak, last.memory)
}

// machineCPU is what all processes of the machine and its kernel have used, and what its host took away; 0 where there
// is no /proc.
func machineCPU() (sum time.Duration) {
	f := strings.Fields(lineAfter("/proc/stat", "cpu "))
	for _, at := range []int{0, 1, 2, 5, 6, 7} { // user nice system, then irq softirq steal behind idle and iowait
		if at < len(f) {
			n, _ := strconv.ParseInt(f[at], 10, 64)
			sum += time.Duration(n) * clockTick
		}
	}
	return sum
}
