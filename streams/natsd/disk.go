package natsd

import "syscall"

// minRoom is how much a disk must have free, in bytes, before JetStream is started on it again: some blocks of the log.
const minRoom = 64 << 20

func roomToWrite(dir string) bool {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return false
	}
	return fs.Bavail*uint64(fs.Bsize) >= minRoom
}
