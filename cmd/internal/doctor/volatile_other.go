//go:build !linux

package doctor

// volatile is true if a directory is in memory, which only Linux reports here.
func volatile(string) bool { return false }
