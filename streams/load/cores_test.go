package load

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// Idle cores by the system's files, of the machine and of a control group; and when the lanes press.
func TestCores(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string][2]string // before and after a second
		want  float64              // share of the machine
		known bool
	}{
		{"half idle", map[string][2]string{"proc/stat": {"cpu 0 0 0 0 0 0 0 0 0 0\n", "cpu 50 0 40 100 10 0 0 0 7 7\ncpu0 1"}}, 0.5, true},
		{"none idle", map[string][2]string{"proc/stat": {"cpu 0 0 0 5 5 0 0 0 0 0\n", "cpu 90 0 50 5 5 50 0 10 7 7\n"}}, 0, true},
		{"a group without a limit", map[string][2]string{"proc/stat": {"cpu 0 0 0 0 0 0 0 0 0 0\n", "cpu 0 0 0 100 0 0 0 0 0 0\n"},
			"sys/fs/cgroup/cpu.max": {"max 100000\n", "max 100000\n"}}, 1, true},
		{"not Linux", nil, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write := func(which int) {
				for name, text := range c.files {
					file := filepath.Join(root, name)
					if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(file, []byte(text[which]), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			synctest.Test(t, func(t *testing.T) {
				cores := Cores{Root: root}
				write(0)
				if _, known := cores.Spare(); known {
					t.Error("known at first")
				}
				write(1)
				time.Sleep(time.Second)
				if got, known := cores.Spare(); got != c.want*float64(runtime.NumCPU()) || known != c.known {
					t.Errorf("%v cores, %t; want %v of all, %t", got, known, c.want, c.known)
				}
				// A group that may use a core and a half, and used one.
				write(0)
				group := func(used int) {
					for name, text := range map[string]string{"cpu.max": "150000 100000\n", "cpu.stat": fmt.Sprintf("usage_usec %d\nuser_usec 1\n", used)} {
						if err := os.MkdirAll(root+"/sys/fs/cgroup", 0o700); err != nil {
							t.Fatal(err)
						}
						if err := os.WriteFile(root+"/sys/fs/cgroup/"+name, []byte(text), 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}
				group(7)
				cores = Cores{Root: root}
				cores.Spare()
				group(1_000_007)
				write(1)
				group(1_000_007)
				time.Sleep(time.Second)
				if got, known := cores.Spare(); known && got != min(0.5, c.want*float64(runtime.NumCPU())) {
					t.Errorf("in a group: %v cores", got)
				}
			})
		})
	}
}

// The lanes press while they are busy and no core is idle; a machine that does not say is taken for pressed.
func TestPressed(t *testing.T) {
	root := t.TempDir()
	stat := func(text string) {
		if err := os.MkdirAll(root+"/proc", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+"/proc/stat", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
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
