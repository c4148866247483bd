package fanout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// ErrLost: another owner writes the lane's reminder stream. What this scheduler knows may be stale; the lane's lease has to be
// given up and competed for again.
var ErrLost = errors.New("the lane's reminder stream has another writer")

const (
	// MaxWaiting is how many customers may wait before no further events are folded. What one scheduler requests stays below
	// it; a replay, or the requests of another scheduler, may not.
	MaxWaiting = 2 * ChunksInFlight * MaxChunk

	// resolveTimeout bounds reading from the stream which messages were stored; folding waits for it.
	resolveTimeout = 2 * time.Second

	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 5 * time.Second
)

// Fan publishes what a Queue holds: one message after the other, each fenced by the one before it.
//
// The exported fields are set before the first call.
type Fan struct {
	Queue
	Stream    eventlog.Stream
	Appender  *eventlog.Appender
	Pace      *Pace
	Clock     wall.Clock
	Around    func()             // called each time round while all waits for the fan-out: settings may change; nil = nothing
	Published prometheus.Counter // customers
	Total     *atomic.Uint64     // the same, for the load
	Stored    func(sequence uint64)
	Log       *slog.Logger

	window   []*message // in flight, oldest first
	inFlight int        // customers of window

	failed     bool            // something was not acknowledged and is not published again yet
	retry      <-chan struct{} // closed when it is time to go on with that; nil = the stream has to be read first
	unresolved bool            // the stream could not be read
	backoff    time.Duration   // before the last retry
	logged     bool            // that it does not work
}

// message is in flight.
type message struct {
	*eventlog.Pending
	sent      time.Time
	customers int
	alone     bool // nothing else was in flight
}

// Full reports whether no more should be folded for now.
func (f *Fan) Full() bool { return f.waiting >= MaxWaiting }

// Unpublished is how many customers were folded and are not on the stream.
func (f *Fan) Unpublished() int { return f.waiting + f.inFlight }

// Settled reports whether everything folded is on the stream.
func (f *Fan) Settled() bool { return f.waiting == 0 && len(f.window) == 0 }

// Pump publishes what waits as far as pace and window allow, and takes in what was acknowledged. It does not wait, but after a
// failure reads from the stream what was stored. It returns when to pump again at the latest; the zero time if only an
// acknowledgement, or another firing, changes anything.
func (f *Fan) Pump(ctx context.Context) (again time.Time, err error) {
	for {
		if f.failed {
			if err := f.repair(ctx); err != nil || f.failed {
				return again, err
			}
		}
		for len(f.window) > 0 && !f.failed && Closed(f.window[0].Done()) {
			if err := f.take(ctx); err != nil {
				return again, err
			}
		}
		if f.failed {
			continue
		}
		if f.waiting == 0 || len(f.window) >= f.Room() {
			return time.Time{}, ctx.Err()
		}
		ok, again := f.Pace.may(f.Clock.Now(), len(f.window))
		if !ok || ctx.Err() != nil {
			return again, ctx.Err()
		}
		f.publish()
	}
}

// Room is how many messages may be in flight.
func (f *Fan) Room() int {
	if f.Chained {
		return f.Pace.window()
	}
	return 1
}

// publish sends one message of what waits.
func (f *Fan) publish() {
	alone := len(f.window) == 0
	f.Hold = f.Pace.Hold()
	attempt, customers := f.Next(f.Pace.Batch())
	f.inFlight += customers
	f.Published.Add(float64(customers))
	f.Total.Add(uint64(customers))
	// A crash before this: the next fan-out publishes it. After this: it is on the stream, or not, as a whole.
	f.window = append(f.window, &message{f.Appender.PublishAsync(attempt), f.Clock.Now(), customers, alone})
	f.Pace.left(f.Clock.Now())
}

// Drain goes on, at the pace, until at most so many customers wait; for 0, until they are all on the stream.
func (f *Fan) Drain(ctx context.Context, most int) error {
	for {
		if f.Around != nil {
			f.Around()
		}
		again, err := f.Pump(ctx)
		if err != nil {
			return err
		}
		if f.Settled() || most > 0 && f.waiting <= most {
			return nil
		}
		var fires <-chan time.Time
		if !again.IsZero() {
			fires = f.Clock.After(max(again.Sub(f.Clock.Now()), 0))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.Changes():
		case <-fires:
		}
	}
}

// Changes is closed when Pump has something to do because of a message in flight; nil if none is.
func (f *Fan) Changes() <-chan struct{} {
	if f.failed && f.retry != nil {
		return f.retry
	}
	for _, m := range f.window {
		if !f.failed || !Closed(m.Done()) {
			return m.Done()
		}
	}
	return nil
}

// take takes in the result of the oldest message, which is there.
func (f *Fan) take(ctx context.Context) error {
	oldest := f.window[0]
	sequence, err := oldest.Result()
	switch {
	case err != nil:
		return f.fail(ctx, err)
	case sequence != oldest.Attempt.Expected+1:
		return fmt.Errorf("%w: message %d was acknowledged as %d", ErrLost, oldest.Attempt.Expected+1, sequence)
	}
	now := f.Clock.Now()
	if oldest.alone {
		f.Pace.Acked(now, now.Sub(oldest.sent))
	}
	f.backoff, f.logged = 0, false
	f.pop(sequence)
	return nil
}

// pop removes the oldest message, which is stored.
func (f *Fan) pop(sequence uint64) {
	if payload := f.window[0].Attempt.Payload; len(f.spare) < f.Pace.window() {
		f.spare = append(f.spare, payload)
	}
	f.inFlight -= f.window[0].customers
	f.window[0] = nil
	if f.window = f.window[1:]; len(f.window) == 0 {
		f.window = nil
		f.Pace.empty(f.Clock.Now())
	}
	if f.Settled() {
		f.spare = nil // a quiet lane holds nothing
	}
	if f.Stored != nil {
		f.Stored(sequence)
	}
}

// fail starts to recover from a publish whose result is not a plain success: those after it failed with it, or will. What
// was stored is read from the stream; the rest is published again, the same bytes with the same fence, until it is stored or
// the stream turns out to have another writer. Expiries are folded and requested all the while.
func (f *Fan) fail(ctx context.Context, cause error) error {
	if errors.Is(cause, eventlog.ErrTooLarge) {
		return cause
	}
	if f.backoff > 0 && !f.logged && errors.Is(cause, eventlog.ErrNotDurable) {
		f.warn(ctx, cause)
	}
	f.failed, f.retry = true, nil
	return nil
}

func (f *Fan) warn(ctx context.Context, cause error) {
	f.Log.WarnContext(ctx, "fired reminders not published yet; trying again", "stream", f.Stream.Name(), "err", cause)
	f.logged = true
}

// repair does the next step after a failure, if it is time.
func (f *Fan) repair(ctx context.Context) error {
	for _, m := range f.window {
		if !Closed(m.Done()) {
			return nil
		}
	}
	if f.retry == nil {
		unresolved, err := f.resolve(ctx)
		switch {
		case err != nil:
			return err
		case len(f.window) == 0:
			f.failed = false
			return nil
		case unresolved && !f.logged:
			f.warn(ctx, errors.New("the stream does not answer"))
		}
		f.backoff = min(max(2*f.backoff, firstBackoff), lastBackoff)
		retry := make(chan struct{})
		time.AfterFunc(f.backoff, func() { close(retry) })
		f.retry, f.unresolved = retry, unresolved
		return nil
	}
	if !Closed(f.retry) {
		return nil
	}
	f.retry = nil
	if f.unresolved {
		return f.repair(ctx) // reads the stream again
	}
	// What the first one follows is known to be there, so its number is fence enough; and a server that has forgotten the ID of
	// its last message would refuse it for ever.
	f.window[0].Attempt.After = ""
	for _, m := range f.window {
		m.Pending, m.alone = f.Appender.PublishAsync(m.Attempt), false
	}
	f.failed = false // until the next failure
	return nil
}

// resolve takes out of the window what was stored. unresolved means that the stream could not be read.
func (f *Fan) resolve(ctx context.Context) (unresolved bool, err error) {
	short, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	for len(f.window) > 0 {
		attempt := f.window[0].Attempt
		outcome, err := f.Stream.Resolve(short, attempt)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			return true, nil
		case outcome == eventlog.Lost:
			return false, fmt.Errorf("%w: stream %s went on from message %d without us", ErrLost, f.Stream.Name(), attempt.Expected)
		case outcome == eventlog.Unchanged:
			return false, nil
		}
		f.pop(attempt.Expected + 1)
	}
	return false, nil
}

// Closed reports whether the channel is closed.
func Closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
