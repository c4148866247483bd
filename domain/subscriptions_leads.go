package domain

import "time"

// series says what a group hangs on, and so which groups fall due one after the other.
type series uint8

const (
	atOpening series = iota // kind opens: the campaign's opening
	atEnd                   // kind expires: the campaign's end
	atOwn                   // kind expires: the coupon's own expiry
	numSeries = 3
	manyLeads = 16
)

// lead is a lead time in a series. Customers choose it, so there are a few, and there may be as many as subscriptions.
type lead struct {
	before Instant // microseconds
	series series
	groups uint32 // that have it; 0 = free
}

func microseconds(d time.Duration) Instant { return Instant(d / time.Microsecond) }

// leadOf is what a subscription's group has for a lead.
func leadOf(expires bool, before time.Duration, own Instant) lead {
	l := lead{before: microseconds(before)}
	switch {
	case expires && own != 0:
		l.series = atOwn
	case expires:
		l.series = atEnd
	}
	return l
}

// key is the place of a group in the order of its series: when it falls due, counted from the campaign's anchor if it
// hangs on that.
func (l lead) key(own Instant) Instant {
	switch {
	case l.series != atOwn:
		return -l.before
	case own == Never:
		return Never
	}
	return own - l.before
}

// leadTable numbers the leads. What is free is used again.
type leadTable struct {
	list  []lead
	free  []uint32
	known map[lead]uint32 // groups left 0; nil while there are few
}

func (t *leadTable) find(l lead) (i uint32, ok bool) {
	if t.known != nil {
		i, ok = t.known[l]
		return i, ok
	}
	for i, x := range t.list {
		if x.groups > 0 && x.before == l.before && x.series == l.series {
			return uint32(i), true
		}
	}
	return 0, false
}

func (t *leadTable) add(l lead) uint32 {
	i := uint32(len(t.list))
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
		t.list[i] = l
	} else {
		t.list = append(t.list, l)
	}
	if t.known == nil && len(t.list) > manyLeads {
		t.known = make(map[lead]uint32)
		for i, x := range t.list {
			if x.groups > 0 {
				t.known[lead{before: x.before, series: x.series}] = uint32(i)
			}
		}
	}
	if t.known != nil {
		t.known[l] = i
	}
	return i
}

// leave says that a group with lead i is no more.
func (t *leadTable) leave(i uint32) {
	x := &t.list[i]
	if x.groups--; x.groups > 0 {
		return
	}
	t.free = append(t.free, i)
	if t.known != nil {
		delete(t.known, lead{before: x.before, series: x.series})
	}
}
