package replay

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Sink writes what is replayed. One Run uses it, from one goroutine: Begin, then Write and Flush, then End.
type Sink interface {
	// Begin prepares for a log's events under a filter, and returns the position after which each lane continues. Lanes
	// without a position begin where the filter begins. After an error End is not called.
	Begin(ctx context.Context, log topology.Log, filter *Filter) (map[int]eventlog.Position, error)
	// Write writes a batch, completely or not at all. After an error only End is called.
	Write(ctx context.Context, b *Batch) error
	// Flush makes what was written visible. It is called when no more messages have arrived.
	Flush(ctx context.Context) error
	// End releases all resources. cause is nil if all was replayed, or following was ended; otherwise it is the error.
	// An all-or-nothing sink removes its output if cause is not nil.
	End(ctx context.Context, cause error) error
}

// Func is a sink that calls a function with each batch, from the first event on. It stores no position: each run begins
// again.
func Func(write func(ctx context.Context, b *Batch) error) Sink { return funcSink(write) }

type funcSink func(ctx context.Context, b *Batch) error

func (f funcSink) Begin(context.Context, topology.Log, *Filter) (map[int]eventlog.Position, error) {
	return nil, nil
}
func (f funcSink) Write(ctx context.Context, b *Batch) error { return f(ctx, b) }
func (f funcSink) Flush(context.Context) error               { return nil }
func (f funcSink) End(context.Context, error) error          { return nil }

// saver is a sink that saves its position less often than it is flushed.
type saver interface {
	// due returns after how long Flush must be called again, even if nothing was written; 0 = never.
	due() time.Duration
}

// Position is the position of an event. With the log's UUID it identifies the event permanently.
type Position struct {
	Lane     int
	Sequence uint64 // of the event message
	Line     int    // within it, from 1; empty lines count
}

// Event is one event line. Position and wire.Event both have a Sequence and a Line (those of wire.Event belong to
// the command that a command.rejected refers to): use e.Position.Sequence.
type Event struct {
	Position
	wire.Event
	// Raw is the line as it is in the log, without its newline.
	Raw []byte
}

// Batch holds the events of one lane that passed the filter, from whole messages in log order. A sink must not retain
// any part of it after Write returns.
type Batch struct {
	Lane int
	// First and Last are the sequences of the first and last message in the batch, whether or not an event of theirs
	// passed the filter.
	First, Last uint64
	Events      []Event
	// To is the position after which the lane continues once the batch is written.
	To eventlog.Position
	// Clock is the lane time at To.
	Clock wire.Instant
}

// counts returns which counters an event has, even if zero: redeemed_count; count; fired and dropped.
func counts(t wire.EventType) (redeemed, count, reminders bool) {
	return t == wire.CouponRedeemed || t == wire.CouponRolledBack, t == wire.CouponsExpired, t == wire.RemindersDue
}

// expires returns when the event's coupon or campaign expires, 0 if it has no such field.
func (e *Event) expires() wire.Instant {
	if e.ExpiresAt != 0 {
		return e.ExpiresAt
	}
	return e.Settings.ExpiresAt
}
