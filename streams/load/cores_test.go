package load

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// put writes files of the system below a directory.
func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Idle cores by the system's files, before and after a second, of the machine and of a control group.
func TestCores(t *testing.T) {
	const stat, limit, usage = "proc/stat", "sys/fs/cgroup/a/b/cpu.max", "sys/fs/cgroup/a/b/cpu.stat"
	const quota, period, spent = "sys/fs/cgroup/cpu/t/cpu.cfs_quota_us", "sys/fs/cgroup/cpu/t/cpu.cfs_period_us", "sys/fs/cgroup/cpuacct/t/cpuacct.usage"
	machine := float64(runtime.NumCPU())
	type files = map[string]string
	for _, c := range []struct {
		name          string
		before, after files
		want          float64
		known         bool
	}{
		{"half idle", files{stat: "cpu 0 0 0 0 0 0 0 0 0 0\n"}, files{stat: "cpu 50 0 40 100 10 0 0 0 7 7\ncpu0 1"}, machine / 2, true},
		{"none idle", files{stat: "cpu 0 0 0 5 5 0 0 0 0 0\n"}, files{stat: "cpu 90 0 50 5 5 50 0 10 7 7\n"}, 0, true},
		{"a group without a limit", files{stat: "cpu 0 0 0 0 0 0 0 0 0 0\n", limit: "max 100000\n"}, files{stat: "cpu 0 0 0 100 0 0 0 0 0 0\n"}, machine, true},
		{"a group that may use a core and a half, and used one", files{stat: "cpu 0 0 0 0 0 0 0 0 0 0\n", limit: "150000 100000\n", usage: "usage_usec 7\nuser_usec 1\n"},
			files{stat: "cpu 0 0 0 100 0 0 0 0 0 0\n", usage: "usage_usec 1000007\nuser_usec 1\n"}, 0.5, true},
		{"a group above it that may use half a core", files{stat: "cpu 0 0 0 0 0 0 0 0 0 0\n", limit: "150000 100000\n", usage: "usage_usec 7\n",
			"sys/fs/cgroup/a/cpu.max": "50000 100000\n", "sys/fs/cgroup/a/cpu.stat": "usage_usec 9\n"},
			files{stat: "cpu 0 0 0 100 0 0 0 0 0 0\n", "sys/fs/cgroup/a/cpu.stat": "usage_usec 250009\n"}, 0.25, true},
		{"a group of cgroup v1", files{stat: "cpu 0 0 0 0 0 0 0 0 0 0\n", quota: "150000\n", period: "100000\n", spent: "7\n"},
			files{stat: "cpu 0 0 0 100 0 0 0 0 0 0\n", spent: "1000000007\n"}, 0.5, true},
		{"one without a limit", files{stat: "cpu 0 0 0 0 0 0 0 0 0 0\n", quota: "-1\n", period: "100000\n", spent: "7\n"},
			files{stat: "cpu 0 0 0 100 0 0 0 0 0 0\n", spent: "1000000007\n"}, machine, true},
		{"a group on a machine without idle cores", files{stat: "cpu 0 0 0 5 5 0 0 0 0 0\n", limit: "150000 100000\n", usage: "usage_usec 7\n"},
			files{stat: "cpu 90 0 50 5 5 50 0 10 7 7\n", usage: "usage_usec 1000007\n"}, 0, true},
		{"not Linux", nil, nil, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cores := Cores{Root: root}
				put(t, root, c.before)
				if c.known {
					put(t, root, files{"proc/self/cgroup": "0::/a/b\n2:cpuacct:/t\n1:cpu:/t\n", "proc/self/mountinfo": "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 c rw\n" +
						"2 1 0:2 / /sys/fs/cgroup/cpu rw - cgroup c rw,cpu\n3 1 0:3 / /sys/fs/cgroup/cpuacct rw - cgroup c rw,cpuacct\n"})
				}
				if _, known := cores.Spare(); known {
					t.Error("known at first")
				}
				put(t, root, c.after)
				time.Sleep(time.Second)
				if got, known := cores.Spare(); got != c.want || known != c.known {
					t.Errorf("%v cores, %t; want %v, %t", got, known, c.want, c.known)
				}
			})
		})
	}
}

// The lanes press while they are busy and no core is idle; a machine that does not say is taken for pressed.
func TestPressed(t *testing.T) {
	root := t.TempDir()
	stat := func(text string) { put(t, root, map[string]string{"proc/stat": text}) }
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter(1)
		m.Cores.Root = root
		m.Pressed()
		m.Lanes[0].Done.Add(busyFrom)
		time.Sleep(time.Second)
		if m.Pressed() != Busy {
			t.Error("busy lanes do not press where idle cores are not known")
		}
		stat("cpu 0 0 0 0 0 0 0 0 0 0\n")
		time.Sleep(time.Second)
		m.Pressed()
		stat("cpu 10 0 0 90 0 0 0 0 0 0\n")
		m.Lanes[0].Done.Add(2 * busyFrom)
		time.Sleep(time.Second)
		if m.Pressed() != Idle || m.Level() != Busy {
			t.Error("they press while cores are idle")
		}
		stat("cpu 110 0 0 90 0 0 0 0 0 0\n")
		m.Lanes[0].Done.Add(busyFrom)
		time.Sleep(time.Second)
		if m.Pressed() != Busy {
			t.Error("they do not press while no core is idle")
		}
	})
}
