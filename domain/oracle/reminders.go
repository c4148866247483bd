package oracle

import (
	"fmt"
	"hash/maphash"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Reminder is one reminder. There may be millions.
type Reminder struct {
	Customer string
	Before   wire.Instant // microseconds
	Due      wire.Instant // Never = none; does not change after it fired or was dropped
	N        uint32
	Expires  bool // of kind expires, else opens
	State    State
}

// State is the state of a reminder.
type State uint8

// The states.
const (
	Pending State = iota
	Fired
	Cancelled
	Dropped
)

// String is the state's name in SQL.
func (s State) String() string { return [...]string{"pending", "fired", "cancelled", "dropped"}[s] }

// Kind is the kind's name in the contract.
func (r *Reminder) Kind() string {
	if r.Expires {
		return wire.KindExpires
	}
	return wire.KindOpens
}

// Tally counts reminders. By promise 4, Set is the sum of the next four, and Published becomes equal to Fired; a Fold leaves
// Published 0, because it does not read SCRIP_RMD.
type Tally struct{ Set, Fired, Cancelled, Dropped, Pending, Published uint64 }

func (t Tally) String() string {
	return fmt.Sprintf("%d set, %d fired, %d cancelled, %d dropped, %d pending", t.Set, t.Fired, t.Cancelled, t.Dropped, t.Pending)
}

func (t *Tally) add(s State, n uint64) {
	*[...]*uint64{&t.Pending, &t.Fired, &t.Cancelled, &t.Dropped}[s] += n
}

// Tally counts the campaign's reminders by state.
func (c *Campaign) Tally() Tally {
	t := Tally{Set: uint64(len(c.Reminders))}
	for i := range c.Reminders {
		t.add(c.Reminders[i].State, 1)
	}
	return t
}

// Tally counts all reminders.
func (f *Fold) Tally() Tally {
	var sum Tally
	for _, c := range f.Campaigns {
		t := c.Tally()
		sum.Set, sum.Fired, sum.Cancelled = sum.Set+t.Set, sum.Fired+t.Fired, sum.Cancelled+t.Cancelled
		sum.Dropped, sum.Pending = sum.Dropped+t.Dropped, sum.Pending+t.Pending
	}
	return sum
}

// Overdue counts the pending reminders that are due at now or before.
func (f *Fold) Overdue(now wire.Instant) (n int) {
	for _, c := range f.Campaigns {
		for i := range c.Reminders {
			if r := &c.Reminders[i]; r.State == Pending && r.Due <= now {
				n++
			}
		}
	}
	return n
}

// CheckTallies compares the counts of the events with the states of the reminders.
func (f *Fold) CheckTallies() {
	for _, c := range f.Campaigns {
		states, events := c.Tally(), c.events
		events.Pending = events.Set - events.Fired - events.Cancelled - events.Dropped
		if states != events {
			f.Violate("reminders of %s: by their states %s, by their events %s", c.Name, states, events)
		}
	}
}

// Firing is one reminders.due event.
type Firing struct {
	Campaign       string
	At, Due        wire.Instant
	Fired, Dropped uint64
}

// applyReminder checks promise 4: at most once, never early, never after a cancel.
func (f *Fold) applyReminder(where any, c *Campaign, ev *wire.Event) {
	switch ev.Type {
	case wire.ReminderSet:
		f.set(where, c, ev)
	case wire.ReminderCancelled:
		c.events.Cancelled++
		r := c.Reminder(ev.R)
		if r == nil || r.State != Pending {
			f.Violate("%s: reminder %d of %s is cancelled, but was not pending", where, ev.R, c.Name)
			return
		}
		c.end(r, Cancelled)
	case wire.RemindersDue:
		f.applyDue(where, c, ev)
	}
}

func (f *Fold) set(where any, c *Campaign, ev *wire.Event) {
	c.events.Set++
	if c.Reminder(ev.R) != nil {
		f.Violate("%s: reminder %d of %s is set twice", where, ev.R, c.Name)
		return
	}
	if ev.R != uint64(len(c.Reminders)+1) {
		f.Violate("%s: reminder %d of %s follows %d", where, ev.R, c.Name, len(c.Reminders))
		return
	}
	customer := ev.CustomerID
	if customer == "" {
		customer = f.setAgain(where, c, ev)
	}
	r := Reminder{Customer: customer, Expires: ev.Kind == wire.KindExpires, Before: wire.Instant(ev.Before.Microseconds()), N: ev.N}
	r.Due = c.due(&r)
	if written := ev.DueAt; r.Due != written && (r.Due != wire.Never || written != 0 || ev.CustomerID != "") {
		f.Violate("%s: reminder %d of %s is due at %s, the event has %s", where, ev.R, c.Name, r.Due, ev.DueAt)
	}
	if r.Due <= ev.At {
		f.Violate("%s: reminder %d of %s is due at %s, which has passed", where, ev.R, c.Name, r.Due)
	}
	if other, there := c.pending[r.key()]; there {
		f.Violate("%s: reminder %d of %s is equal to reminder %d, which is pending", where, ev.R, c.Name, other)
	}
	if r.N != 0 && int(r.N) <= len(c.Coupons) {
		k := c.Coupons[r.N-1]
		k.reminders = append(k.reminders, ev.R)
		if k.Customer != r.Customer {
			f.Violate("%s: reminder %d of %s is %s's, and of coupon %d, which is %s's", where, ev.R, c.Name, r.Customer, r.N, k.Customer)
		}
	}
	c.pending[r.key()] = ev.R
	c.Reminders = append(c.Reminders, r)
}

// setAgain finds whom a reminder is for that is set again: the holder of the coupon, whose redemption cancelled one like it.
func (f *Fold) setAgain(where any, c *Campaign, ev *wire.Event) (customer string) {
	if ev.N == 0 || int(ev.N) > len(c.Coupons) {
		f.Violate("%s: reminder %d of %s has no customer", where, ev.R, c.Name)
		return ""
	}
	k := c.Coupons[ev.N-1]
	for _, number := range k.reminders {
		if r := c.Reminder(number); r.State == Cancelled && r.Before == wire.Instant(ev.Before.Microseconds()) {
			return k.Customer
		}
	}
	f.Violate("%s: reminder %d of %s is set again, but no equal one was cancelled", where, ev.R, c.Name)
	return k.Customer
}

// applyDue fires or drops the reminders of the event.
func (f *Fold) applyDue(where any, c *Campaign, ev *wire.Event) {
	c.events.Fired, c.events.Dropped = c.events.Fired+ev.Fired, c.events.Dropped+ev.Dropped
	f.Firings = append(f.Firings, Firing{Campaign: c.Name, At: ev.At, Due: ev.DueAt, Fired: ev.Fired, Dropped: ev.Dropped})
	if ev.DueAt > ev.At {
		f.Violate("%s: reminders of %s fire before they are due", where, c.Name)
	}
	if (ev.Fired == 0) == (ev.Dropped == 0) {
		f.Violate("%s: of reminders of %s %d fired and %d were dropped", where, c.Name, ev.Fired, ev.Dropped)
	}
	n := uint64(0)
	for number := max(ev.FromR, 1); number <= min(ev.ThroughR, uint64(len(c.Reminders))); number++ {
		r := c.Reminder(number)
		if r.State != Pending || r.Due != ev.DueAt || r.Kind() != ev.Kind || ev.Passed != 0 && r.Due+r.Before > ev.Passed {
			continue
		}
		n++
		if ev.Dropped > 0 {
			c.end(r, Dropped)
			continue
		}
		if r.N != 0 && int(r.N) <= len(c.Coupons) {
			k := c.Coupons[r.N-1]
			if k.Voided || k.Count >= c.Settings.MaxRedemptions {
				f.Violate("%s: reminder %d of %s fires for coupon %d, which is %s", where, number, c.Name, k.N, c.StatusOf(k))
			}
			if k.Customer != r.Customer {
				f.Violate("%s: reminder %d of %s fires for %s, but coupon %d is %s's", where, number, c.Name, r.Customer, k.N, k.Customer)
			}
		}
		c.end(r, Fired)
		if f.Fired != nil {
			f.Fired(c, number)
		}
	}
	if n != ev.Fired+ev.Dropped {
		f.Violate("%s: %d reminders of %s were due, the event has %d", where, n, c.Name, ev.Fired+ev.Dropped)
	}
}

// Reminder finds one by its number, nil if there is none.
func (c *Campaign) Reminder(r uint64) *Reminder {
	if r == 0 || r > uint64(len(c.Reminders)) {
		return nil
	}
	return &c.Reminders[r-1]
}

func (c *Campaign) end(r *Reminder, s State) {
	r.State = s
	delete(c.pending, r.key())
}

// key must be unique among pending reminders.
func (r *Reminder) key() uint64 {
	return maphash.Comparable(seed, struct {
		customer string
		before   wire.Instant
		n        uint32
		expires  bool
	}{r.Customer, r.Before, r.N, r.Expires})
}

// replan computes the due instants of those of these reminders that are pending.
func (c *Campaign) replan(numbers []uint64) {
	for _, n := range numbers {
		if r := c.Reminder(n); r.State == Pending {
			r.Due = c.due(r)
		}
	}
}

// replanAll does so for all of the campaign.
func (c *Campaign) replanAll() {
	for i := range c.Reminders {
		if r := &c.Reminders[i]; r.State == Pending {
			r.Due = c.due(r)
		}
	}
}

// due is a reminder's due instant, Never if the instant that it announces is not known.
func (c *Campaign) due(r *Reminder) wire.Instant {
	anchor := c.Settings.OpensAt
	if r.Expires {
		anchor = 0
		if r.N == 0 || int(r.N) > len(c.Coupons) {
			return wire.Never
		}
		if at := c.Expires(c.Coupons[r.N-1]); at != wire.Never {
			anchor = at
		}
	}
	if anchor == 0 {
		return wire.Never
	}
	return anchor - r.Before
}
