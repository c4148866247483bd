package protocol

import (
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// Restore starts from a snapshot whose position was verified against the log, instead of an empty lane.
func (t *Term) Restore(state *domain.Lane, mark Mark) {
	t.state, t.mark, t.fence = state, mark, mark.Position.Sequence
}

// Fold applies one event message. It is the same fold as in deciding.
func (t *Term) Fold(m *eventlog.Message) error {
	if m.Rebase == 0 && m.Commands[0] != t.mark.Covered+1 {
		return fmt.Errorf("%w: event message %d covers commands from %d, the one before it up to %d", ErrStopped, m.Sequence, m.Commands[0], t.mark.Covered)
	}
	n, err := t.state.Fold(m.Payload)
	t.sinceSnapshot += n
	if err != nil {
		return fmt.Errorf("%w: event message %d, %w", ErrStopped, m.Sequence, err)
	}
	t.state.Advance(wire.At(m.LaneTime))
	t.mark.Covered = m.Commands[1]
	t.mark.Stamped = m.CommandTime // zero after a rebase: there is nothing to compare with then
	return nil
}

// Folded ends the folding. last is the newest message folded, nil if none was; end is the last sequence of the stream: the
// fence counts all messages, also foreign ones.
func (t *Term) Folded(last *eventlog.Message, end uint64) {
	if last != nil {
		t.mark.Position = last.Position(t.log, t.lane)
	}
	t.fence = end
}

// Continues checks that the command stream is the one that the events refer to, and that it continues where they end. A
// restored or truncated stream would put other commands at sequences that count as decided; they would never be answered.
// stored reads the timestamp of a command.
func (t *Term) Continues(bounds eventlog.Bounds, stored func(sequence uint64) (time.Time, error)) error {
	covered := t.mark.Covered
	switch {
	case covered == 0 && bounds.First <= 1:
		return nil
	case bounds.Last < covered:
		return fmt.Errorf("%w: the events cover commands up to %d, but the command stream ends at %d: it lost its tail or is an older copy; %s", ErrStopped, covered, bounds.Last, t.rebaseHint())
	case bounds.First > covered+1:
		return fmt.Errorf("%w: the events cover commands up to %d, but the command stream starts at %d: commands in between are gone undecided; %s", ErrStopped, covered, bounds.First, t.rebaseHint())
	case bounds.First == covered+1 || t.mark.Stamped.IsZero():
		// The last covered command was removed (not by a lane) or none was covered since a rebase.
		return nil
	}
	at, err := stored(covered)
	if err != nil {
		return err
	}
	if at = at.Truncate(time.Microsecond); !at.Equal(t.mark.Stamped) {
		return fmt.Errorf("%w: command %d was stored at %s, but the events covered one stored at %s: the command stream is another one; %s", ErrStopped, covered, eventlog.FormatTime(at), eventlog.FormatTime(t.mark.Stamped), t.rebaseHint())
	}
	return nil
}

// ContradictionPauses are the pauses between the checks by [Term.Continues] that must all find a contradiction before it is believed.
// On a replicated log they last half a minute: a leader that was cut off answers for up to 10 s more, from a copy that ends
// earlier than its successor's. On one copy there are two more checks as a precaution.
func ContradictionPauses(replicated bool) []time.Duration {
	pauses := []time.Duration{250 * time.Millisecond, 500 * time.Millisecond}
	if replicated {
		pauses = append(pauses, time.Second, 2*time.Second, 4*time.Second, 8*time.Second, 15*time.Second)
	}
	return pauses
}

// RebaseWrite starts the one step that breaks contiguity, because an operator requested it: it has no lines and records the
// command at which the lane continues (0 = after the end of the command stream). Commands that are decided a second time by
// it are deduplicated by their ids. The write is in flight then, like any other.
func (t *Term) RebaseWrite(bounds eventlog.Bounds, first uint64) (*Write, error) {
	if first == 0 {
		first = bounds.Last + 1
	}
	if first > bounds.Last+1 || first < max(bounds.First, 1) {
		return nil, fmt.Errorf("%w: cannot rebase to command %d: the command stream holds %d to %d; choose one of them or %d", ErrStopped, first, bounds.First, bounds.Last, bounds.Last+1)
	}
	return t.write(eventlog.Header{Commands: [2]uint64{first, first - 1}, Rebase: first}, nil), nil
}
