package streamtest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports are chosen below the range that the kernel uses for outgoing connections: a server that restarts
// must find its port free again.
const (
	lowestPort  = 15000
	highestPort = 32000
)

// Address returns host and port for a server that restarts on it. The port is free now.
func Address(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(freePorts(t, 1)[0]))
}

// freePorts finds ports that are free now. They are held until all are found, so that they differ.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for len(ports) < n {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue // taken
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, port)
	}
	return ports
}
