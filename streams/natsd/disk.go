package natsd

import "syscall"

const (
	// minRoom is how much a disk must have free, in bytes, before JetStream is started on it again: some blocks of the
	// log.
	minRoom = 64 << 20
	// lowRoom is below which JetStream is stopped, while what it has acknowledged is whole and there is room left to
	// stop in.
	lowRoom = 16 << 20
)

// freeBytes is what an unprivileged process may still write to the disk of dir; 0 if that cannot be found out.
func freeBytes(dir string) uint64 {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0
	}
	return fs.Bavail * uint64(fs.Bsize)
}
