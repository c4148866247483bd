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

// Term is one term of a lane's owner.
type Term struct {
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
	inFlight *Write      // published, not yet acknowledged; see NextWrite for why there is only one
}

// Mark is a position in the log and the commands covered up to there. A snapshot carries it.
type Mark struct {
	Position eventlog.Position
	Covered  uint64    // newest command covered by the events up to Position
	Stamped  time.Time // its stored timestamp; zero if not known
}

// Options of a term.
type Options struct {
	Log    string          // the log's UUID
	Lane   int             // the lane's number
	Nonce  string          // in every message of this term; unique to it
	State  *domain.Lane    // empty; belongs to the term from now on
	Sealer eventlog.Sealer // writes the headers of this term's messages
}

// New returns the term of an empty lane.
func New(o Options) *Term {
	return &Term{
		log: o.Log, lane: o.Lane, nonce: o.Nonce, sealer: o.Sealer, state: o.State,
		mark: Mark{Position: eventlog.Position{Log: o.Log, Lane: o.Lane}},
	}
}

// Nonce marks this term's messages.
func (t *Term) Nonce() string { return t.nonce }

// State is the folded state. It may be ahead of the log: answers read from it are sent by [Term.Attach].
func (t *Term) State() *domain.Lane { return t.state }

// Mark returns the newest durable position. It hashes the newest write: call it at checkpoints, not per step.
func (t *Term) Mark() Mark {
	if t.tail != nil {
		t.mark.Position.Digest = eventlog.Digest(t.tail.Attempt.Header, t.tail.Attempt.Payload)
		t.tail = nil
	}
	return t.mark
}

// Sequence returns the end of the event stream, as far as this term knows.
func (t *Term) Sequence() uint64 { return t.fence }

// Covered returns the newest command that durable events cover.
func (t *Term) Covered() uint64 { return t.mark.Covered }

// EventsSinceSnapshot returns how many event lines a restart would fold.
func (t *Term) EventsSinceSnapshot() int { return t.sinceSnapshot }

// Settled reports whether the state is exactly the fold of the log up to [Term.Mark]: nothing collected, nothing in
// flight, nothing diverged.
func (t *Term) Settled() bool { return t.next == nil && t.inFlight == nil && !t.diverged }

// Freeze returns the settled state for a snapshot, at the cost of a pointer per page, and resets EventsSinceSnapshot.
func (t *Term) Freeze() (*domain.Frozen, Mark) {
	t.sinceSnapshot = 0
	return t.state.Freeze(), t.Mark()
}

// rebaseHint names the flags that make the lane continue.
func (t *Term) rebaseHint() string {
	return fmt.Sprintf("to continue after the last command of the command stream, start once with --rebase %d; to decide from command SEQ on, --rebase %d=SEQ", t.lane, t.lane)
}

// Outrun reports whether the event stream, which ends at last now, continued without this term. Then commands and events
// that seem to contradict each other are no reason to stop: the term compared new commands with old events, because it was
// slow or stopped while another one decided and purged. It has lost the lane.
func (t *Term) Outrun(last uint64) bool { return last != t.fence }

// Broken returns the error for commands that cannot be read on: a stream that lost its tail, has a hole or is another one
// needs an operator. Other errors are no contradiction and are returned unchanged.
func (t *Term) Broken(err error) error {
	var gap *eventlog.GapError
	if errors.As(err, &gap) || errors.Is(err, eventlog.ErrLostTail) || errors.Is(err, eventlog.ErrDiverged) {
		return fmt.Errorf("%w: %w; %s", ErrStopped, err, t.rebaseHint())
	}
	return err
}
