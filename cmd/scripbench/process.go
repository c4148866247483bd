package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// clockTick is the unit of CPU times in /proc, a hundredth of a second on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// process is a server that scripbench started.
type process struct {
	cmd  *exec.Cmd
	log  string
	gone chan struct{}
}

// startProcess runs a program whose output is appended to the file log.
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
		// The kernel sends its signal when the thread that started the process ends, so that thread is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // died reports how it ended
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

// stop sends SIGTERM and, after the given time, SIGKILL.
func (p *process) stop(within time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.gone:
	case <-time.After(within):
		p.kill()
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// died is the error of a server that ended too early, with the end of its output.
func (p *process) died() error {
	output, _ := os.ReadFile(p.log)
	output = output[max(0, len(output)-2000):]
	return fmt.Errorf("%s ended (%s); its output: %s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, bytes.TrimSpace(output))
}

// errWaiting is what a check of poll returns, wrapped, while its condition does not hold yet.
var errWaiting = errors.New("not yet")

// poll calls check at once and then each time every has passed, until it returns nil or an error other than errWaiting.
// It fails when ctx ends, or when the server p, which may be nil, does.
func poll(ctx context.Context, p *process, every time.Duration, check func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var gone chan struct{}
	if p != nil {
		gone = p.gone
	}
	for {
		err := check()
		if !errors.Is(err, errWaiting) {
			return err
		}
		select {
		case <-tick.C:
		case <-gone:
			return p.died()
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// usage is what a process and its descendants have used.
type usage struct {
	cpu    time.Duration
	memory int64 // bytes: private memory, and shared memory counted once; no file cache
}

// usageOf adds up process trees; zero where there is no /proc.
func usageOf(roots ...int) usage {
	var u usage
	var shared int64
	for _, pid := range tree(roots...) {
		if f, err := statFields(pid); err == nil {
			u.cpu += ticks(f, 13, 14, 15, 16) // utime stime and those of children that have ended
		}
		private, common, err := resident(pid)
		if err != nil {
			continue // it has just ended
		}
		u.memory += private
		shared = max(shared, common)
	}
	u.memory += shared
	return u
}

// resident is the memory of one process in bytes, private and shared, without file cache.
func resident(pid int) (private, shared int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "RssAnon":
			private = kib << 10
		case "RssShmem":
			shared = kib << 10
		}
	}
	return private, shared, err
}

// ticks adds up some of the fields, which are times in clock ticks.
func ticks(fields []string, which ...int) (sum time.Duration) {
	for _, i := range which {
		if i < len(fields) {
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			sum += time.Duration(n) * clockTick
		}
	}
	return sum
}

// statFields are those of /proc/<pid>/stat, counted from 0; the program's name, which may hold anything, is left empty.
func statFields(pid int) ([]string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(raw, ')')
	return append([]string{strconv.Itoa(pid), ""}, strings.Fields(string(raw[end+1:]))...), nil
}

// tree is processes and their descendants.
func tree(roots ...int) []int {
	entries, _ := os.ReadDir("/proc")
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if f, err := statFields(pid); err == nil && len(f) > 3 {
			parent, _ := strconv.Atoi(f[3])
			children[parent] = append(children[parent], pid)
		}
	}
	all := slices.Clone(roots)
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// parentOf is the process that started another, none where there is no /proc.
func parentOf(pid int) []int {
	f, err := statFields(pid)
	if err != nil || len(f) <= 3 {
		return nil
	}
	parent, _ := strconv.Atoi(f[3])
	return []int{parent}
}

// ownCPU is what this process has used: the load generator and the clients.
func ownCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// machineCPU is what all processes of the machine and its kernel have used, and what its host took away; 0 where there
// is no /proc.
func machineCPU() time.Duration {
	// user nice system, then irq softirq steal, which follow idle and iowait
	return ticks(strings.Fields(lineAfter("/proc/stat", "cpu ")), 0, 1, 2, 5, 6, 7)
}

// spent is the CPU time of a run, in seconds, and the peak of the server's memory, in bytes.
type spent struct {
	// ServerCPU is that of the server's processes, ClientCPU that of scripbench with workers and client libraries,
	// OthersCPU that of everything else on the machine, the kernel's own threads included.
	ServerCPU float64 `json:"server_cpu_s"`
	ClientCPU float64 `json:"client_cpu_s"`
	OthersCPU float64 `json:"others_cpu_s"`
	// Memory is the peak of the server's processes, without file cache.
	Memory int64 `json:"memory_bytes"`
}

// meter watches a server during a run.
type meter struct {
	roots    []int
	first    usage
	own, all time.Duration
	stopped  chan struct{}
	watching sync.WaitGroup
	peak     int64
}

// memoryEvery is how often memory is read.
const memoryEvery = 250 * time.Millisecond

func startMeter(roots ...int) *meter {
	m := &meter{roots: roots, first: usageOf(roots...), own: ownCPU(), all: machineCPU(), stopped: make(chan struct{})}
	m.peak = m.first.memory
	m.watching.Go(func() {
		tick := time.NewTicker(memoryEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				m.peak = max(m.peak, usageOf(roots...).memory)
			case <-m.stopped:
				return
			}
		}
	})
	return m
}

// stop returns what was used since the start.
func (m *meter) stop() spent {
	close(m.stopped)
	m.watching.Wait()
	last := usageOf(m.roots...)
	server, own := last.cpu-m.first.cpu, ownCPU()-m.own
	others := max(0, machineCPU()-m.all-server-own)
	return spent{server.Seconds(), own.Seconds(), others.Seconds(), max(m.peak, last.memory)}
}
