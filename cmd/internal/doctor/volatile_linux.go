package doctor

import "syscall"

// Numbers of file systems in memory, from linux/magic.h.
const (
	tmpfsMagic = 0x01021994
	ramfsMagic = 0x858458f6
)

// volatile is true if a directory is in memory.
func volatile(dir string) bool {
	var s syscall.Statfs_t
	err := syscall.Statfs(dir, &s)
	return err == nil && (uint64(s.Type) == tmpfsMagic || uint64(s.Type) == ramfsMagic)
}
