package push

import "sync"

// doneKept is how many finished messages a process remembers. A server that was killed loses the acknowledgements of the
// last tenth of a second and delivers those messages again.
const doneKept = 4096

// place identifies a message. The stored time is part of it: a log restored from an older backup uses sequences again.
type place struct {
	lane     int
	sequence uint64
	stored   int64 // ns
}

type verdict uint8

const (
	unknown  verdict = iota // begin has recorded it as in flight
	inHand                  // a goroutine of this process works on it
	finished                // delivered or a dead letter; only the ack is missing
)

// desk tracks which messages are in flight in this process and which it has finished lately. NATS delivers a message
// again after a lost acknowledgement or progress report; such a message is not pushed again.
type desk struct {
	mu   sync.Mutex
	hand map[place]bool
	// failed counts the tries that failed here. Entries of messages that another process finished stay until it is full;
	// a message whose entry was dropped starts at 0 again.
	failed map[place]int
	done   map[place]bool
	ring   []place // of done, oldest at next once it is full
	next   int
}

func newDesk() *desk {
	return &desk{hand: map[place]bool{}, failed: map[place]int{}, done: map[place]bool{}}
}

// begin returns what is known of a message, and records it as in flight if that is nothing.
func (d *desk) begin(p place) verdict {
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
func (d *desk) finish(p place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.failed, p)
	d.done[p] = true
	if len(d.ring) < doneKept {
		d.ring = append(d.ring, p)
		return
	}
	delete(d.done, d.ring[d.next])
	d.ring[d.next] = p
	d.next = (d.next + 1) % doneKept
}

// fail counts a failed try, and returns how many have failed here.
func (d *desk) fail(p place) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.failed[p]; !known && len(d.failed) >= doneKept {
		for other := range d.failed {
			delete(d.failed, other)
			break
		}
	}
	d.failed[p]++
	return d.failed[p]
}

// leave removes a message from those in flight.
func (d *desk) leave(p place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.hand, p)
}

func (d *desk) inHand() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.hand)
}
