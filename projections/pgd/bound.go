package pgd

import (
	"fmt"
	"runtime"

	"github.com/seed-4a2410e3/scrip/streams/machine"
)

const (
	// backendPart of the memory is what one process of PostgreSQL may have of its own, within these bounds; shared
	// buffers do not count.
	backendPart               = 32
	leastBackend, mostBackend = 384 * mebibyte, 2048 * mebibyte
)

// backendMemory is the bound on a machine with that much memory, 0 = unknown.
func backendMemory(memory int64) int64 {
	return min(max(memory/backendPart, leastBackend), mostBackend)
}

// bounded runs a program so that one statement fails with "out of memory" before the machine has none left: work_mem is
// a setting that every session may change, and is used more than once in a statement. The processes of PostgreSQL
// inherit the limit from pg_ctl. It is a shell that sets it: a program can set that of another user with a privilege
// only that containers lack. Elsewhere than on Linux the limit does not count what PostgreSQL allocates.
func bounded(program string, args ...string) (string, []string) {
	if runtime.GOOS != "linux" {
		return program, args
	}
	script := fmt.Sprintf(`ulimit -d %d; exec "$0" "$@"`, backendMemory(machine.Memory().Bytes)/1024)
	return "/bin/sh", append([]string{"-c", script, program}, args...)
}
