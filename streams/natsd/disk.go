package natsd

import "syscall"

const (
	// minRoom is how much a disk must have free, in bytes, before JetStream is restarted on it: some blocks of the log.
	minRoom = 64 << 20
	// lowRoom is the free space below which JetStream is stopped, while everything acknowledged is stored and there is space
	// left for the shutdown.
	lowRoom = 16 << 20
)

// freeBytes returns what an unprivileged process may still write to the disk of dir; 0 if unknown.
func freeBytes(dir string) uint64 {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0
	}
	return fs.Bavail * uint64(fs.Bsize)
}
