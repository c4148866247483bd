package web

import (
	"net"
	"sync"
	"syscall"
)

const (
	// MaxConns bounds open connections.
	MaxConns = 4096
	// MaxOpsConns bounds those of the listener for operators, which a monitor and some people use.
	MaxOpsConns = 64
	// filesShare is the part of the files that this process may have open which connections may use, as a divisor: JetStream, in
	// the same process, needs the others.
	filesShare = 4
)

// Conns returns how many connections a server of this process may have open: MaxConns, or fewer if the process may not open
// many files.
func Conns() int {
	var files syscall.Rlimit // Go raises the soft limit to the hard one
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return MaxConns
	}
	return int(min(MaxConns, max(1, uint64(files.Cur)/filesShare)))
}

// Limit returns a listener with at most n open connections. It closes further ones at once: a client that waited in line would
// wait for others to be idle, and a load balancer takes another server after a refusal.
func Limit(l net.Listener, n int) net.Listener {
	return &limited{l, make(chan struct{}, n)}
}

// limited is a listener with a limit of open connections.
type limited struct {
	net.Listener
	free chan struct{}
}

// Accept returns the next connection below the limit.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &counted{Conn: c, done: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			_ = c.Close() // too many; the client reads EOF
		}
	}
}

// counted is a connection that frees its slot when it is closed.
type counted struct {
	net.Conn
	done func()
}

// Close closes the connection.
func (c *counted) Close() error {
	defer c.done()
	return c.Conn.Close()
}
