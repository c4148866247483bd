package push

import "sync"

// doneKept is how many finished messages a process remembers. A server that was killed loses the acknowledgements of the
// last tenth of a second and delivers those messages again.
const doneKept = 4096

// messageID identifies a message of the log, or an entry of WaitStream about it. The stored time is part of it: a log
// restored from an older backup uses sequences again.
type messageID struct {
	lane     int
	sequence uint64
	stored   int64 // ns
	hop      int   // how often it was put into WaitStream, 0 = it is the message of the log
	line     int   // the first of the entry's lines, 0 = all
}

type verdict uint8

const (
	unknown  verdict = iota // begin has recorded it as in flight
	inHand                  // a goroutine of this process works on it
	finished                // delivered, a dead letter or in WaitStream; only the ack is missing
)

// tracker tracks which messages are in flight in this process and which it has finished lately. NATS delivers a message
// again after a lost acknowledgement or progress report; such a message is not pushed again.
type tracker struct {
	mu   sync.Mutex
	hand map[messageID]bool
	done map[messageID]bool
	ring []messageID // of done, oldest at next once it is full
	next int
}

func newTracker() *tracker {
	return &tracker{hand: map[messageID]bool{}, done: map[messageID]bool{}}
}

// begin returns what is known of a message, and records it as in flight if that is nothing.
func (d *tracker) begin(p messageID) verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.done[p]:
		return finished
	case d.hand[p]:
		return inHand
	}
	d.hand[p] = true
	return unknown
}

// finish records that a message needs no more delivery.
func (d *tracker) finish(p messageID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done[p] {
		return
	}
	d.done[p] = true
	if len(d.ring) < doneKept {
		d.ring = append(d.ring, p)
		return
	}
	delete(d.done, d.ring[d.next])
	d.ring[d.next] = p
	d.next = (d.next + 1) % doneKept
}

// leave removes a message from those in flight.
func (d *tracker) leave(p messageID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.hand, p)
}

func (d *tracker) inHand() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.hand)
}
