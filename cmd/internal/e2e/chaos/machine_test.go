package chaos

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ticks of CPU time, of all cores, since the machine started.
type ticks struct {
	all  uint64
	busy uint64 // steal by other machines included
	own  uint64 // of this process and its descendants, those that have ended and were waited for included
}

// lookAtMachine reads the counters. Where there is no /proc they are zero.
func lookAtMachine() ticks {
	var t ticks
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	for i, field := range strings.Fields(line)[1:] {
		n, _ := strconv.ParseUint(field, 10, 64)
		if i >= 8 { // guest time, which user time contains
			break
		}
		t.all += n
		if i != 3 && i != 4 { // idle, and idle while a disk works
			t.busy += n
		}
	}
	used, children := map[int]uint64{}, map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// PID (NAME) STATE PPID …; the name may hold anything.
		text := string(raw)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
		for _, field := range fields[11:15] { // utime, stime and those of children
			n, _ := strconv.ParseUint(field, 10, 64)
			used[pid] += n
		}
	}
	for family := []int{os.Getpid()}; len(family) > 0; family = family[1:] {
		t.own += used[family[0]]
		family = append(family, children[family[0]]...)
	}
	return t
}

// others is the share of all cores that was used by other processes since an earlier look.
func (t ticks) others(since ticks) float64 {
	all, busy, own := t.all-since.all, t.busy-since.busy, t.own-since.own
	if all == 0 || own >= busy {
		return 0
	}
	return float64(busy-own) / float64(all)
}
