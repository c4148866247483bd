package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
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

// maxStepBytes is where a step stops accepting messages: larger writes take longer than they save. Before that, a message
// that might exceed wire.MaxStep waits for the next step.
const maxStepBytes = 256 << 10

// collecting is a step that accepts commands: decided, nothing written yet.
type collecting struct {
	*domain.Step
	first, last uint64    // command messages
	stamped     time.Time // of the last
	replies     []Reply
	traces      []string  // of sampled lines
	traced      time.Time // when the first of them was decided
}

// Reply is a message that is sent when its step is durable.
type Reply struct {
	Subject string
	Payload []byte
}

// Write is a step to be written to the log.
type Write struct {
	Attempt  eventlog.Attempt // what to publish, with which fence
	Replies  []Reply          // not to be sent before [Term.Acked] returns the write
	Lines    int              // event lines
	Commands int              // command lines
	Outcomes []domain.OutcomeCount
	// Traces are the traceparents of sampled lines, nil = there are none; Traced is when the first of them was decided.
	Traces []string
	Traced time.Time

	header eventlog.Header
}

// Full reports whether the step accepts no more commands.
func (t *Term) StepFull() bool {
	return t.overflow || t.next != nil && len(t.next.Events) >= maxStepBytes
}

// Fits reports whether a message may be decided into the step. If not the step is full, and the
// message goes into the next one.
func (t *Term) Fits(c *Command) bool {
	t.overflow = t.next != nil && !t.next.Fits(c.Payload, c.By)
	return !t.overflow
}

// Decide decides one command message, which fits, into the step being collected. Messages come in the order of the
// stream. wrong is how many wrong codes it has that nothing has counted yet: those of commands straight to the log.
func (t *Term) Decide(c *Command) (wrong int) {
	if t.next == nil {
		t.next = &collecting{Step: domain.NewStep(t.state), first: c.Sequence}
	}
	s := t.next
	s.last, s.stamped = c.Sequence, c.Stamped
	if c.Trace != "" {
		s.trace(c.Trace)
	}
	outcomes := s.Add(domain.Message{Sequence: c.Sequence, Scope: c.Scope, Campaign: c.Campaign, By: c.By, Payload: c.Payload}, wire.At(c.Stamped), nil)
	if c.Reply != "" {
		s.replies = append(s.replies, Reply{c.Reply, outcomes})
	}
	if c.Scope == wire.ScopeProducer {
		wrong = bytes.Count(outcomes, wrongCode)
	}
	return wrong
}

// trace adds the sampled lines of a message. Any client can send the header: what is too much is left out.
func (s *collecting) trace(header string) {
	for one := range strings.SplitSeq(header, ",") {
		_, parent, ok := strings.Cut(one, ":")
		if !ok || len(parent) != traceparent || len(s.traces) == topology.MostTraces {
			return
		}
		if s.traces == nil {
			s.traced = time.Now()
		}
		s.traces = append(s.traces, parent)
	}
}

// traceparent is the length of one, of version 00.
const traceparent = 55

// wrongCode is in the outcome of a command with a wrong code. A text in JSON cannot hold it.
var wrongCode = []byte(`"refusal":"` + wire.CodeNotFound + `"`)

// Attach adds a reply that was read from the state, which may be ahead of the log, to the newest step it may depend on.
// False: all that it depends on is durable, it may be sent now.
func (t *Term) Attach(r Reply) bool {
	switch {
	case t.next != nil:
		t.next.replies = append(t.next.replies, r)
	case t.inFlight != nil:
		t.inFlight.Replies = append(t.inFlight.Replies, r)
	default:
		return false
	}
	return true
}

// NextWrite closes the collected step and returns it to be written. It returns nil while a write is in flight (the step
// continues to collect) and when there is nothing to write.
//
// Only one write is in flight, because the fence is a number: a second one would expect the sequence that the first is to
// get. If another owner's message got that sequence, the first would be rejected and the second stored after a message that
// it does not build on.
//
// After a crash before the acknowledgement the step is in the log or it is not; the next load of the lane finds out. No
// client was answered.
func (t *Term) NextWrite() *Write {
	if t.next == nil || t.inFlight != nil {
		return nil
	}
	s := t.next
	t.next, t.overflow = nil, false
	s.Close()
	w := t.write(eventlog.Header{Commands: [2]uint64{s.first, s.last}, CommandTime: s.stamped}, s.Events)
	w.Replies, w.Lines, w.Commands, w.Outcomes, w.Traces, w.Traced = s.replies, s.Lines, s.Commands, s.Outcomes, s.traces, s.traced
	return w
}

func (t *Term) write(h eventlog.Header, events []byte) *Write {
	h.LaneTime, h.Owner = t.state.Clock().Time(), t.nonce
	header := t.sealer.Encode(h, t.fence+1, events)
	t.inFlight = &Write{header: h, Attempt: eventlog.Attempt{Expected: t.fence, Header: header, Payload: events}}
	return t.inFlight
}

// Acked records that the write in flight is durable at sequence. It returns the write; its replies may be sent now and not
// earlier.
func (t *Term) Acked(sequence uint64) *Write {
	w := t.inFlight
	t.inFlight = nil
	t.fence = sequence
	t.mark = Mark{
		Position: eventlog.Position{Log: t.log, Lane: t.lane, Sequence: sequence},
		Covered:  w.header.Commands[1], Stamped: w.header.CommandTime,
	}
	t.tail = w
	t.sinceSnapshot += w.Lines
	return w
}

// Abandon drops what is not durable, at the end of the term or because another owner writes this lane: the decisions made here are
// invalid then, and nothing is answered. If there was anything, the state is permanently ahead of the log.
func (t *Term) Abandon() {
	t.diverged = t.diverged || t.next != nil || t.inFlight != nil
	t.next, t.inFlight, t.overflow = nil, nil, false
}

// Command is one message of the command stream.
type Command struct {
	Sequence uint64
	Stamped  time.Time // when the log stored it
	Scope    wire.Scope
	Campaign string
	Reply    string // inbox, "" = none
	BadReply bool   // the reply subject is no inbox
	By       string // the person who sent it, "" = none; only a server may name one
	Trace    string // topology.HeaderTrace
	Payload  []byte
}

// CommandOf reads a command message's subject and headers.
func CommandOf(msg *eventlog.Raw) (Command, error) {
	// Microseconds, because the log and the tables store those.
	c := Command{Sequence: msg.Sequence, Stamped: msg.Time.Truncate(time.Microsecond), Payload: msg.Data, Trace: msg.Header.Get(topology.HeaderTrace)}
	kind, _, campaign, ok := topology.ParseCommandSubject(msg.Subject)
	if !ok {
		// The stream has no other subjects, so no publisher can cause this.
		return Command{}, fmt.Errorf("command %d has subject %s, which is none of a lane", c.Sequence, msg.Subject)
	}
	c.Campaign = campaign
	switch kind {
	case topology.Cmd, topology.Shop:
		c.Scope = wire.ScopeProducer
	case topology.Admin:
		c.Scope = wire.ScopeOperator
	case topology.Multi:
		c.Scope = wire.ScopeTrusted
		// Only servers may publish on this subject. On all others the header is what a client claims.
		if by := msg.Header.Get(topology.HeaderBy); wire.ValidBy(by) {
			c.By = by
		}
	case topology.Due:
		c.Scope = wire.ScopeScheduler
	}
	// The lane publishes outcomes with its own permissions.
	if reply := msg.Header.Get(topology.HeaderReply); topology.ReplyInbox(reply) {
		c.Reply = reply
	} else {
		c.BadReply = reply != ""
	}
	return c, nil
}

// Early returns how much longer a command must wait, because its timestamp is further ahead of now than the tolerance:
// deciding it would expire coupons too early, and lane time never runs backwards. Not above 0: decide it.
func (c *Command) Early(now time.Time, tolerance time.Duration) time.Duration {
	return c.Stamped.Sub(now) - tolerance
}
