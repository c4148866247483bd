package pgd

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Idle lets backends of the cluster run only while no other process wants the CPU: the policy SCHED_IDLE, see sched(7). A
// lower priority is not enough, because the kernel lets a process of low priority finish its slice before one that wakes up.
// It lasts until the backend ends. A process that is no child of the postmaster is left alone.
//
// Where the kernel schedules sessions as groups (kernel.sched_autogroup_enabled, outside of containers), each backend is a
// group of its own, and the policy has no effect beyond it.
func (c *Cluster) Idle(backends []int) {
	postmaster := c.PID()
	for _, pid := range backends {
		if postmaster != 0 && parent(pid) == postmaster {
			// It fails if the process has ended, or runs with that policy as another user's.
			_ = unix.SchedSetAttr(pid, &unix.SchedAttr{Policy: unix.SCHED_IDLE, Nice: 19}, 0)
		}
	}
}

// parent returns the process id of a process's parent, 0 if the process has ended.
func parent(pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// pid (name) state parent …; the name may have spaces and parentheses
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}
