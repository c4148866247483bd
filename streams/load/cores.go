package load

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Cores measures how many cores are idle: of the machine, or of the part of it that a control group may use (cgroup v2). The
// zero value reads Linux's files. It is safe for concurrent use.
type Cores struct {
	Root string // prefix of the files, for tests

	mu          sync.Mutex // guards what follows
	at          time.Time
	idle, total uint64 // ticks of all cores
	used        time.Duration
	spare       float64
	known       bool
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
	limit, used := c.group()
	if ok && !c.at.IsZero() && total > c.total {
		// Ticks are 10 ms: two cores have twenty in this time.
		c.spare, c.known = float64(runtime.NumCPU())*float64(idle-min(idle, c.idle))/float64(total-c.total), true
		if limit > 0 {
			c.spare = min(c.spare, limit-(used-c.used).Seconds()/elapsed.Seconds())
		}
	}
	c.at, c.idle, c.total, c.used = now, idle, total, used
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

// group reads the limit of the control group in cores, 0 = none, and the time it has used: cpu.max and cpu.stat of cgroup v2.
func (c *Cores) group() (limit float64, used time.Duration) {
	const dir = "/sys/fs/cgroup/"
	raw, _ := os.ReadFile(c.Root + dir + "cpu.max")
	var quota, period float64
	if n, _ := fmt.Sscan(string(raw), &quota, &period); n < 2 || period == 0 { // "max 100000"
		return 0, 0
	}
	raw, _ = os.ReadFile(c.Root + dir + "cpu.stat")
	var usec int64
	if n, _ := fmt.Sscanf(string(raw), "usage_usec %d", &usec); n < 1 {
		return 0, 0
	}
	return quota / period, time.Duration(usec) * time.Microsecond
}
