package push

import (
	"math/bits"
	"time"
)

const (
	// slowdown is how many times as long as usual calls take, on average, when the gateway is slow, and slowFloor what they may take
	// longer at any time.
	slowdown  = 2
	slowFloor = 20 * time.Millisecond
	// recent is the weight of a call in the average of the last ones, and drift that of this average in what is usual: a gateway
	// that has become slower for good is the usual one after some thousand calls.
	recent = 1. / 4
	drift  = 1. / 1000
)

// pace bounds the calls in progress by what the gateway bears: additive increase, multiplicative decrease (Chiu and Jain, 1989),
// as in the congestion control of TCP. Each call that is answered as fast as usual, while as many are in progress as may be,
// raises the bound by 1/bound; calls that fail or take twice as long halve it, once for all that were in progress then. So a
// gateway that is slow or fails gets fewer calls at once, down to one, and what is high waits for few calls before it.
//
// It belongs to one process and one gateway, and is guarded by the gate. A crash loses it: the next process starts at most.
type pace struct {
	most  float64 // Options.Workers
	limit float64
	eased time.Time     // when it was halved last
	calls [10]callTimes // by the logarithm of a call's size
}

// callTimes is how long calls of about one size take.
type callTimes struct{ now, usual time.Duration }

// add takes in a call and reports whether the gateway is slow.
func (c *callTimes) add(took time.Duration) (slow bool) {
	if c.usual == 0 {
		c.now, c.usual = took, took
	}
	c.now += time.Duration(recent * float64(took-c.now))
	if c.now < c.usual {
		c.usual = c.now
	} else {
		c.usual += time.Duration(drift * float64(c.now-c.usual))
	}
	return c.now > slowdown*c.usual+slowFloor
}

// ended takes in a call of so many customers. full: as many were in progress as may be.
func (p *pace) ended(f gatewayState, began, now time.Time, customers int, full bool) {
	slow := f == failed || f == away
	if f == answered && customers > 0 {
		slow = p.calls[min(bits.Len(uint(customers)), len(p.calls)-1)].add(now.Sub(began))
	}
	switch {
	case f == untried:
	case slow && began.After(p.eased): // else it was halved while the call was in progress
		p.limit, p.eased = max(1, p.limit/2), now
	case !slow && full:
		p.limit = min(p.most, p.limit+1/p.limit)
	}
}
