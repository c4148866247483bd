package replay

import (
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// Place is where an event stands. With the log's UUID it names the event for ever.
type Place struct {
	Lane     int
	Sequence uint64 // of the event message
	Line     int    // within it, from 1; empty lines count
}

// Event is one event line. Place and wire.Event both have a Sequence and a Line (those of wire.Event belong to the
// command a command.rejected tells of), so say which: e.Place.Sequence.
type Event struct {
	Place
	wire.Event
	// Raw is the line as the log holds it, without its newline.
	Raw []byte
}

// Batch is what a sink takes at once: the events of one lane that passed the filter, from whole messages in log order.
// Nothing of it may be kept after Write returns.
type Batch struct {
	Lane int
	// First and Last are the sequences of the messages the batch is made of, whether or not an event of theirs passed.
	First, Last uint64
	Events      []Event
	// To is the place behind which the lane goes on once the batch is kept.
	To eventlog.Position
	// Clock is the lane's clock at To.
	Clock wire.Instant
}

// counts says which counters an event has, be they zero: redeemed_count; count; fired and dropped.
func counts(t wire.EventType) (redeemed, count, reminders bool) {
	return t == wire.CouponRedeemed || t == wire.CouponRolledBack, t == wire.CouponsExpired, t == wire.RemindersDue
}

// expires is when what the event tells of ends: a coupon, or a campaign.
func (e *Event) expires() wire.Instant {
	if e.ExpiresAt != 0 {
		return e.ExpiresAt
	}
	return e.Settings.ExpiresAt
}
