package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// section is what is to be read of a lane.
type section struct {
	lane   int
	stream eventlog.Stream
	// after is where reading begins, last the message it ends with (followed or not, what was there at the beginning).
	after eventlog.Position
	last  uint64
	// silent is the last message that is only looked at, for what the filter has to remember.
	silent uint64
}

// start says what is to be read of a lane. at is where the sink goes on, the zero Position if it has none of the lane.
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
			return s, explainPlace(at, err)
		}
		s.after = at
		after = at.Sequence
	case f.From[lane] > 0:
		if after = f.From[lane] - 1; after > bounds.Last {
			return s, invalid("from", "lane %d ends with message %d; give at most %d:%d", lane, bounds.Last, lane, bounds.Last+1)
		}
	case f.Since != 0:
		if after, err = before(ctx, s.stream, bounds, f.Since); err != nil {
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

// before is the last message all of whose events are earlier than at, found by halving: a lane's clock never runs
// backwards.
func before(ctx context.Context, stream eventlog.Stream, bounds eventlog.Bounds, at wire.Instant) (uint64, error) {
	stream, err := stream.Settled(ctx)
	if err != nil {
		return 0, err
	}
	reads, err := stream.Judge(ctx)
	if err != nil {
		return 0, err
	}
	low, high := max(bounds.First, 1), bounds.Last+1 // the answer lies in [low-1, high-1]
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

// clockFrom is the lane's clock at the first valid message in [from, end); found is 0 if there is none. Where a newer
// format begins there is none for us: reading will stop there and say so.
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

// explainPlace says what to do when a recorded place is no place in the log.
func explainPlace(at eventlog.Position, err error) error {
	if errors.Is(err, eventlog.ErrLostTail) || errors.Is(err, eventlog.ErrDiverged) || errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, eventlog.ErrHole) {
		return fmt.Errorf("the log no longer holds what was replayed up to message %d of lane %d (it was restored, lost its tail, or is another one): %w; "+
			"put the log back, or begin again with --reset", at.Sequence, at.Lane, err)
	}
	return err
}
