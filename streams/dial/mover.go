package dial

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// A connection moves after nobody was found through it for leaveAfter, and up to leaveSpread more by chance, so that
	// many clients do not move at once. An election, in which a stream has nobody either, takes 4 to 9 seconds.
	leaveAfter  = 3 * time.Second
	leaveSpread = 3 * time.Second
	// stayFor is how long a connection stays where it moved to, whatever it finds there.
	stayFor = 15 * time.Second
)

// Mover moves a connection to another node when requests find nobody through this one: a node that is cut off from the
// other nodes still answers its clients' pings, but reaches no stream and no service. Any number of goroutines may use it.
// With one node it does nothing.
type Mover struct {
	nc *nats.Conn

	searching atomic.Bool // nobody was found last; Found looks at this alone while somebody is

	mu    sync.Mutex
	leave time.Time // when to move if nobody is found until then; zero while somebody is
	stay  time.Time
}

// NewMover makes a mover for a connection.
func NewMover(nc *nats.Conn) *Mover { return &Mover{nc: nc} }

// Found notes that a request was answered.
func (m *Mover) Found() {
	if !m.searching.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leave = time.Time{}
	m.searching.Store(false)
}

// Nobody notes that a request found no responders, and moves the connection if that has been so for some seconds. What is
// under way on the connection is lost then, as with any reconnect.
func (m *Mover) Nobody() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	switch {
	case m.leave.IsZero():
		m.leave = now.Add(leaveAfter + rand.N(leaveSpread))
		m.searching.Store(true)
	case now.Before(m.leave) || now.Before(m.stay):
	case len(m.nc.Servers()) > 1 && m.nc.ForceReconnect() == nil:
		m.leave, m.stay = time.Time{}, now.Add(stayFor)
	}
}
