package domain

import (
	"syscall"
	"testing"
	"time"
)

// cpuClock is the processor time of this process, collector included: on a busy machine it is more
// meaningful than wall time. Not to be started twice.
type cpuClock struct{ began, sum time.Duration }

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (c *cpuClock) start() { c.began = processorTime() }

func (c *cpuClock) stop() {
	if c.began != 0 {
		c.sum += processorTime() - c.began
	}
	c.began = 0
}

func (c *cpuClock) report(b *testing.B, lines int) {
	b.ReportMetric(float64(c.sum.Nanoseconds())/float64(b.N)/float64(lines), "cpu-ns/line")
}
