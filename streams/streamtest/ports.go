package streamtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Ports are chosen below the range that the kernel uses for outgoing connections: a server that restarts
// must find its port free again. Private PostgreSQL clusters and cmd/internal/cluster take their
// ports above these, without a lock.
const (
	lowestPort  = 15000
	highestPort = 20000
)

// Address returns host and port for a server that restarts on it. The port is the test's until it ends.
func Address(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(freePorts(t, 1)[0]))
}

// freePorts reserves ports that are free now, for this test alone until it ends. Tests of other packages run at the
// same time: that a port is free now does not keep it free until the server listens, nor while the server restarts.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	locks := filepath.Join(os.TempDir(), fmt.Sprintf("scrip-test-ports-%d", os.Getuid()))
	if err := os.MkdirAll(locks, 0o700); err != nil {
		t.Fatal(err)
	}
	var ports []int
	for len(ports) < n {
		if port := lowestPort + rand.IntN(highestPort-lowestPort); reserve(t, locks, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// reserve locks the port's file. The kernel ends the lock with the process, so a test that is killed leaves none. Only
// the owner of the lock probes the port: a probe is in the way of a server that starts.
func reserve(t testing.TB, locks string, port int) bool {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(locks, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		_ = lock.Close()
		return false // another test's
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		_ = lock.Close()
		return false // another program's
	}
	_ = l.Close()
	t.Cleanup(func() {
		_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_UN) // a child between fork and exec has the file, too
		_ = lock.Close()
	})
	return true
}
