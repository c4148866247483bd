package wall

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME, the monotonic clock that counts while the machine is suspended.
const clockBoottime = 7

// steady returns how long the machine has been up, suspended or not.
func steady() time.Duration {
	var t syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		return time.Since(started) // no such clock: a kernel before 2.6.39, or a sandbox
	}
	return time.Duration(t.Nano())
}

var started = time.Now()
