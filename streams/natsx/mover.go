package natsx

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A connection moves when no request was answered through it for leaveAfter, and up to leaveSpread more at random, so that
	// many clients do not move at once. An election, during which a stream does not answer, takes 4 to 9 seconds: waiting for
	// its end first would add the time of a move to that of the election on a node that is cut off.
	leaveAfter  = 2 * time.Second
	leaveSpread = 2 * time.Second
	// stayFor is the pause after every node was tried once without an answer.
	stayFor = 15 * time.Second
)

// Conn is what a Mover needs of a connection; *nats.Conn is one.
type Conn interface {
	IsConnected() bool
	// Servers returns the URLs of all nodes that are known.
	Servers() []string
	// ForceReconnect leaves the node for the next one.
	ForceReconnect() error
}

// Mover moves a connection to another node when no request is answered through this one. A node that is cut off from the
// other nodes still answers its clients' pings; requests through it find no responders, or are lost: on routes that are not
// closed yet, and at streams that this node still believes to lead, which it does for 10 s.
//
// Several users of one connection share one mover, so that an answer to one of them keeps the connection where it is. Any
// number of goroutines may use it. With one node, and on a nil Mover, it does nothing.
type Mover struct {
	nc Conn

	searching atomic.Bool // the last request was not answered; Answered reads only this in the usual case

	mu    sync.Mutex
	leave time.Time // time of the move if nothing is answered until then; zero while requests are answered
	moves int       // since the last answer
}

// NewMover makes a mover for a connection.
func NewMover(nc Conn) *Mover { return &Mover{nc: nc} }

// Answered records an answer from something that a cut-off node does not reach: a stream or a service.
func (m *Mover) Answered() {
	if m == nil || !m.searching.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leave, m.moves = time.Time{}, 0
	m.searching.Store(false)
}

// Unanswered records that a request found no responders or was not answered in time, and moves the connection if that has
// been so for some seconds. Messages in flight on the connection are lost then, as with any reconnect.
func (m *Mover) Unanswered() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.nc.IsConnected() {
		return // it is between nodes already
	}
	now := time.Now()
	if m.leave.IsZero() {
		m.leave = now.Add(patience())
		m.searching.Store(true)
		return
	}
	if now.Before(m.leave) {
		return
	}
	nodes := len(m.nc.Servers())
	if nodes < 2 {
		return
	}
	go m.nc.ForceReconnect() // it flushes, which takes seconds on a link that swallows bytes, and callers hold locks
	m.moves++
	m.leave = now.Add(patience())
	if m.moves >= nodes { // every node was tried, this one included
		m.moves, m.leave = 0, now.Add(stayFor)
	}
}

// patience returns how long a node may answer nothing.
func patience() time.Duration { return leaveAfter + rand.N(leaveSpread) }
