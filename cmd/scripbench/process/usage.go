package process

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

const (
	// clockTick is the unit of CPU times in /proc, a hundredth of a second on every Linux that Go runs on.
	clockTick = 10 * time.Millisecond
	// memoryEvery is how often memory is read.
	memoryEvery = 250 * time.Millisecond
)

// usage is what a process and its descendants have used.
type usage struct {
	cpu    time.Duration
	memory int64 // bytes: private memory, and shared memory counted once; no file cache
}

// usageOf adds up process trees; zero where there is no /proc.
func usageOf(roots ...int) (u usage) {
	procs, _ := procfs.AllProcs()
	children, tree := map[int][]procfs.ProcStat{}, []procfs.ProcStat{}
	for _, p := range procs {
		if s, err := p.Stat(); err == nil { // else it has just ended
			children[s.PPID] = append(children[s.PPID], s)
			if slices.Contains(roots, s.PID) {
				tree = append(tree, s)
			}
		}
	}
	shared := int64(0)
	for i := 0; i < len(tree); i++ {
		s := tree[i]
		tree = append(tree, children[s.PID]...)
		u.cpu += time.Duration(int(s.UTime+s.STime)+s.CUTime+s.CSTime) * clockTick // also those of children that have ended
		private, common := Resident(s.PID)
		u.memory += private
		shared = max(shared, common)
	}
	u.memory += shared
	return u
}

// Resident is the memory of one process in bytes, private and shared, without its children and without file cache; 0 where
// there is no /proc.
func Resident(pid int) (private, shared int64) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0
	}
	s, _ := p.NewStatus()
	return int64(s.RssAnon), int64(s.RssShmem)
}

// CPU is what a process and its descendants have used; 0 where there is no /proc.
func CPU(root int) time.Duration { return usageOf(root).cpu }

// Parent is the process that started another, none where there is no /proc.
func Parent(pid int) []int {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return nil
	}
	s, err := p.Stat()
	if err != nil {
		return nil
	}
	return []int{s.PPID}
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
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	stat, _ := fs.Stat()
	c := stat.CPUTotal
	return time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second))
}

// Meter watches a server during a run.
type Meter struct {
	roots    []int
	started  time.Time
	first    usage
	own, all time.Duration
	stopped  chan struct{}
	watching sync.WaitGroup
	peak     int64
}

// StartMeter watches processes and their descendants.
func StartMeter(roots ...int) *Meter {
	m := &Meter{roots: roots, started: time.Now(), first: usageOf(roots...), own: ownCPU(), all: machineCPU(), stopped: make(chan struct{})}
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

// Stop returns what was used since the start.
func (m *Meter) Stop() report.Spent {
	close(m.stopped)
	m.watching.Wait()
	last := usageOf(m.roots...)
	server, own := last.cpu-m.first.cpu, ownCPU()-m.own
	others := max(0, machineCPU()-m.all-server-own)
	return report.Spent{
		Watched: time.Since(m.started).Seconds(), Memory: max(m.peak, last.memory),
		ServerCPU: server.Seconds(), ClientCPU: own.Seconds(), OthersCPU: others.Seconds(),
	}
}

const unknown = "unknown"

// Machine reads /proc. dir is where the servers write, "" the directory for temporary files.
func Machine(dir string) report.Machine {
	m := report.Machine{Cores: runtime.NumCPU(), CPU: unknown, Memory: unknown, System: runtime.GOOS + "/" + runtime.GOARCH, Filesystem: filesystemOf(dir), Go: runtime.Version()}
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
			m.CPU = cpus[0].ModelName
		}
		if mem, err := fs.Meminfo(); err == nil && mem.MemTotal != nil {
			m.Memory = strconv.FormatUint((*mem.MemTotal+1<<19)>>20, 10) + " GiB"
		}
		if release, err := fs.SysctlStrings("kernel.osrelease"); err == nil {
			m.System += " " + strings.Join(release, " ")
		}
	}
	return m
}

// filesystemOf is the type and the options of a directory's mount.
func filesystemOf(dir string) string {
	if dir == "" {
		dir = os.TempDir()
	}
	mount, err := exec.Command("findmnt", "--noheadings", "--output", "FSTYPE,OPTIONS", "--target", dir).Output()
	if f := strings.Fields(string(mount)); err == nil && len(f) == 2 {
		return f[0] + " (" + f[1] + ")"
	}
	return unknown
}

// Load is the machine's load average of the last minute, five and fifteen.
func Load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return unknown
	}
	f := strings.Fields(string(raw))
	return strings.Join(f[:min(3, len(f))], " ")
}
