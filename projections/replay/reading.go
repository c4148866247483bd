package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// section is the range of a lane to read.
type section struct {
	lane   int
	stream eventlog.Stream
	// after is the position after which reading begins, last the sequence at which catching up ends: the last message
	// when the replay began.
	after eventlog.Position
	last  uint64
	// silent is the last message that only updates the filter's memory and is not written.
	silent uint64
}

// start returns the range of a lane to read. at is the sink's position, the zero Position if it has none for the lane.
func (r *run) start(ctx context.Context, lane int, at eventlog.Position) (section, error) {
	s := section{lane: lane, stream: eventlog.Events(r.js, lane).In(r.log)}
	bounds, err := s.stream.Bounds(ctx)
	if err != nil {
		return s, err
	}
	f := &r.opts.Filter
	s.last = bounds.Last
	if to, limited := f.To[lane]; limited {
		s.last = min(s.last, to)
	}
	origin := eventlog.Position{Log: r.log.UUID, Lane: lane}
	after := uint64(0)
	switch {
	case at.Sequence != 0:
		if err := s.stream.Verify(ctx, r.log.UUID, at); err != nil {
			return s, explainPosition(at, err)
		}
		s.after = at
		after = at.Sequence
	case f.From[lane] > 0:
		if after = f.From[lane] - 1; after > bounds.Last {
			return s, invalid("from", "lane %d ends with message %d; give at most %d:%d", lane, bounds.Last, lane, bounds.Last+1)
		}
	case f.Since != 0:
		if after, err = lastBefore(ctx, s.stream, bounds, f.Since); err != nil {
			return s, err
		}
	}
	if f.Customer != "" {
		s.silent, s.after = after, origin
		return s, nil
	}
	if s.after.Sequence == after && after != 0 {
		return s, nil
	}
	if s.after = origin; after == 0 {
		return s, nil
	}
	raw, err := s.stream.Get(ctx, after)
	if err != nil {
		return s, err
	}
	s.after.Sequence, s.after.Digest = after, eventlog.Digest(raw.Header, raw.Data)
	return s, nil
}

// lastBefore returns the last message whose events are all earlier than at. It is a binary search: lane time never runs
// backwards.
func lastBefore(ctx context.Context, stream eventlog.Stream, bounds eventlog.Bounds, at wire.Instant) (uint64, error) {
	stream, err := stream.Settled(ctx)
	if err != nil {
		return 0, err
	}
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
		m, err := reads.Single(&raw)
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
	if errors.Is(err, eventlog.ErrLostTail) || errors.Is(err, eventlog.ErrDiverged) || errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, eventlog.ErrHole) {
		return fmt.Errorf("the log no longer has what was replayed up to message %d of lane %d (it was restored, lost its tail, or is another log): %w; "+
			"restore that log, or begin again with --reset", at.Sequence, at.Lane, err)
	}
	return err
}

// reading is the state of reading one lane.
type reading struct {
	section
	run     *run
	matcher *matcher
	reader  *eventlog.Reader
	at      eventlog.Position // the last message taken
	over    bool              // the filter selects no later event
	foreign uint64            // of reader, already counted
	waits   bool              // stopped at a message that an operator may add to the skip list
}

func (l *reading) open(ctx context.Context) (err error) {
	l.reader, err = l.stream.Open(ctx, l.run.log.UUID, l.at, eventlog.ReaderOptions{Logger: l.run.opts.Logger})
	l.foreign = 0
	return explainPosition(l.at, err)
}

// catchUp reads to the end of the section.
func (l *reading) catchUp(ctx context.Context) error {
	if l.at.Sequence >= l.last {
		return nil
	}
	if err := l.open(ctx); err != nil {
		return err
	}
	defer l.reader.Close()
	for !l.over && l.reader.Sequence() < l.last {
		some, err := l.take(ctx, l.last)
		if err != nil {
			return err
		}
		if some || l.reader.Sequence() >= l.last {
			continue
		}
		select {
		case <-l.reader.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// watch signals that a lane has messages to take.
func (l *reading) watch(ctx context.Context, wake chan<- *reading) {
	for {
		select {
		case <-l.reader.Ready():
		case <-ctx.Done():
			return
		}
		select {
		case wake <- l:
		case <-ctx.Done():
			return
		}
	}
}

// resumed is a lane that can continue.
type resumed struct {
	lane  *reading
	skips eventlog.Skips
}

// awaitSkip waits until an operator has skipped the message at which the lane stopped.
func (l *reading) awaitSkip(ctx context.Context, cause error, resume chan<- resumed) {
	skips, err := l.stream.AwaitSkip(ctx, cause)
	if err != nil {
		return
	}
	select {
	case resume <- resumed{l, skips}:
	case <-ctx.Done():
	}
}

// take writes what has arrived, at most one batch and not beyond message last (0 = no end). some reports whether there
// was any message.
func (l *reading) take(ctx context.Context, last uint64) (some bool, err error) {
	r := l.run
	clear(r.messages)
	r.messages = r.messages[:0]
	lines, bytes := 0, 0
	for lines < r.opts.MaxLines && bytes < r.opts.MaxBytes {
		most, had := min(takeMessages, r.opts.MaxLines-lines), len(r.messages)
		if last != 0 {
			most = int(min(uint64(most), last-min(last, l.reader.Sequence())))
		}
		if most > 0 {
			r.messages, err = l.reader.TryBatch(most, r.messages)
		}
		if err != nil && len(r.messages) == 0 {
			return false, explainPosition(l.at, fmt.Errorf("lane %d: %w", l.lane, err))
		}
		if err != nil || len(r.messages) == had {
			break // the reader keeps its error, which is returned after earlier messages are written
		}
		for i := range r.messages[had:] {
			m := &r.messages[had+i]
			bytes += len(m.Payload)
			for range eventlog.Lines(m.Payload) {
				lines++
			}
		}
	}
	r.done.Foreign += l.reader.Foreign() - l.foreign
	l.foreign = l.reader.Foreign()
	if len(r.messages) == 0 {
		return false, nil
	}
	return true, l.write(ctx)
}

// write decodes the messages taken and writes their events to the sink.
func (l *reading) write(ctx context.Context) error {
	r := l.run
	clear(r.events)
	r.events = r.events[:0]
	silent := 0
	for i := range r.messages {
		m := &r.messages[i]
		l.decode(m, m.Sequence <= l.silent)
		if m.Sequence <= l.silent {
			silent++
		}
		// Later messages hold only later events.
		if until := r.opts.Filter.Until; until != 0 && wire.At(m.LaneTime) >= until {
			l.over = true
			r.messages = r.messages[:i+1]
			break
		}
	}
	last := &r.messages[len(r.messages)-1]
	to := last.Position(r.log.UUID, l.lane)
	if silent < len(r.messages) {
		b := Batch{Lane: l.lane, First: r.messages[silent].Sequence, Last: last.Sequence, Events: r.events, To: to, Clock: wire.At(last.LaneTime)}
		if err := r.sink.Write(ctx, &b); err != nil {
			return err
		}
	}
	l.at = to
	r.done.Events += uint64(len(r.events))
	r.done.Messages += uint64(len(r.messages))
	r.done.Total = max(r.done.Total, r.done.Messages)
	r.opts.Progress(r.done)
	return nil
}

// decode appends the selected events of a message to the batch; with silent it only updates the filter.
func (l *reading) decode(m *eventlog.Message, silent bool) {
	r := l.run
	for n, line := range eventlog.Lines(m.Payload) {
		if !l.matcher.prefilter(line) {
			continue
		}
		r.events = append(r.events, Event{})
		e := &r.events[len(r.events)-1]
		err := wire.ParseEvent(line, &e.Event)
		if err == nil && e.At <= 0 {
			err = errors.New("the event line has no field at")
		}
		pass := err == nil && l.matcher.match(&e.Event) && !silent
		if pass {
			e.Position, e.Raw = Position{l.lane, m.Sequence, n + 1}, line
			if mask := r.opts.Filter.Mask; mask != nil {
				mask.event(e)
			}
			continue
		}
		r.events = r.events[:len(r.events)-1]
		if err != nil && !silent {
			if r.done.Unreadable++; r.done.Unreadable <= unreadableLogged {
				r.opts.Logger.WarnContext(context.Background(), "ignored a line that this version cannot read",
					"lane", l.lane, "sequence", m.Sequence, "line", n+1, "err", err)
			}
		}
	}
}
