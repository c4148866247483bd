package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// ErrLost: another owner writes the lane's reminder stream. What this scheduler knows may be behind; give the lease up
// and compete for it again.
var ErrLost = errors.New("the lane's reminder stream has another writer")

const (
	// fanCustomers is the most customers one message tells. At their longest they are a fourth of a message's limit.
	fanCustomers = 500
	// fanWindow is how many messages may be on their way, so that a million reminders do not wait for two thousand
	// acknowledgements in turn. Together they stay far below what a server buffers for a stream.
	fanWindow = 64

	fanPauseFirst = 50 * time.Millisecond
	fanPauseLast  = 5 * time.Second
)

// fan publishes what fires, in the order of the event stream: one message after the other, each behind the one before
// it (the fence), and each saying how far it comes (its source). That is all the memory it needs: whatever dies when,
// the next fan reads the last message and goes on behind its source, so every customer stands on the stream once.
type fan struct {
	stream   eventlog.Stream
	appender *eventlog.Appender
	owner    string
	last     uint64                // sequence the stream ends with when all of window has landed
	reached  eventlog.Source       // how far the stream comes when all of window has landed
	window   []*eventlog.Pending   // oldest first
	landed   func(sequence uint64) // nil but in tests
	count    prometheus.Counter    // customers
	log      *slog.Logger
}

// expand publishes whom a reminders.due event tells: line (from 1) of the event message m. What the stream holds
// already is passed over.
func (f *fan) expand(ctx context.Context, m *eventlog.Message, line int, ev *domain.Event, fired []firing) error {
	here := eventlog.Source{Sequence: m.Sequence, Line: line}
	switch c := compareLines(here, f.reached); {
	case c < 0:
		return nil
	case c == 0:
		for len(fired) > 0 && fired[0].r <= f.reached.LastR {
			fired = fired[1:]
		}
	}
	if len(fired) == 0 {
		return nil
	}
	digest := m.Digest()
	due := domain.Event{Type: domain.ReminderDue, Campaign: ev.Campaign, At: ev.At, Kind: ev.Kind, DueAt: ev.DueAt}
	for len(fired) > 0 {
		some := fired[:min(len(fired), fanCustomers)]
		fired = fired[len(some):]
		var payload []byte
		for _, s := range some {
			due.CustomerID = s.customer
			payload = append(due.AppendJSON(payload), '\n')
		}
		here.LastR = some[len(some)-1].r
		header := eventlog.Header{Owner: f.owner, Source: here, SourceDigest: digest}
		if err := f.publish(ctx, here, eventlog.Attempt{Expected: f.last, Header: header.Encode(), Payload: payload}); err != nil {
			return err
		}
		f.count.Add(float64(len(some)))
	}
	return nil
}

func (f *fan) publish(ctx context.Context, to eventlog.Source, attempt eventlog.Attempt) error {
	for len(f.window) >= fanWindow {
		if err := f.land(ctx); err != nil {
			return err
		}
	}
	// A crash before this: the next fan publishes it. After this: it stands on the stream, or not, as a whole.
	f.window = append(f.window, f.appender.PublishAsync(attempt))
	f.last++
	f.reached = to
	return nil
}

// settle waits until everything published has landed.
func (f *fan) settle(ctx context.Context) error {
	for len(f.window) > 0 {
		if err := f.land(ctx); err != nil {
			return err
		}
	}
	return nil
}

// land waits for the oldest message on its way.
func (f *fan) land(ctx context.Context) error {
	oldest := f.window[0]
	select {
	case <-oldest.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	sequence, err := oldest.Result()
	switch {
	case err != nil:
		return f.recover(ctx, err)
	case sequence != oldest.Attempt.Expected+1:
		return fmt.Errorf("%w: message %d was acknowledged as %d", ErrLost, oldest.Attempt.Expected+1, sequence)
	}
	f.pop(sequence)
	return nil
}

func (f *fan) pop(sequence uint64) {
	f.window = f.window[1:]
	if f.landed != nil {
		f.landed(sequence)
	}
}

// recover goes on after a publish whose result is not a plain success: those behind it failed with it, or will. What
// landed is found out from the stream; the rest is published again, the same bytes with the same fence, until it lands
// or the stream turns out to have another writer.
func (f *fan) recover(ctx context.Context, cause error) error {
	pause := fanPauseFirst
	said := false
	for {
		if errors.Is(cause, eventlog.ErrTooLarge) {
			return cause
		}
		for _, p := range f.window {
			select {
			case <-p.Done():
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		unsure, err := f.resolve(ctx)
		if err != nil {
			return err
		}
		if len(f.window) == 0 {
			return nil
		}
		if !said && (unsure || errors.Is(cause, eventlog.ErrNotDurable)) {
			f.log.WarnContext(ctx, "fired reminders not published yet; trying again", "stream", f.stream.Name(), "err", cause)
			said = true
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, fanPauseLast)
		if unsure {
			continue
		}
		for i, p := range f.window {
			f.window[i] = f.appender.PublishAsync(p.Attempt)
		}
		oldest := f.window[0]
		select {
		case <-oldest.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, cause = oldest.Result(); cause == nil {
			return nil // the others are waited for in their turn
		}
	}
}

// resolve takes out of the window what has landed. unsure means that the stream could not be asked.
func (f *fan) resolve(ctx context.Context) (unsure bool, err error) {
	for len(f.window) > 0 {
		attempt := f.window[0].Attempt
		outcome, err := f.stream.Resolve(ctx, attempt)
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

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
