package streamtest

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

const (
	// dialWait bounds a connection attempt to the target; the target is on this machine.
	dialWait   = 5 * time.Second
	bufferSize = 32 << 10
)

// Link is a TCP proxy in front of one address, which simulates the network between two machines. A cut direction behaves
// as one whose packets are dropped: nothing arrives, not even the end of a connection, and neither side is notified. Bytes in
// flight arrive when the link is healed, unless a side has closed its connection meanwhile. New connections wait.
type Link struct {
	target string
	ln     net.Listener
	there  gate // towards the target
	back   gate // from the target

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil after close
}

// NewLink starts a link to a target, HOST:PORT, which need not listen yet. It listens on a free port of loopback and ends with the
// test.
func NewLink(t testing.TB, target string) *Link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{target: target, ln: ln, conns: map[net.Conn]struct{}{}}
	l.there.moved.L, l.back.moved.L = &l.there.mu, &l.back.mu
	go l.accept()
	t.Cleanup(l.close)
	return l
}

// Addr is HOST:PORT to connect to instead of the target.
func (l *Link) Addr() string { return l.ln.Addr().String() }

// Cut drops what goes to the target, what comes from it, or both. Without either it changes nothing.
func (l *Link) Cut(there, back bool) {
	if there {
		l.there.set(true)
	}
	if back {
		l.back.set(true)
	}
}

// Heal ends all cuts.
func (l *Link) Heal() {
	l.there.set(false)
	l.back.set(false)
}

// Break ends all connections. What is in flight is lost.
func (l *Link) Break() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *Link) accept() {
	for {
		from, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if !l.keep(from) {
			return
		}
		go l.connect(from)
	}
}

// connect joins an accepted connection with one to the target. While a direction is cut a handshake does not come to its end.
func (l *Link) connect(from net.Conn) {
	l.there.pass()
	l.back.pass()
	to, err := net.DialTimeout("tcp", l.target, dialWait)
	if err != nil {
		l.drop(from)
		return
	}
	if !l.keep(to) {
		l.drop(from)
		return
	}
	go l.copy(to, from, &l.there)
	l.copy(from, to, &l.back)
}

// copy moves bytes while the gate is open. The end of one connection ends the other, through the gate as well.
func (l *Link) copy(to, from net.Conn, g *gate) {
	buf := make([]byte, bufferSize)
	for {
		g.pass() // before the read, so that the sender's buffers fill while the link is cut
		n, err := from.Read(buf)
		g.pass()
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				break // the other direction sees the same end, and passes it on through its own gate
			}
		}
		if err != nil {
			l.drop(to)
			break
		}
	}
}

// keep records a connection to be closed with the link; false = the link is closed.
func (l *Link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		_ = c.Close()
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *Link) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	_ = c.Close()
}

// close ends the link and all its connections.
func (l *Link) close() {
	_ = l.ln.Close()
	l.mu.Lock()
	for c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
	l.mu.Unlock()
	l.Heal()
}

// gate blocks passing while shut.
type gate struct {
	mu     sync.Mutex
	closed bool
	moved  sync.Cond // with mu
}

func (g *gate) set(closed bool) {
	g.mu.Lock()
	g.closed = closed
	g.mu.Unlock()
	g.moved.Broadcast()
}

func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.closed {
		g.moved.Wait()
	}
}
