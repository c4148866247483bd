package push

import "sync"

// doneKept is how many finished messages a process remembers. A server killed right after acknowledgements has lost those
// of its last tenth of a second and delivers the messages again.
const doneKept = 4096

// place names a message. The stored time is part of it: a log restored from an older backup gives sequences anew.
type place struct {
	lane     int
	sequence uint64
	stored   int64 // ns
}

type verdict uint8

const (
	unknown  verdict = iota // begun with the question
	inHand                  // somebody here works on it
	finished                // told or a dead letter; only the ack is missing
)

// desk knows what this process has in hand and has lately finished, so that what NATS delivers again, because an
// acknowledgement or a sign of life was lost, is not pushed again.
type desk struct {
	mu   sync.Mutex
	hand map[place]bool
	// failed counts the tries that failed here, of messages that come again. Those that others finished stay in it until it
	// is full; what is dropped then is counted anew.
	failed map[place]int
	done   map[place]bool
	ring   []place // of done, oldest at next once it is full
	next   int
}

func newDesk() *desk {
	return &desk{hand: map[place]bool{}, failed: map[place]int{}, done: map[place]bool{}}
}

// begin says what is known of a message, and takes it in hand if that is nothing.
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

// finish remembers that nobody is to be told any more.
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

// leave takes a message out of hand.
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
