package wall

import (
	"time"

	"golang.org/x/sys/unix"
)

// steady is how long the machine has been up, suspended or not.
func steady() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Since(began) // no such clock: a kernel before 2.6.39, or a sandbox
	}
	return time.Duration(t.Nano())
}

var began = time.Now()
