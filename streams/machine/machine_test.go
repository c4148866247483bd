package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// mb is a limit of so many MB as files have it.
func mb(n int64) string { return strconv.FormatInt(n<<20, 10) + "\n" }

// noLimit is the limit of a group of cgroup v1 that has none.
const noLimit = "9223372036854771712\n"

// TestMemoryOf: the smallest limit counts, of the process's own group or of one above it, in every layout of a system.
func TestMemoryOf(t *testing.T) {
	const (
		v2     = "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
		v1     = "30 25 0:26 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n31 25 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
		system = "0::/system.slice/scrip.service\n"
		dir    = "sys/fs/cgroup/"
	)
	for name, c := range map[string]struct {
		groups, mounts string
		files          map[string]string
		want           Size
	}{
		"a service of systemd": {system, v2, map[string]string{dir + "system.slice/memory.max": "max\n", dir + "system.slice/scrip.service/memory.max": mb(512)}, Size{512 << 20, "/system.slice/scrip.service"}},
		"a slice above it":     {system, v2, map[string]string{dir + "system.slice/memory.max": mb(256), dir + "system.slice/scrip.service/memory.max": mb(512)}, Size{256 << 20, "/system.slice"}},
		"where it is slowed":   {system, v2, map[string]string{dir + "system.slice/scrip.service/memory.high": mb(300), dir + "system.slice/scrip.service/memory.max": mb(512)}, Size{300 << 20, "/system.slice/scrip.service"}},
		"more than there is":   {system, v2, map[string]string{dir + "system.slice/scrip.service/memory.max": mb(8192)}, Size{4096 << 20, Whole}},
		"no limit":             {system, v2, map[string]string{dir + "system.slice/scrip.service/memory.max": "max\n"}, Size{4096 << 20, Whole}},
		"a container":          {"0::/\n", v2, map[string]string{dir + "memory.max": mb(512)}, Size{512 << 20, "/"}},
		"its host's names":     {"0::/docker/abc\n", "25 1 0:22 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n", map[string]string{dir + "memory.max": mb(512)}, Size{512 << 20, "/docker/abc"}},
		"another namespace":    {"0::/../other\n", "25 1 0:22 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n", map[string]string{dir + "memory.max": mb(512)}, Size{512 << 20, "/docker/abc"}},
		"v1": {"4:memory:/t\n3:cpu,cpuacct:/\n", v1, map[string]string{dir + "memory/t/memory.limit_in_bytes": mb(512), dir + "memory/memory.limit_in_bytes": noLimit,
			dir + "cpu/t/memory.limit_in_bytes": mb(1)}, Size{512 << 20, "/t"}},
		"v1, nested": {"4:memory:/a/b\n", v1, map[string]string{dir + "memory/a/memory.limit_in_bytes": mb(128), dir + "memory/a/b/memory.limit_in_bytes": noLimit}, Size{128 << 20, "/a"}},
		"v1, none":   {"4:memory:/a\n", v1, map[string]string{dir + "memory/a/memory.limit_in_bytes": noLimit}, Size{4096 << 20, Whole}},
		"v1, out of sight": {"4:memory:/docker/abc\n", "30 25 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			map[string]string{dir + "memory/memory.limit_in_bytes": noLimit, dir + "memory/memory.stat": "cache 1\nhierarchical_memory_limit " + mb(700)}, Size{700 << 20, "/docker/abc"}},
		"hybrid": {"4:memory:/user\n0::/user.slice\n", v1 + "40 25 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			map[string]string{dir + "memory/user/memory.limit_in_bytes": mb(600), dir + "unified/user.slice/cgroup.procs": ""}, Size{600 << 20, "/user"}},
		"a blank in the path": {"0::/a\n", strings.Replace(v2, "/sys/fs/cgroup", `/sys/c\040g`, 1), map[string]string{"sys/c g/a/memory.max": mb(512)}, Size{512 << 20, "/a"}},
		"no files":            {system, v2, nil, Size{4096 << 20, Whole}},
		"no mounts":           {system, "", map[string]string{dir + "memory.max": mb(1)}, Size{4096 << 20, Whole}},
		"nonsense":            {"::\n4:memory\n", "a b - c\n\n" + v2, map[string]string{dir + "memory.max": "much\n"}, Size{4096 << 20, Whole}},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal:        4194304 kB\nMemFree: 1 kB\n")}, "proc/self/cgroup": {Data: []byte(c.groups)}, "proc/self/mountinfo": {Data: []byte(c.mounts)}}
			for file, text := range c.files {
				root[file] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := MemoryOf(root); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			delete(root, "proc/meminfo")
			if got := MemoryOf(root); got != c.want && (c.want.Limit != Whole || got.Bytes != 0 && got.Limit == Whole) {
				t.Errorf("without meminfo: %+v", got)
			}
		})
	}
	if got := MemoryOf(fstest.MapFS{}); got != (Size{}) || got.String() != "unknown" {
		t.Errorf("without files: %+v", got)
	}
}

// TestARealGroup puts a process into a group with a limit.
func TestARealGroup(t *testing.T) {
	if file := os.Getenv("SCRIP_TEST_GROUP"); file != "" {
		got := Memory()
		if err := os.WriteFile(file, []byte(got.String()+" "+got.Limit), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	own := Groups(os.DirFS("/"), "memory")
	if os.Geteuid() != 0 || len(own) == 0 {
		t.Skip("needs root and the memory controller")
	}
	group := filepath.Join("/", own[0].dir, "scrip-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skip(err)
	}
	defer os.Remove(group) //nolint:errcheck // empty by then
	limited := os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), []byte("512M"), 0)
	if limited != nil {
		limited = os.WriteFile(filepath.Join(group, "memory.max"), []byte("512M"), 0)
	}
	if limited != nil {
		t.Skip(limited)
	}
	file := filepath.Join(t.TempDir(), "size")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$1" -test.run '^TestARealGroup$'`, group, os.Args[0])
	cmd.Env = append(os.Environ(), "SCRIP_TEST_GROUP="+file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != "512MB "+filepath.Join(own[0].Name, filepath.Base(group)) {
		t.Errorf("%s, %v", got, err)
	}
}
