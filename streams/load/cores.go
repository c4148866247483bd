package load

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/machine"
)

// Cores measures how many cores are idle: of the machine, or of the part of it that the process's control group and those above it may
// use. The zero value reads Linux's files. It is safe for concurrent use.
type Cores struct {
	Root string // prefix of the files, for tests

	mu          sync.Mutex // guards what follows
	at          time.Time
	idle, total uint64 // ticks of all cores
	groups      []group
	spare       float64
	known       bool
}

// group is a control group and the time that it has used.
type group struct {
	limits, times machine.Group
	used          time.Duration
}

// Spare is the mean of the last measurement, made at most busyOver ago. known is false on other systems, and at first.
func (c *Cores) Spare() (cores float64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	elapsed := now.Sub(c.at)
	if elapsed < busyOver {
		return c.spare, c.known
	}
	idle, total, ok := c.ticks()
	if c.at.IsZero() {
		c.groups = groups(os.DirFS(c.Root + "/"))
	}
	if ok && !c.at.IsZero() && total > c.total {
		// Ticks are 10 ms: two cores have twenty in this time.
		c.spare, c.known = float64(runtime.NumCPU())*float64(idle-min(idle, c.idle))/float64(total-c.total), true
	}
	for i := range c.groups {
		g := &c.groups[i]
		limit, used := g.cores(), g.time()
		if limit > 0 && !c.at.IsZero() {
			c.spare = min(c.spare, limit-(used-g.used).Seconds()/elapsed.Seconds())
		}
		g.used = used
	}
	c.at, c.idle, c.total = now, idle, total
	return c.spare, c.known
}

// ticks reads the first line of /proc/stat, proc(5): user nice system idle iowait irq softirq steal, which guest times repeat.
func (c *Cores) ticks() (idle, total uint64, ok bool) {
	raw, err := os.ReadFile(c.Root + "/proc/stat")
	line, _, _ := bytes.Cut(raw, []byte("\n"))
	fields := strings.Fields(string(line))
	if err != nil || len(fields) < 9 {
		return 0, 0, false
	}
	for i, f := range fields[1:9] {
		n, _ := strconv.ParseUint(f, 10, 64)
		if total += n; i == 3 { // not 4: in iowait claims wait for the disk, which the work that yields would use
			idle += n
		}
	}
	return idle, total, true
}

// groups are the control groups whose limits count: in cgroup v1 the times may be in another hierarchy.
func groups(root fs.FS) (all []group) {
	times := machine.Groups(root, "cpuacct")
	for _, g := range machine.Groups(root, "cpu") {
		for _, t := range times {
			if both := (group{limits: g, times: t}); g.Name == t.Name && g.Read("cpu.max")+g.Read("cpu.cfs_quota_us") != "" && both.time() > 0 {
				all = append(all, both)
			}
		}
	}
	return all
}

// cores is the limit of a group, 0 = none.
func (g *group) cores() float64 {
	text := g.limits.Read("cpu.max") // "max 100000"
	if text == "" {
		text = g.limits.Read("cpu.cfs_quota_us") + " " + g.limits.Read("cpu.cfs_period_us") // "-1 100000"
	}
	var quota, period float64
	if n, _ := fmt.Sscan(text, &quota, &period); n < 2 || period == 0 {
		return 0
	}
	return quota / period
}

// time is how long the cores have worked for a group.
func (g *group) time() time.Duration {
	var n int64
	if read, _ := fmt.Sscanf(g.times.Read("cpu.stat"), "usage_usec %d", &n); read == 1 {
		return time.Duration(n) * time.Microsecond
	}
	n, _ = strconv.ParseInt(g.times.Read("cpuacct.usage"), 10, 64)
	return time.Duration(n)
}
