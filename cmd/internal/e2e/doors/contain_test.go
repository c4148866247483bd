package doors

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// autogroups is the kernel's switch that schedules each session of a login as a group.
const autogroups = "/proc/sys/kernel/sched_autogroup_enabled"

// contain puts this process and its children into a control group of the CPU, as a container or a unit of systemd is. Only there
// do sessions of PostgreSQL share a group with the server, so that analysts run while nothing else wants the CPU. It reports false
// where the kernel groups sessions and no control group can be made.
func contain(t *testing.T) bool {
	if on, err := os.ReadFile(autogroups); err != nil || on[0] != '1' {
		return true
	}
	for _, root := range []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup"} {
		group := filepath.Join(root, "scrip-doors-"+strconv.Itoa(os.Getpid()))
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0) // version 2
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		_, shares := os.Stat(filepath.Join(group, "cpu.shares"))
		_, weight := os.Stat(filepath.Join(group, "cpu.weight"))
		enter := func(group string) error {
			return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
		}
		if shares != nil && weight != nil || enter(group) != nil {
			_ = os.Remove(group)
			continue
		}
		t.Cleanup(func() { // the server has ended, because its clean-up was registered later
			if err := errors.Join(enter(root), os.Remove(group)); err != nil {
				t.Logf("leaving the control group: %v", err)
			}
		})
		return true
	}
	return false
}

// elsewhere lets this process run only while no other one wants the CPU, as far as a process on this machine can stand for one on
// another: what it asks the server for costs the server, and its own work does not. Threads that begin later do likewise.
func elsewhere() {
	threads, _ := filepath.Glob("/proc/self/task/*")
	for _, thread := range threads {
		if id, err := strconv.Atoi(filepath.Base(thread)); err == nil {
			_ = unix.SchedSetAttr(id, &unix.SchedAttr{Policy: unix.SCHED_IDLE}, 0)
		}
	}
}
