package protocol

import (
	"bytes"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// maxStepBytes is where a step stops accepting messages: larger writes take longer than they save. Before that, a message
// that might exceed wire.MaxStep waits for the next step.
const maxStepBytes = 256 << 10

// collecting is a step that accepts commands: decided, nothing written yet.
type collecting struct {
	*domain.Step
	first, last uint64    // command messages
	stamped     time.Time // of the last
	answers     []Answer
}

// Answer is a message that is sent when its step is durable.
type Answer struct {
	Subject string
	Payload []byte
}

// Write is a step to be written to the log.
type Write struct {
	Attempt  eventlog.Attempt // what to publish, with which fence
	Answers  []Answer         // not to be sent before [Owner.Acked] returns the write
	Lines    int              // event lines
	Commands int              // command lines

	header eventlog.Header
}

// Full reports whether the step accepts no more commands.
func (o *Owner) Full() bool { return o.overflow || o.next != nil && len(o.next.Events) >= maxStepBytes }

// Fits reports whether a message may be decided into the step. If not the step is full, and the
// message goes into the next one.
func (o *Owner) Fits(c *Command) bool {
	o.overflow = o.next != nil && !o.next.Fits(c.Payload, c.By)
	return !o.overflow
}

// Decide decides one command message, which fits, into the step being collected. Messages come in the order of the
// stream. wrong is how many wrong codes it has that nothing has counted yet: those of commands straight to the log.
func (o *Owner) Decide(c *Command) (wrong int) {
	if o.next == nil {
		o.next = &collecting{Step: domain.NewStep(o.state), first: c.Sequence}
	}
	s := o.next
	s.last, s.stamped = c.Sequence, c.Stamped
	outcomes := s.Add(domain.Message{Sequence: c.Sequence, Scope: c.Scope, Campaign: c.Campaign, By: c.By, Payload: c.Payload}, wire.At(c.Stamped), nil)
	if c.Reply != "" {
		s.answers = append(s.answers, Answer{c.Reply, outcomes})
	}
	if c.Scope == wire.ScopeProducer {
		wrong = bytes.Count(outcomes, wrongCode)
	}
	return wrong
}

// wrongCode is in the outcome of a command with a wrong code. A text in JSON cannot hold it.
var wrongCode = []byte(`"refusal":"` + wire.CodeNotFound + `"`)

// Attach adds an answer that was read from the state, which may be ahead of the log, to the newest step it may depend on.
// False: all that it depends on is durable, it may be sent now.
func (o *Owner) Attach(a Answer) bool {
	switch {
	case o.next != nil:
		o.next.answers = append(o.next.answers, a)
	case o.inFlight != nil:
		o.inFlight.Answers = append(o.inFlight.Answers, a)
	default:
		return false
	}
	return true
}

// Publish closes the collected step and returns it to be written. It returns nil while a write is in flight (the step
// continues to collect) and when there is nothing to write.
//
// Only one write is in flight, because the fence is a number: a second one would expect the sequence that the first is to
// get. If another owner's message got that sequence, the first would be rejected and the second stored after a message that
// it does not build on.
//
// After a crash before the acknowledgement the step is in the log or it is not; the next load of the lane finds out. No
// client was answered.
func (o *Owner) Publish() *Write {
	if o.next == nil || o.inFlight != nil {
		return nil
	}
	s := o.next
	o.next, o.overflow = nil, false
	s.Close()
	w := o.write(eventlog.Header{Commands: [2]uint64{s.first, s.last}, CommandTime: s.stamped}, s.Events)
	w.Answers, w.Lines, w.Commands = s.answers, s.Lines, s.Commands
	return w
}

func (o *Owner) write(h eventlog.Header, events []byte) *Write {
	h.LaneTime, h.Owner = o.state.Clock().Time(), o.nonce
	header := o.sealer.Encode(h, o.fence+1, events)
	o.inFlight = &Write{header: h, Attempt: eventlog.Attempt{Expected: o.fence, Header: header, Payload: events}}
	return o.inFlight
}

// Acked records that the write in flight is durable at sequence. It returns the write; its answers may be sent now and not
// earlier.
func (o *Owner) Acked(sequence uint64) *Write {
	w := o.inFlight
	o.inFlight = nil
	o.fence = sequence
	o.mark = Mark{
		Position: eventlog.Position{Log: o.log, Lane: o.lane, Sequence: sequence},
		Covered:  w.header.Commands[1], Stamped: w.header.CommandTime,
	}
	o.tail = w
	o.sinceSnapshot += w.Lines
	return w
}

// Verdict is the next action for a write without a positive acknowledgement.
type Verdict uint8

// The verdicts.
const (
	Durable Verdict = iota + 1 // it is stored at the expected sequence: [Owner.Acked] with Expected + 1
	Again                      // the stream has not changed: publish the same bytes with the same fence again
	Fenced                     // another owner writes this lane: the decisions made here are invalid, answer nothing
)

// Resolved handles what the stream holds of the write in flight (see [eventlog.Stream.Resolve]).
func (o *Owner) Resolved(outcome eventlog.Outcome) Verdict {
	switch outcome {
	case eventlog.Landed:
		return Durable
	case eventlog.Unchanged:
		return Again
	}
	o.Abandon()
	return Fenced
}

// Abandon drops what is not durable. If there was anything, the state is permanently ahead of the log.
func (o *Owner) Abandon() {
	o.diverged = o.diverged || o.next != nil || o.inFlight != nil
	o.next, o.inFlight, o.overflow = nil, nil, false
}

// Command is one message of the command stream.
type Command struct {
	Sequence uint64
	Stamped  time.Time // when the log stored it
	Scope    wire.Scope
	Campaign string
	Reply    string // inbox, "" = none
	BadReply bool   // the reply subject is no inbox
	By       string // the person who sent it, "" = none; only a server says so
	Payload  []byte
}

// CommandOf reads a command message's subject and headers.
func CommandOf(msg *eventlog.Raw) (Command, error) {
	// Microseconds, because the log and the tables store those.
	c := Command{Sequence: msg.Sequence, Stamped: msg.Time.Truncate(time.Microsecond), Payload: msg.Data}
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
	if reply := msg.Header.Get(topology.HeaderReply); natsx.ReplyInbox(reply) {
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
