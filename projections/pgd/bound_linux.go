package pgd

import (
	"golang.org/x/sys/unix"

	"github.com/seed-4a2410e3/scrip/streams/machine"
)

const (
	// backendPart of the memory is what one process of PostgreSQL may have of its own, within these bounds; shared buffers do not count.
	backendPart               = 32
	leastBackend, mostBackend = 384 * mebibyte, 2048 * mebibyte
)

// bound has the future children of a postmaster fail with "out of memory" in one statement, before the machine has none left: work_mem
// is a setting that every session may change, and is used more than once in a statement. Errors are ignored: PostgreSQL works
// without it.
func bound(pid int) {
	most := backendMemory(machine.Memory().Bytes)
	_ = unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: most, Max: most}, nil)
}

// backendMemory is the bound on a machine with that much memory, 0 = unknown.
func backendMemory(memory int64) uint64 {
	return uint64(min(max(memory/backendPart, leastBackend), mostBackend))
}
