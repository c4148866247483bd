package main

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Machine describes hardware and system.
type Machine struct {
	Cores      int    `json:"cores"`
	CPU        string `json:"cpu"`
	Memory     string `json:"memory"`
	System     string `json:"system"`
	Filesystem string `json:"filesystem"`
	Go         string `json:"go"`
}

const unknown = "unknown"

// thisMachine reads /proc. dir is where the servers write.
func thisMachine(dir string) Machine {
	m := Machine{Cores: runtime.NumCPU(), CPU: unknown, Memory: unknown, System: runtime.GOOS + "/" + runtime.GOARCH, Filesystem: filesystemOf(dir), Go: runtime.Version()}
	if model := lineAfter("/proc/cpuinfo", "model name"); model != "" {
		m.CPU = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(model), ":"))
	}
	if kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(lineAfter("/proc/meminfo", "MemTotal:")), " kB"), 10, 64); err == nil {
		m.Memory = strconv.FormatInt((kib+1<<19)>>20, 10) + " GiB"
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += " " + strings.TrimSpace(string(release))
	}
	return m
}

// lineAfter is the rest of the first line with that prefix.
func lineAfter(path, begin string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), begin); ok {
			return rest
		}
	}
	return ""
}

// filesystemOf is the type and the options of a directory's mount.
func filesystemOf(dir string) string {
	if dir == "" {
		dir = os.TempDir()
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	mounts, readErr := os.ReadFile("/proc/mounts")
	if err != nil || readErr != nil {
		return unknown
	}
	best, kind := -1, unknown
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line) // device, directory, type, options
		if len(f) < 4 {
			continue
		}
		at := strings.TrimSuffix(f[1], "/")
		if (dir == at || strings.HasPrefix(dir, at+"/")) && len(at) >= best {
			best, kind = len(at), f[2]+" ("+f[3]+")"
		}
	}
	return kind
}

// loadAverage of the last minute, five and fifteen.
func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return unknown
	}
	f := strings.Fields(string(raw))
	return strings.Join(f[:min(3, len(f))], " ")
}
