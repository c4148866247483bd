package push

import "sync"

// doneKept is how many finished messages a process remembers at least. A server that was killed loses the acknowledgements of the
// last tenth of a second and delivers those messages again.
const doneKept = 4096

// messageID identifies a message of the log, or an entry of WaitStream about it. The stored time is part of it: a log
// restored from an older backup uses sequences again.
type messageID struct {
	Lane     int    `json:"lane"`
	Sequence uint64 `json:"sequence"`
	Stored   int64  `json:"stored,omitempty"` // ns
	Hop      int    `json:"hop,omitempty"`    // how often it was put into WaitStream, 0 = it is the message of the log
	Line     int    `json:"line,omitempty"`   // the first of the entry's lines, 0 = all; of a dead letter its part, from 0
}

type verdict uint8

const (
	unknown  verdict = iota // start has recorded it as in flight
	inFlight                // a goroutine of this process works on it
	finished                // delivered, a dead letter or in WaitStream; only the ack is missing
)

// tracker tracks which messages are in flight in this process and which it has finished lately. NATS delivers a message
// again after a lost acknowledgement or progress report; such a message is not pushed again.
type tracker struct {
	mu           sync.Mutex
	active       map[messageID]bool
	done, before map[messageID]bool // the latest that were finished, and doneKept before them
}

func newTracker() *tracker {
	return &tracker{active: map[messageID]bool{}, done: map[messageID]bool{}}
}

// start returns what is known of a message, and records it as in flight if that is nothing.
func (t *tracker) start(id messageID) verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.done[id], t.before[id]:
		return finished
	case t.active[id]:
		return inFlight
	}
	t.active[id] = true
	return unknown
}

// finish records that a message needs no more delivery.
func (t *tracker) finish(id messageID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.done) == doneKept {
		t.done, t.before = map[messageID]bool{}, t.done
	}
	t.done[id] = true
}

func (t *tracker) leave(id messageID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.active, id)
}

func (t *tracker) inFlight() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.active)
}
