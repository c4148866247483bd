// Package machine is how large the machine is for this process: what its control group, each group above it and the
// machine itself allow it.
//
//	/proc/self/cgroup     the process's group in each hierarchy  ──┐
//	/proc/self/mountinfo  where hierarchies are, cgroup v1 or v2 ──┴──> Groups, the innermost first ──> the smallest limit
//	/proc/meminfo         the machine                            ─────────────────────────────────────────┘
//
// A container with a cgroup namespace sees its own group as /, and nothing above it; systemd's MemoryMax= is a limit of
// a group below the root. Both are found by the same two files. Owner: nobody, the package only reads; a crash loses
// nothing.
package machine

import (
	"bufio"
	"bytes"
	"cmp"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Whole is the Limit of a process that no control group limits.
const Whole = "machine"

// Size is how much memory this process may use.
type Size struct {
	Bytes int64 // 0 = unknown
	// Limit is the control group that limits it, such as /system.slice/scrip.service, or Whole; "" = unknown.
	Limit string
}

// String is the size in MB, as PostgreSQL has it.
func (s Size) String() string {
	if s.Bytes == 0 {
		return "unknown"
	}
	return strconv.FormatInt(s.Bytes>>20, 10) + "MB"
}

// Memory is how much memory this process may use now.
func Memory() Size {
	if s := MemoryOf(os.DirFS("/")); s.Bytes != 0 {
		return s
	}
	out, _ := exec.Command("sysctl", "-n", "hw.memsize").Output() // systems without /proc
	total, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return Size{}
	}
	return Size{total, Whole}
}

// MemoryOf is Memory by the files below a root directory.
func MemoryOf(root fs.FS) Size {
	least := Size{total(root), Whole}
	if least.Bytes == 0 {
		least = Size{math.MaxInt64, ""}
	}
	// memory.high is where the kernel slows the group down. hierarchical_memory_limit is of groups above, which may not
	// be visible.
	for _, g := range Groups(root, "memory") {
		for _, text := range []string{g.Read("memory.max"), g.Read("memory.high"), g.Read("memory.limit_in_bytes"), field(g.Read("memory.stat"), "hierarchical_memory_limit")} {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 && n < least.Bytes { // "max" = no limit
				least = Size{n, g.Name}
			}
		}
	}
	if least.Limit == "" {
		return Size{}
	}
	return least
}

// total is the memory of the machine, 0 = unknown.
func total(root fs.FS) int64 {
	raw, _ := fs.ReadFile(root, "proc/meminfo")
	kib, _ := strconv.ParseInt(strings.TrimSuffix(field(string(raw), "MemTotal:"), " kB"), 10, 64)
	return kib << 10
}

// field is what follows a name on its line.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, name+" "); found {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// Group is a control group in one hierarchy.
type Group struct {
	Name string // as in /proc/self/cgroup
	root fs.FS
	dir  string
}

// Read returns the text of one of the group's files, "" where there is none.
func (g Group) Read(file string) string {
	raw, _ := fs.ReadFile(g.root, path.Join(g.dir, file))
	return strings.TrimSpace(string(raw))
}

// Groups are the control groups of this process that may have files of a controller: its own and those above it, of v1
// and v2. An outer group comes after those in it.
func Groups(root fs.FS, controller string) (all []Group) {
	own := owned(root, controller)
	raw, _ := fs.ReadFile(root, "proc/self/mountinfo")
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		// 36 35 98:0 /root /where options… - type source options
		before, after, _ := strings.Cut(lines.Text(), " - ")
		mount, kind := strings.Fields(before), strings.Fields(after)
		if len(mount) < 5 || len(kind) < 3 {
			continue
		}
		name, found := own[kind[0]]
		if !found || kind[0] == "cgroup" && !slices.Contains(strings.Split(kind[2], ","), controller) {
			continue
		}
		top, where := plain(mount[3]), plain(mount[4])
		if name != top && !strings.HasPrefix(name, strings.TrimSuffix(top, "/")+"/") {
			name = top // a namespace hides the way to the group: its mount is the nearest that is known
		}
		for ; ; name = path.Dir(name) {
			all = append(all, Group{name, root, cmp.Or(strings.TrimPrefix(path.Join(where, strings.TrimPrefix(name, top)), "/"), ".")})
			if name == top || name == "/" {
				break
			}
		}
	}
	return all
}

// owned is the name of the process's group by the type of a hierarchy's file system.
func owned(root fs.FS, controller string) map[string]string {
	names := map[string]string{}
	raw, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(raw)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3) // number, controllers, name
		switch {
		case len(parts) < 3:
		case parts[0] == "0" && parts[1] == "":
			names["cgroup2"] = path.Clean("/" + parts[2])
		case slices.Contains(strings.Split(parts[1], ","), controller):
			names["cgroup"] = path.Clean("/" + parts[2])
		}
	}
	return names
}

// plain undoes the escapes of mountinfo: a blank is \040.
func plain(text string) string {
	for i := 0; i+4 <= len(text); i++ {
		if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); text[i] == '\\' && err == nil {
			text = text[:i] + string([]byte{byte(n)}) + text[i+4:]
		}
	}
	return text
}
