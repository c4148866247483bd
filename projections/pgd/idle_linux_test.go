package pgd

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Backends that are made idle have the policy; other processes, the postmaster too, keep theirs.
func TestIdleBackends(t *testing.T) {
	t.Parallel()
	c, url := supervised(t, testOptions(madeDir(t)))
	conn := connect(t, url)
	backend := 0
	streamtest.Must(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&backend))
	pids := []int{backend, c.PID(), os.Getpid()}
	c.Idle(pids)
	for i, want := range []uint32{unix.SCHED_IDLE, unix.SCHED_NORMAL, unix.SCHED_NORMAL} {
		attr, err := unix.SchedGetAttr(pids[i], 0)
		streamtest.Must(t, err)
		streamtest.Equal(t, "policy", attr.Policy, want)
	}
	streamtest.Must(t, conn.Ping(t.Context()))
}
