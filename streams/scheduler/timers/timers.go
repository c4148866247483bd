package timers

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidwall/btree"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
)

// Timers are the due instants of a lane: for each campaign when its coupons expire and which reminders are pending. They are
// the fold of the lane's event stream and of nothing else, so timers read from a snapshot and timers replayed from the
// first event are the same. They know no clock, and do no I/O but on the files of customers.
type Timers struct {
	campaigns map[string]*Campaign
	list      []*Campaign // the same, in the order of their creation
	// order holds every campaign by the instant at which the planner must look at it, so that finding the next one costs a
	// walk down a tree and never a scan over campaigns.
	order     *btree.BTreeG[*Campaign]
	customers segments
	claims    claimReader
	reminders int      // pending, over all campaigns
	instants  int      // at which coupons are still to expire, over all campaigns
	rs        []uint64 // of the firing that is folded
	freezing  *Frozen  // nil if none is half done
	epoch     uint32   // rises with each freeze
}

// New makes empty timers that keep customers in files in dir, "" = os.TempDir. The first is made when there are many.
func New(dir string) *Timers {
	return &Timers{
		customers: segments{dir: dir},
		campaigns: make(map[string]*Campaign),
		order: btree.NewBTreeGOptions(func(a, b *Campaign) bool {
			if a.wake != b.wake {
				return a.wake < b.wake
			}
			return a.Name < b.Name
		}, btree.Options{NoLocks: true}),
	}
}

// Close releases the files. Nothing frozen may be read after it. It may be called on nil.
func (b *Timers) Close() {
	if b != nil {
		b.customers.close()
	}
}

// Campaign is the campaign of that name, nil if none was created.
func (b *Timers) Campaign(name string) *Campaign { return b.campaigns[name] }

func (b *Timers) Campaigns() int { return len(b.list) }

// Reminders is the number of pending reminders, over all campaigns.
func (b *Timers) Reminders() int { return b.reminders }

// Instants is the number of instants at which coupons are still to expire, over all campaigns.
func (b *Timers) Instants() int { return b.instants }

// Size is the number of things that a snapshot holds.
func (b *Timers) Size() int { return b.reminders + b.instants + len(b.campaigns) }

// First is the campaign with the earliest wake instant, nil if there is no campaign.
func (b *Timers) First() *Campaign {
	c, _ := b.order.Min()
	return c
}

func (b *Timers) add(name string) *Campaign {
	e := &Campaign{Name: name, epoch: b.epoch}
	b.campaigns[name] = e
	b.list = append(b.list, e)
	b.order.Set(e)
	return e
}

func (b *Timers) SetWake(e *Campaign, at wire.Instant) {
	if at != e.wake {
		b.order.Delete(e)
		e.wake = at
		b.order.Set(e)
	}
}

// WakeBy makes the wake instant of a campaign the given one, if that is earlier.
func (b *Timers) WakeBy(e *Campaign, at wire.Instant) {
	if at < e.wake {
		b.SetWake(e, at)
	}
}

// Fold applies one event. gone is what a reminders.due event fired or dropped, by rising number, and the caller's to keep.
// An error means that customers could not be written or read (ErrDisk), or that the event does not fit what came before:
// the stream is not the one that these timers were folded from.
func (b *Timers) Fold(ev *wire.Event) (gone []Fired, err error) {
	switch ev.Type {
	case wire.CommandsRefused, wire.CommandRejected:
		return nil, nil
	case wire.CampaignCreated:
		if b.campaigns[ev.Campaign] != nil {
			return nil, fmt.Errorf("campaign %s is created twice", ev.Campaign)
		}
		b.anchor(b.add(ev.Campaign), &ev.Settings)
		return nil, nil
	}
	e := b.campaigns[ev.Campaign]
	if e == nil {
		return nil, fmt.Errorf("%s of campaign %q, which was never created", ev.Type, ev.Campaign)
	}
	b.touch(e)
	switch ev.Type {
	case wire.CampaignUpdated:
		b.anchor(e, &ev.Settings)
	case wire.CouponsAllotted:
		if ev.ExpiresAt != 0 { // which of them it is matters to reminders only, and they have none
			b.expiresAt(e, ev.ExpiresAt)
		}
	case wire.CouponClaimed:
		b.ownExpiry(e, ev.N, ev.ExpiresAt)
	case wire.CouponExtended:
		b.ownExpiry(e, ev.N, ev.ExpiresAt)
		e.restorable.Move(ev.N, ev.ExpiresAt)
		if e.pending.Len() > 0 && len(e.pending.OfCoupon(ev.N)) > 0 {
			e.pending.Move(ev.N, ev.ExpiresAt)
			b.SetWake(e, 0)
		}
	case wire.CouponsExpired:
		b.expired(e, ev.Through)
	case wire.ReminderSet:
		err = b.set(e, ev)
	case wire.ReminderCancelled:
		was, ok := e.pending.Get(ev.R)
		if !ok {
			return nil, fmt.Errorf("%s of campaign %s: reminder %d is not pending", ev.Type, e.Name, ev.R)
		}
		e.pending.Cancel(ev.R)
		if ev.Restorable() {
			e.restorable.Set(was.R, was.Kind, was.Before, was.N, was.Own)
		} else {
			b.customers.remove(e.customers, ev.R)
		}
		b.release(e, 1)
	case wire.RemindersDue:
		gone, err = b.fire(e, ev)
	default:
		if ev.Type.Spec().Due {
			err = errNoRule
		}
	}
	if err == nil {
		err = b.customers.compact()
	}
	if err != nil {
		return nil, fmt.Errorf("%s of campaign %s: %w", ev.Type, e.Name, err)
	}
	return gone, nil
}

// errNoRule is the error of an event that may change what is due, and that Fold has no rule for.
var errNoRule = errors.New("this version has no rule for it")

func (b *Timers) set(e *Campaign, ev *wire.Event) error {
	if ev.R == 0 || ev.R > reminder.MaxReminder {
		return fmt.Errorf("reminder %d, expected 1 to %d", ev.R, uint64(reminder.MaxReminder))
	}
	customer := ev.CustomerID
	if ev.Zone != "" {
		customer += zoneMark + ev.Zone
	}
	if customer == "" {
		was, ok := e.restorable.FindOfCoupon(ev.N, ev.Before)
		if !ok {
			return fmt.Errorf("reminder %d is set again, but no redemption of coupon %d cancelled it", ev.R, ev.N)
		}
		e.restorable.Cancel(was)
		of, err := b.customers.fire(e.customers, []uint64{was})
		if err != nil {
			return err
		}
		customer = of[0].Customer
	}
	if e.customers == nil {
		e.customers = &customerList{kept: e.remembers}
	}
	if err := b.customers.add(e.customers, uint32(ev.R), customer); err != nil {
		return err
	}
	own := e.ownExpiryOf(ev)
	e.pending.Set(ev.R, ev.Kind, ev.Before, ev.N, own) // as a rule a new one: the customers' numbers rise
	b.reminders++
	b.WakeBy(e, reminder.DueAt(ev.Kind, ev.Before, own, e.Anchors))
	return nil
}

// fire removes what fired, and returns the customers.
func (b *Timers) fire(e *Campaign, ev *wire.Event) ([]Fired, error) {
	all, each := e.pending.Leads(ev.DueSet(), e.Anchors)
	rs := e.pending.Fire(ev.DueSet(), e.Anchors, b.rs[:0])
	if b.rs = rs; cap(rs) > 1<<20 {
		b.rs = nil // once in a while millions fire at once
	}
	if len(rs) == 0 {
		return nil, nil
	}
	gone, err := b.customers.fire(e.customers, rs)
	if err != nil {
		return nil, err
	}
	for i := range gone {
		if gone[i].Before = all; each != nil {
			gone[i].Before = each[gone[i].R]
		}
	}
	b.release(e, len(gone))
	return gone, nil
}

func (b *Timers) release(e *Campaign, n int) {
	b.reminders -= n
	if e.customers.empty() {
		e.customers = nil
	}
}

// touch is called before anything of e changes that a snapshot holds: a freeze that is half done copies it as it is.
func (b *Timers) touch(e *Campaign) {
	if e.epoch != b.epoch && b.freezing != nil {
		b.freezing.take(e)
	}
}

// anchor sets the instants that reminders and coupons of the campaign depend on. Moving one moves no reminder: they are found
// by their anchor.
func (b *Timers) anchor(e *Campaign, s *wire.Settings) {
	b.instants -= e.dueInstants()
	e.Anchors = reminder.Anchors{Opens: s.OpensAt, Expires: s.ExpiresAt}
	e.Priority, e.LateAfter = priority.Of(s.Priority), s.LateAfter
	b.instants += e.dueInstants()
	b.SetWake(e, 0)
}

// ownExpiry sets the instant at which coupon n expires, 0 = with its campaign. The instant before stays among those to come:
// announcing it announces no coupon, which costs a line and no bookkeeping per coupon.
func (b *Timers) ownExpiry(e *Campaign, n uint32, at wire.Instant) {
	if at == 0 {
		e.own.remove(n)
		return
	}
	e.own.add(n)
	b.expiresAt(e, at)
}

// expiresAt adds an instant at which coupons expire.
func (b *Timers) expiresAt(e *Campaign, at wire.Instant) {
	if at <= e.expiredThrough || at == e.newest {
		return
	}
	if e.instants.insert(at) {
		b.instants++
	}
	e.newest = at
	b.WakeBy(e, at)
}

// ownExpiryOf is the own expiry of the coupon that a reminder.set event's subscription depends on, 0 if it has none: the
// lane worked out due_at from it, so it is the lead time after due_at, to the microsecond. (The lane refuses what would
// be due in the past or never, so nothing was cut off there, and both sides drop the same parts of a microsecond.)
func (e *Campaign) ownExpiryOf(ev *wire.Event) wire.Instant {
	if ev.N == 0 || !e.own.has(ev.N) {
		return 0
	}
	return ev.DueAt + wire.Instant(ev.Before/time.Microsecond)
}

// expired records that everything up to through has been announced.
func (b *Timers) expired(e *Campaign, through wire.Instant) {
	if through <= e.expiredThrough {
		return
	}
	b.instants -= e.dueInstants()
	e.expiredThrough = through
	e.instants.forget(through)
	if e.restorable.Next(e.Anchors) <= through {
		b.rs = b.rs[:0]
		e.restorable.FireThrough(through, e.Anchors, &b.rs)
		for _, r := range b.rs {
			b.customers.remove(e.customers, r)
		}
		b.release(e, 0)
	}
	if e.newest <= through {
		e.newest = 0
	}
	b.instants += e.dueInstants()
}

// FoldLine applies one line of an event message where that needs no parser: lines that change nothing here, and claims with an
// expiry of their own. False if the line has to be parsed and given to Fold. A replay does eight such lines in the time of
// one other.
func (b *Timers) FoldLine(line []byte) bool {
	return b.claims.fold(b, line) || !wire.MayChangeDue(line)
}

// claimReader takes the two numbers that matter from a claim with an expiry of its own: where coupons live for some time from
// their claim, nearly every line of a busy lane is one. It reads the line as this program writes it; any other line is
// parsed, with the same result.
//
//	{"type":"coupon.claimed","campaign":"summer","at":"…","id":"…","n":17,"code":"…", … ,"expires_at":"…"}
//
// It remembers the last expiry: claims of one minute have the same.
type claimReader struct {
	stamp string
	at    wire.Instant
}

func (c *claimReader) fold(b *Timers, line []byte) bool {
	campaign, n, stamp, ok := wire.ClaimParts(line)
	if !ok {
		return false
	}
	e := b.campaigns[string(campaign)]
	if e == nil {
		return false // Fold returns the error
	}
	if string(stamp) != c.stamp {
		s := string(stamp)
		at, err := wire.ParseInstant(s)
		if err != nil {
			return false
		}
		c.stamp, c.at = s, at
	}
	b.touch(e)
	b.ownExpiry(e, n, c.at)
	return true
}
