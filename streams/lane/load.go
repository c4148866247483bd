package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// load brings the state to where the event log ends: the newest snapshot that fits, and the events after it. It is the
// same fold that deciding does.
func (o *owner) load(ctx context.Context) error {
	o.snapshotted = o.opt.Now()
	if err := o.restore(ctx); err != nil {
		return fmt.Errorf("loading the snapshot: %w", err)
	}
	err := o.replay(ctx)
	if errors.Is(err, eventlog.ErrNewerFormat) {
		return fmt.Errorf("%w: %w; run a newer scrip", ErrStopped, err)
	}
	return err
}

// replay folds the event messages after the state's position.
func (o *owner) replay(ctx context.Context) error {
	position := o.position
	position.Log, position.Lane = o.opt.Log.UUID, o.opt.Lane
	reader, err := o.stream.Open(ctx, o.opt.Log.UUID, position, eventlog.ReaderOptions{Logger: o.opt.Logger})
	if err != nil {
		return fmt.Errorf("reading the event log: %w", err)
	}
	defer reader.Close()
	var last eventlog.Message
	err = reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			if err := o.fold(&batch[i]); err != nil {
				return err
			}
		}
		last = batch[len(batch)-1]
		return nil
	})
	if err != nil {
		return err
	}
	if foreign := reader.Foreign(); foreign > 0 {
		o.opt.Metrics.foreign.WithLabelValues(o.lane.label).Add(float64(foreign))
	}
	if last.Sequence != 0 {
		o.position = last.Position(o.opt.Log.UUID, o.opt.Lane)
	}
	// The fence counts all messages, also those that are not ours.
	o.sequence = reader.Sequence()
	o.durable.Store(o.covered)
	return nil
}

// fold applies one event message.
func (o *owner) fold(m *eventlog.Message) error {
	if m.Rebase == 0 && m.Commands[0] != o.covered+1 {
		return fmt.Errorf("%w: event message %d covers commands from %d, the one before it up to %d", ErrStopped, m.Sequence, m.Commands[0], o.covered)
	}
	var ev domain.Event
	for n, line := range eventlog.Lines(m.Payload) {
		if err := domain.ParseEvent(line, &ev); err != nil {
			return fmt.Errorf("%w: event message %d, line %d: %w", ErrStopped, m.Sequence, n+1, err)
		}
		if err := o.state.Apply(&ev); err != nil {
			return fmt.Errorf("%w: event message %d, line %d: %w", ErrStopped, m.Sequence, n+1, err)
		}
		o.fresh++
	}
	o.state.Advance(domain.At(m.LaneTime))
	o.covered = m.Commands[1]
	o.stamped = m.CommandTime // none after a rebase: there is nothing to compare with then
	return nil
}

// continues checks that the command stream is the one the events speak of, and goes on where they end. A restored or
// truncated stream would put other commands under numbers that count as decided, and nobody would ever answer them.
func (o *owner) continues(ctx context.Context) error {
	commands := eventlog.Commands(o.opt.JetStream, o.opt.Lane)
	bounds, err := commands.Bounds(ctx)
	if err != nil {
		return err
	}
	if o.covered == 0 && bounds.First <= 1 {
		return nil
	}
	switch {
	case bounds.Last < o.covered:
		return fmt.Errorf("%w: the events cover commands up to %d, but the command stream ends at %d: it lost its tail or is an older copy; %s", ErrStopped, o.covered, bounds.Last, o.rebaseHint())
	case bounds.First > o.covered+1:
		return fmt.Errorf("%w: the events cover commands up to %d, but the command stream begins at %d: commands in between are gone undecided; %s", ErrStopped, o.covered, bounds.First, o.rebaseHint())
	case bounds.First == o.covered+1 || o.stamped.IsZero():
		// The last covered command is gone (it is not ours to purge) or none was ever covered since a rebase.
		return nil
	}
	raw, err := commands.Get(ctx, o.covered)
	if err != nil {
		return err
	}
	if stored := raw.Time.Truncate(time.Microsecond); !stored.Equal(o.stamped) {
		return fmt.Errorf("%w: command %d was stored at %s, but the events covered one stored at %s: the command stream is another one; %s", ErrStopped, o.covered, eventlog.FormatTime(stored), eventlog.FormatTime(o.stamped), o.rebaseHint())
	}
	return nil
}

// rebaseHint says how an operator makes the lane go on.
func (o *owner) rebaseHint() string {
	return fmt.Sprintf("to go on behind what the command stream holds, start once with --rebase %d; to decide from command SEQ on, --rebase %d=SEQ", o.opt.Lane, o.opt.Lane)
}

// rebase writes, if an operator asked for it, the one step that breaks contiguity: without lines, saying at which
// command the lane goes on. Commands that are decided a second time by it are known by their ids.
func (o *owner) rebase(ctx context.Context) error {
	if o.opt.Rebase == nil {
		return nil
	}
	bounds, err := eventlog.Commands(o.opt.JetStream, o.opt.Lane).Bounds(ctx)
	if err != nil {
		return err
	}
	first := *o.opt.Rebase
	if first == 0 {
		first = bounds.Last + 1
	}
	if first > bounds.Last+1 || first < max(bounds.First, 1) {
		return fmt.Errorf("%w: cannot rebase to command %d: the command stream holds %d to %d; choose one of them or %d", ErrStopped, first, bounds.First, bounds.Last, bounds.Last+1)
	}
	header := eventlog.Header{
		Commands: [2]uint64{first, first - 1}, LaneTime: o.state.Clock().Time(), Owner: o.nonce, Rebase: first,
	}
	attempt := eventlog.Attempt{Expected: o.sequence, Header: header.Encode()}
	sequence, err := o.appender.Publish(ctx, attempt)
	if err != nil {
		if sequence, err = o.resolve(ctx, attempt, err); err != nil {
			return err
		}
	}
	o.advance(sequence, header, eventlog.Digest(attempt.Header, nil), 0)
	o.opt.Rebase, o.lane.opt.Rebase = nil, nil // once
	o.opt.Metrics.rebased.WithLabelValues(o.lane.label).Inc()
	o.opt.Logger.WarnContext(ctx, "lane rebased", "first_command", first)
	return nil
}
