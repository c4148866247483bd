package protocol

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// ErrStopped is the kind of every error after which the lane must not continue by itself, because the log contradicts
// itself: to continue would lose or repeat acknowledged commands. The text names what an operator can do.
var ErrStopped = errors.New("lane stopped")

// Owner is one term of a lane.
type Owner struct {
	log   string
	lane  int
	nonce string

	sealer eventlog.Sealer

	state         *domain.Lane
	mark          Mark   // of the newest event message known to be durable, without its digest while tail has it
	tail          *Write // that message, if it was written here and its digest not computed yet
	fence         uint64 // last sequence of the event stream: Mark.Position, unless foreign messages follow it
	sinceSnapshot int    // event lines since Restore or Freeze
	diverged      bool   // the state is permanently ahead of the log: it must not be used or saved

	next     *collecting // nil = empty
	overflow bool        // the next message does not fit into it
	inFlight *Write      // published, not yet acknowledged; see Publish for why there is only one
}

// Mark is a position in the log and the commands covered up to there. A snapshot carries it.
type Mark struct {
	Position eventlog.Position
	Covered  uint64    // newest command covered by the events up to Position
	Stamped  time.Time // its stored timestamp; zero if not known
}

// Options of an owner.
type Options struct {
	Log    string          // the log's UUID
	Lane   int             // the lane's number
	Nonce  string          // in every message of this owner; unique to its term
	State  *domain.Lane    // empty; belongs to the owner from now on
	Sealer eventlog.Sealer // writes the headers of this owner's messages
}

// New returns the owner of an empty lane.
func New(o Options) *Owner {
	return &Owner{
		log: o.Log, lane: o.Lane, nonce: o.Nonce, sealer: o.Sealer, state: o.State,
		mark: Mark{Position: eventlog.Position{Log: o.Log, Lane: o.Lane}},
	}
}

// Nonce marks this term's messages.
func (o *Owner) Nonce() string { return o.nonce }

// State is the folded state. It may be ahead of the log: answers read from it are sent by [Owner.Attach].
func (o *Owner) State() *domain.Lane { return o.state }

// Mark returns the newest durable position. It hashes the newest write: call it at checkpoints, not per step.
func (o *Owner) Mark() Mark {
	if o.tail != nil {
		o.mark.Position.Digest = eventlog.Digest(o.tail.Attempt.Header, o.tail.Attempt.Payload)
		o.tail = nil
	}
	return o.mark
}

// Sequence returns the end of the event stream, as far as this owner knows.
func (o *Owner) Sequence() uint64 { return o.fence }

// Covered returns the newest command that durable events cover.
func (o *Owner) Covered() uint64 { return o.mark.Covered }

// EventsSinceSnapshot returns how many event lines a restart would fold.
func (o *Owner) EventsSinceSnapshot() int { return o.sinceSnapshot }

// Settled reports whether the state is exactly the fold of the log up to [Owner.Mark]: nothing collected, nothing in
// flight, nothing diverged.
func (o *Owner) Settled() bool { return o.next == nil && o.inFlight == nil && !o.diverged }

// Freeze returns the settled state for a snapshot, at the cost of a pointer per page, and resets EventsSinceSnapshot.
func (o *Owner) Freeze() (*domain.Frozen, Mark) {
	o.sinceSnapshot = 0
	return o.state.Freeze(), o.Mark()
}

// rebaseHint names the flags that make the lane continue.
func (o *Owner) rebaseHint() string {
	return fmt.Sprintf("to continue after the last command of the command stream, start once with --rebase %d; to decide from command SEQ on, --rebase %d=SEQ", o.lane, o.lane)
}

// Outrun reports whether the event stream, which ends at last now, continued without this owner. Then commands and events
// that seem to contradict each other are no reason to stop: the owner compared new commands with old events, because it was
// slow or stopped while another one decided and purged. It has lost the lane.
func (o *Owner) Outrun(last uint64) bool { return last != o.fence }

// Broken returns the error for commands that cannot be read on: a stream that lost its tail, has a hole or is another one
// needs an operator. Other errors are no contradiction and are returned unchanged.
func (o *Owner) Broken(err error) error {
	var gap *eventlog.GapError
	if errors.As(err, &gap) || errors.Is(err, eventlog.ErrLostTail) || errors.Is(err, eventlog.ErrDiverged) {
		return fmt.Errorf("%w: %w; %s", ErrStopped, err, o.rebaseHint())
	}
	return err
}
