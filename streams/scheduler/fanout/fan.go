package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
)

// ErrLost: another owner writes the lane's reminder stream. What this scheduler knows may be behind; give the lease up
// and compete for it again.
var ErrLost = errors.New("the lane's reminder stream has another writer")

const (
	// fanFull is how many customers may wait in the fan-out before no further events are read. What this scheduler asks
	// for stays below it; a replay, or the asks of another scheduler, may not.
	fanFull = 2 * chunksInFlight * maxChunk

	// fanResolve is how long the stream is asked what became of messages; folding waits for it.
	fanResolve = 2 * time.Second

	fanPauseFirst = 50 * time.Millisecond
	fanPauseLast  = 5 * time.Second
)

// fan publishes what fires, in the order of the event stream: one message after the other, each behind the one before
// it (the fence), and each saying how far it comes (its source: the event line and number of its last customer). That is
// all the memory it needs: whatever dies when, the next fan reads the last message and goes on behind its source, so
// every customer stands on the stream once.
//
//	fold ──expand──> firings that wait ──pump──> messages on their way (the window) ──> landed
//
// A message is of customers, not of firings: it takes up what is there, of several event lines, messages and campaigns.
type fan struct {
	stream   eventlog.Stream
	appender *eventlog.Appender
	owner    string
	pace     *pace
	now      func() time.Time
	timer    func(time.Duration) (<-chan time.Time, func())
	around   func() // called each time round while everything waits for the fan-out: settings may change

	// chained says that messages name the one before them, so that several may be on their way. The fence compares numbers,
	// not writers: the first could be refused because another fan-out's came before it, and the second, whose number fits
	// then, would stand behind that one, which tells of others. A stream of several copies cannot do that (see
	// eventlog.Attempt): there one is on its way at a time.
	chained bool
	sealer  eventlog.Sealer
	sealed  uint64          // where sealing of the stream began, or begins with what is on its way; 0 = it did not
	last    uint64          // sequence the stream ends with when all of window has landed
	lastID  string          // of that message, if it is ours and chained
	reached eventlog.Source // how far the stream comes when all of window has landed
	window  []*shipment     // oldest first
	queue   []expansion     // folded, in order; not yet in a message
	waiting int             // customers of queue
	flying  int             // customers of window
	spare   [][]byte        // payloads of what landed, to be used again
	widest  int             // bytes of the largest payload so far

	ill    bool            // something was not acknowledged and is not published again yet
	mended <-chan struct{} // closed when it is time to go on with that; nil = the stream is to be asked first
	unsure bool            // the stream could not be asked
	pause  time.Duration   // before the last try
	said   bool            // that it does not work

	landed func(sequence uint64) // nil but in tests
	count  prometheus.Counter    // customers
	told   *atomic.Uint64        // the same
	log    *slog.Logger
}

// shipment is a message on its way.
type shipment struct {
	*eventlog.Pending
	sent  time.Time
	told  int  // customers
	alone bool // nothing else was on its way
}

// expansion is an event line whose customers are to be told.
type expansion struct {
	source eventlog.Source // LastR is not set
	digest string          // of the event message
	line   dueLine
	fired  []timers.Fired // not yet in a message
}

// expand takes in whom a reminders.due event tells: line (from 1) of the event message m. What the stream holds already
// is passed over.
func (f *fan) expand(m *eventlog.Message, line int, ev *domain.Event, fired []timers.Fired) {
	here := eventlog.Source{Sequence: m.Sequence, Line: line}
	switch c := compareLines(here, f.reached); {
	case c < 0:
		return
	case c == 0:
		for len(fired) > 0 && fired[0].R <= f.reached.LastR {
			fired = fired[1:]
		}
	}
	if len(fired) == 0 {
		return
	}
	digest := ""
	if n := len(f.queue); n > 0 && f.queue[n-1].source.Sequence == m.Sequence {
		digest = f.queue[n-1].digest
	} else {
		digest = m.Digest()
	}
	f.queue = append(f.queue, expansion{source: here, digest: digest, line: newDueLine(ev), fired: fired})
	f.waiting += len(fired)
}

// full says that no more should be folded for now.
func (f *fan) full() bool { return f.waiting >= fanFull }

// untold is how many customers were folded and do not stand on the stream.
func (f *fan) untold() int { return f.waiting + f.flying }

// settled says that everything folded stands on the stream.
func (f *fan) settled() bool { return f.waiting == 0 && len(f.window) == 0 }

// pump publishes what waits as far as the pace and the window allow, and takes in what has landed. It does not wait, but
// after a failure asks the stream what landed. It returns when to pump again, at the latest; the zero time if only a message that
// lands, or another firing, changes anything.
func (f *fan) pump(ctx context.Context) (again time.Time, err error) {
	for {
		if f.ill {
			if err := f.mend(ctx); err != nil || f.ill {
				return again, err
			}
		}
		for len(f.window) > 0 && !f.ill && over(f.window[0].Done()) {
			if err := f.land(ctx); err != nil {
				return again, err
			}
		}
		if f.ill {
			continue
		}
		if f.waiting == 0 || len(f.window) >= f.room() {
			return time.Time{}, ctx.Err()
		}
		ok, again := f.pace.may(f.now(), len(f.window))
		if !ok || ctx.Err() != nil {
			return again, ctx.Err()
		}
		f.publish()
	}
}

// room is how many messages may be on their way.
func (f *fan) room() int {
	if f.chained {
		return f.pace.window()
	}
	return 1
}

// publish sends one message of what waits.
func (f *fan) publish() {
	alone := len(f.window) == 0
	attempt, told := f.next()
	// A crash before this: the next fan publishes it. After this: it stands on the stream, or not, as a whole.
	f.window = append(f.window, &shipment{f.appender.PublishAsync(attempt), f.now(), told, alone})
	f.pace.left(f.now())
}

// next takes a message of what waits, and of how many customers it tells.
func (f *fan) next() (attempt eventlog.Attempt, told int) {
	var payload []byte
	if n := len(f.spare); n > 0 {
		payload, f.spare = f.spare[n-1][:0], f.spare[:n-1]
	} else {
		payload = make([]byte, 0, f.widest+f.widest/8)
	}
	var to eventlog.Source
	var digest string
	for room := f.pace.batch(); room > 0 && len(f.queue) > 0; {
		next := &f.queue[0]
		some := next.fired[:min(len(next.fired), room)]
		for i := range some {
			payload = next.line.append(payload, some[i].Customer)
		}
		to, digest = next.source, next.digest
		to.LastR = some[len(some)-1].R
		room -= len(some)
		told += len(some)
		if next.fired = next.fired[len(some):]; len(next.fired) == 0 {
			f.queue[0] = expansion{}
			f.queue = f.queue[1:]
		}
	}
	if len(f.queue) == 0 {
		f.queue = nil
	}
	f.waiting -= told
	f.flying += told
	f.widest = max(f.widest, len(payload))
	header := eventlog.Header{Owner: f.owner, Source: to, SourceDigest: digest}
	attempt = eventlog.Attempt{Expected: f.last, Header: f.sealer.Encode(header, f.sealed, f.last+1, payload), Payload: payload}
	f.last++
	if f.sealed == 0 && f.sealer.Seals() {
		f.sealed = f.last
	}
	if f.chained {
		attempt.After, f.lastID = f.lastID, f.owner+"-"+strconv.FormatUint(f.last, 10)
		attempt.ID = f.lastID
	}
	f.reached = to
	f.count.Add(float64(told))
	f.told.Add(uint64(told))
	return attempt, told
}

// settle publishes what waits, at the pace, and waits until all of it has landed.
func (f *fan) settle(ctx context.Context) error { return f.drain(ctx, 0) }

// drain goes on until at most so many customers wait; for 0, until they all stand on the stream.
func (f *fan) drain(ctx context.Context, most int) error {
	for {
		if f.around != nil {
			f.around()
		}
		again, err := f.pump(ctx)
		if err != nil {
			return err
		}
		if f.settled() || most > 0 && f.waiting <= most {
			return nil
		}
		if err := f.wait(ctx, again); err != nil {
			return err
		}
	}
}

// wait waits for the oldest message to land, or for the time, where it is not zero.
func (f *fan) wait(ctx context.Context, until time.Time) error {
	var fires <-chan time.Time
	if !until.IsZero() {
		timer, release := f.timer(max(until.Sub(f.now()), 0))
		defer release()
		fires = timer
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.changes():
	case <-fires:
	}
	return nil
}

// changes is closed when pump has something to do because of a message on its way; nil if none is.
func (f *fan) changes() <-chan struct{} {
	if f.ill && f.mended != nil {
		return f.mended
	}
	for _, p := range f.window {
		if !f.ill || !over(p.Done()) {
			return p.Done()
		}
	}
	return nil
}

// land takes in the result of the oldest message, which is there.
func (f *fan) land(ctx context.Context) error {
	oldest := f.window[0]
	sequence, err := oldest.Result()
	switch {
	case err != nil:
		return f.fail(ctx, err)
	case sequence != oldest.Attempt.Expected+1:
		return fmt.Errorf("%w: message %d was acknowledged as %d", ErrLost, oldest.Attempt.Expected+1, sequence)
	}
	now := f.now()
	if oldest.alone {
		f.pace.acked(now, now.Sub(oldest.sent))
	}
	f.pause, f.said = 0, false
	f.pop(sequence)
	return nil
}

func (f *fan) pop(sequence uint64) {
	if payload := f.window[0].Attempt.Payload; len(f.spare) < f.pace.window() {
		f.spare = append(f.spare, payload)
	}
	f.flying -= f.window[0].told
	f.window[0] = nil
	if f.window = f.window[1:]; len(f.window) == 0 {
		f.window = nil
		f.pace.empty(f.now())
	}
	if f.settled() {
		f.spare = nil // a quiet lane holds nothing
	}
	if f.landed != nil {
		f.landed(sequence)
	}
}

// fail begins to mend after a publish whose result is not a plain success: those behind it failed with it, or will. What
// landed is found out from the stream; the rest is published again, the same bytes with the same fence, until it lands or
// the stream turns out to have another writer. Expiries are folded and asked for meanwhile.
func (f *fan) fail(ctx context.Context, cause error) error {
	if errors.Is(cause, eventlog.ErrTooLarge) {
		return cause
	}
	if f.pause > 0 && !f.said && errors.Is(cause, eventlog.ErrNotDurable) {
		f.say(ctx, cause)
	}
	f.ill, f.mended = true, nil
	return nil
}

func (f *fan) say(ctx context.Context, cause error) {
	f.log.WarnContext(ctx, "fired reminders not published yet; trying again", "stream", f.stream.Name(), "err", cause)
	f.said = true
}

// mend does the next thing after a failure, if it is time.
func (f *fan) mend(ctx context.Context) error {
	for i, p := range f.window {
		if !over(p.Done()) {
			return nil
		} else if i == len(f.window)-1 && f.mended == nil {
			unsure, err := f.resolve(ctx)
			switch {
			case err != nil:
				return err
			case len(f.window) == 0:
				f.ill = false
				return nil
			case unsure && !f.said:
				f.say(ctx, errors.New("the stream does not answer"))
			}
			f.pause = min(max(2*f.pause, fanPauseFirst), fanPauseLast)
			mended := make(chan struct{})
			time.AfterFunc(f.pause, func() { close(mended) })
			f.mended, f.unsure = mended, unsure
			return nil
		}
	}
	if !over(f.mended) {
		return nil
	}
	f.mended = nil
	if f.unsure {
		return f.mend(ctx) // asks the stream again
	}
	// What the first one follows is known to stand there, so its number says enough; and a server that has forgotten the ID
	// of its last message would refuse it for ever.
	f.window[0].Attempt.After = ""
	for _, p := range f.window {
		p.Pending, p.alone = f.appender.PublishAsync(p.Attempt), false
	}
	f.ill = false // until the next failure
	return nil
}

// over says whether the channel is closed.
func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// resolve takes out of the window what has landed. unsure means that the stream could not be asked.
func (f *fan) resolve(ctx context.Context) (unsure bool, err error) {
	short, cancel := context.WithTimeout(ctx, fanResolve)
	defer cancel()
	for len(f.window) > 0 {
		attempt := f.window[0].Attempt
		outcome, err := f.stream.Resolve(short, attempt)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			return true, nil
		case outcome == eventlog.Lost:
			return false, fmt.Errorf("%w: stream %s went on from message %d without us", ErrLost, f.stream.Name(), attempt.Expected)
		case outcome == eventlog.Unchanged:
			return false, nil
		}
		f.pop(attempt.Expected + 1)
	}
	return false, nil
}
