package replay

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// reading is the state of reading one lane.
type reading struct {
	*run
	lane    int
	stream  eventlog.Stream
	matcher *matcher
	// last is the sequence at which catching up ends: the last message when the replay started. Up to silent, messages
	// only update the filter's memory and are not written.
	last, silent uint64

	reader  *eventlog.Reader
	at      eventlog.Position // the last message taken
	over    bool              // the filter selects no later event
	foreign uint64            // of reader, already counted
}

// start returns what to read of a lane. at is the sink's position, the zero Position if it has none for the lane.
func (r *run) start(ctx context.Context, lane int, at eventlog.Position) (*reading, error) {
	f := &r.opts.Filter
	l := &reading{run: r, lane: lane, stream: eventlog.Events(r.js, lane).In(r.log), matcher: newMatcher(f),
		at: eventlog.Position{Log: r.log.UUID, Lane: lane}}
	if r.opts.Narrow {
		l.stream = l.stream.Narrow()
	}
	bounds, err := l.stream.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	l.last = bounds.Last
	if to, limited := f.To[lane]; limited {
		l.last = min(l.last, to)
	}
	after := uint64(0)
	switch {
	case at.Sequence != 0:
		if err := l.stream.Verify(ctx, r.log.UUID, at); err != nil {
			return nil, explainPosition(at, err)
		}
		after = at.Sequence
	case f.From[lane] > 0:
		if after = f.From[lane] - 1; after > bounds.Last {
			return nil, invalid("from", "lane %d ends with message %d; give at most %d:%d", lane, bounds.Last, lane, bounds.Last+1)
		}
	case f.Since != 0:
		if after, err = lastBefore(ctx, l.stream, bounds, f.Since); err != nil {
			return nil, err
		}
	}
	switch {
	case f.Customer != "": // read from the start
		l.silent = after
	case at.Sequence != 0:
		l.at = at
	case after != 0:
		if l.at, err = l.stream.Position(ctx, r.log.UUID, lane, after); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// lastBefore returns the last message whose events are all earlier than at. It is a binary search: lane time never runs
// backwards.
func lastBefore(ctx context.Context, stream eventlog.Stream, bounds eventlog.Bounds, at wire.Instant) (uint64, error) {
	reads, err := stream.Judge(ctx)
	if err != nil {
		return 0, err
	}
	low, high := max(bounds.First, 1), bounds.Last+1 // the result is in [low-1, high-1]
	for low < high {
		middle := low + (high-low)/2
		found, clock, err := clockFrom(ctx, stream, reads, middle, high)
		switch {
		case err != nil:
			return 0, err
		case found != 0 && clock < at:
			low = found + 1
		default:
			high = middle
		}
	}
	return low - 1, nil
}

// clockFrom returns the lane time of the first valid message in [from, end); found is 0 if there is none. A message of
// a newer format ends the search: reading will stop there with an error.
func clockFrom(ctx context.Context, stream eventlog.Stream, reads *eventlog.Judge, from, end uint64) (found uint64, clock wire.Instant, err error) {
	for seq := from; seq < end; seq++ {
		raw, err := stream.Get(ctx, seq)
		if err != nil {
			return 0, 0, err
		}
		m, err := reads.Read(&raw)
		switch {
		case err == nil:
			return seq, wire.At(m.LaneTime), nil
		case errors.Is(err, eventlog.ErrNewerFormat), errors.Is(err, eventlog.ErrUnreadable):
			return 0, 0, nil
		}
	}
	return 0, 0, nil
}

// explainPosition adds the next command to the error of a recorded position that is not in the log.
func explainPosition(at eventlog.Position, err error) error {
	if fill.IsLost(err) || errors.Is(err, eventlog.ErrHole) {
		return fmt.Errorf("the log no longer has what was replayed up to message %d of lane %d (it was restored, lost its tail, or is another log): %w; "+
			"restore that log, or start again with --reset", at.Sequence, at.Lane, err)
	}
	return err
}

func (l *reading) open(ctx context.Context) (err error) {
	l.reader, err = l.stream.Open(ctx, l.log.UUID, l.at, eventlog.ReaderOptions{Logger: l.opts.Logger})
	l.foreign = 0
	return explainPosition(l.at, err)
}

// catchUp reads to the last message that was in the log when the replay started.
func (l *reading) catchUp(ctx context.Context) error {
	if l.at.Sequence >= l.last {
		return nil
	}
	if err := l.open(ctx); err != nil {
		return err
	}
	defer l.reader.Close()
	for !l.over && l.reader.Sequence() < l.last {
		l.batch.Reset()
		if err := l.write(ctx, l.batch.Wait(ctx, l.reader, l.opts.Limits, l.last)); err != nil {
			return err
		}
	}
	return nil
}

// follow writes events as they arrive, until ctx ends.
func (l *reading) follow(ctx context.Context) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	defer l.reader.Close()
	for {
		select {
		case <-l.reader.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
		err := l.alone(func() error { return l.writeArrived(ctx) })
		var stop *eventlog.StopError
		if errors.As(err, &stop) {
			l.opts.Logger.WarnContext(ctx, "this lane stopped at a message; other lanes continue, and this one continues when the message is skipped (scrip serve --skip-message)", "lane", l.lane, "sequence", stop.Sequence, "err", err)
			skips, err := l.stream.AwaitSkip(ctx, err)
			if err != nil {
				return err
			}
			l.reader.Resume(skips)
		} else if err != nil {
			return err
		}
	}
}

// writeArrived writes and flushes what has arrived.
func (l *reading) writeArrived(ctx context.Context) error {
	for {
		l.batch.Reset()
		err := l.write(ctx, l.batch.Fill(l.reader, l.opts.Limits, math.MaxUint64))
		var stop *eventlog.StopError
		if err != nil && !errors.As(err, &stop) {
			return err
		}
		if err != nil || len(l.batch.Messages) == 0 {
			if failed := l.sink.Flush(ctx); failed != nil {
				return failed
			}
			return err
		}
	}
}

// write decodes the messages in the batch and writes their events to the sink. failed is the error of taking them; it
// is returned if there are none, because the reader keeps it.
func (l *reading) write(ctx context.Context, failed error) error {
	l.done.Foreign += l.reader.Foreign() - l.foreign
	l.foreign = l.reader.Foreign()
	messages := l.batch.Messages
	if len(messages) == 0 {
		if failed != nil && ctx.Err() == nil {
			failed = explainPosition(l.at, fmt.Errorf("lane %d: %w", l.lane, failed))
		}
		return failed
	}
	clear(l.events)
	l.events = l.events[:0]
	silent := 0
	for i := range messages {
		m := &messages[i]
		l.decode(m, m.Sequence <= l.silent)
		if m.Sequence <= l.silent {
			silent++
		}
		// Later messages hold only later events.
		if until := l.opts.Filter.Until; until != 0 && wire.At(m.LaneTime) >= until {
			l.over = true
			messages = messages[:i+1]
			break
		}
	}
	last := &messages[len(messages)-1]
	to := last.Position(l.log.UUID, l.lane)
	if silent < len(messages) {
		b := Batch{Lane: l.lane, First: messages[silent].Sequence, Last: last.Sequence, Events: l.events, To: to, Clock: wire.At(last.LaneTime)}
		if err := l.sink.Write(ctx, &b); err != nil {
			return err
		}
	}
	l.at = to
	l.done.Events += uint64(len(l.events))
	l.done.Messages += uint64(len(messages))
	l.done.Total = max(l.done.Total, l.done.Messages)
	l.opts.Progress(l.done)
	return nil
}

// decode appends the selected events of a message to the batch; with silent it only updates the filter.
func (l *reading) decode(m *eventlog.Message, silent bool) {
	for n, line := range eventlog.Lines(m.Payload) {
		if !l.matcher.prefilter(line) {
			continue
		}
		l.events = append(l.events, Event{})
		e := &l.events[len(l.events)-1]
		err := wire.ParseEvent(line, &e.Event)
		if err == nil && e.At <= 0 {
			err = errors.New("the event line has no field at")
		}
		if err == nil && l.matcher.match(&e.Event) && !silent {
			e.Position, e.Raw = Position{l.lane, m.Sequence, n + 1}, line
			if mask := l.opts.Filter.Mask; mask != nil {
				mask.event(e)
			}
			continue
		}
		l.events = l.events[:len(l.events)-1]
		if err != nil && !silent {
			if l.done.Unreadable++; l.done.Unreadable <= unreadableLogged {
				l.opts.Logger.Warn("ignored a line that this version cannot read", "lane", l.lane, "sequence", m.Sequence, "line", n+1, "err", err)
			}
		}
	}
}
