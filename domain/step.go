package domain

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Step collects what a lane decides and writes at once: the events of any number of command messages, one event message.
//
//	message ──Add──> lines ──> Decide, Decide, … ──> Events        (to be written)
//	                                             └──> outcome lines (to be sent once Events are durable)
//	                         Close ──> commands.refused, one line per campaign
//
// A step without events is written too, without lines: its headers record which commands it covers.
type Step struct {
	Events   []byte // event lines, each with its newline
	Lines    int    // number of event lines
	Commands int    // command lines answered
	// Outcomes counts what they were answered with.
	Outcomes []OutcomeCount

	lane    *Lane
	refused tally      // until Close
	parked  int        // dead letters in Events
	rest    wire.Event // of the bad lines beyond maxParked, until Close; Count 0 = none
	quote   int        // bytes a dead letter of the message being added may quote
	full    bool       // the rest of the message being added is too much
	by      string     // the person who sent the message being added; "" = none
	request string     // the request id of the line being decided; "" = none
}

// scratch is memory that is reused from line to line. It belongs to the lane, which makes many steps but adds to one at a
// time.
type scratch struct {
	lines    [code.Batch]commandLine
	prepared [code.Batch]prepared
	decision decision
	codes    pendingCodes
	stamps   wire.LineCache
	spare    tally // of the step closed last
	event    int   // bytes of events that a line of the message before made
	reply    int   // bytes of its answer
}

// commandLine is a line of a message, read.
type commandLine struct {
	text    []byte
	number  uint32 // from 1
	cmd     wire.Command
	problem error // what is wrong with it
}

// Message is one command message as the log holds it.
type Message struct {
	Sequence uint64     // in the command stream
	Scope    wire.Scope // from its subject
	Campaign string     // from its subject; "" if each line names its own
	By       string     // the person who sent it, as wire.ValidBy has it; "" = no person
	Payload  []byte
}

// NewStep starts a step on the lane; Reset reuses it.
func NewStep(l *Lane) *Step {
	s := &Step{lane: l, refused: l.scratch.spare}
	l.scratch.spare = tally{}
	return s
}

// Reset empties the step. The Events of the one before are not prefetched any more.
func (s *Step) Reset() {
	s.refused.clear()
	*s = Step{lane: s.lane, refused: s.refused}
}

// Fits reports whether a message with this payload leaves the step within [MaxStep]. One that does not fit belongs into a
// step of its own.
//
// Lines that look like claims are counted as claims: a step with two full messages of them instead of one makes a hot lane
// a sixth faster. A message of lines that only look like claims may turn out larger; Add then refuses its
// last lines as not durable, and no lines of other messages.
//
// by is the message's.
func (s *Step) Fits(payload []byte, by string) bool {
	size := s.size() + s.lane.cost(payload, s.parked) + costAny
	if by != "" {
		size += (min(bytes.Count(payload, newline)+1, wire.MaxMessageLines) + 1) * costOf(by)
	}
	return size <= wire.MaxStep
}

// size is how long Events will be after Close, at most.
func (s *Step) size() int {
	size := len(s.Events) + s.refused.closing
	if s.parked == maxParked {
		size += costRest
	}
	return size
}

// Add decides all commands of a message at the given lane time and appends their outcome lines, each with its newline,
// in the order of the command lines. Lines that are no valid commands are refused and parked; good ones beside them are
// done. It keeps nothing of the payload.
//
// The step stays within [MaxStep], whatever a message holds: when its events come near, its last lines are refused as not
// durable, to be sent again. The caller avoids that by checking [Step.Fits] before it adds a
// message to others.
func (s *Step) Add(m Message, at wire.Instant, replies []byte) []byte {
	now := s.lane.Advance(at)
	newlines := bytes.Count(m.Payload, newline)
	s.quote, s.full, s.by = min(quoteOf(newlines), s.lane.quoted), false, m.By
	defer func() { s.by, s.request = "", "" }() // what Close writes names neither
	if problem := checkMessage(m.Payload, newlines); problem != nil {
		return s.rejectMessage(m, problem, now, replies)
	}
	// One allocation, not ten: the lines will be about as long as those of the message before.
	lines, made, answered := min(newlines+1, wire.MaxMessageLines), len(s.Events), len(replies)
	s.Events = roomFor(s.Events, min(lines*s.lane.scratch.event, wire.MaxStep))
	replies = roomFor(replies, min(lines*s.lane.scratch.reply, wire.MaxStep))

	commands := s.Commands
	in := lineReader{rest: m.Payload}
	for {
		// Several are prepared at once (see prepared), but decided and answered in order.
		lines := s.read(m, &in)
		if len(lines) == 0 {
			break
		}
		for i := range lines {
			replies = s.decide(m, i, now, replies)
		}
		s.lane.scratch.codes.fill(s.lane, s.Events, replies)
	}
	if commands = s.Commands - commands; commands == 0 {
		return s.rejectMessage(m, wire.Invalidf("", "the message has no command lines"), now, replies)
	}
	s.lane.scratch.event = (len(s.Events)-made)/commands + 8
	s.lane.scratch.reply = (len(replies)-answered)/commands + 8
	s.lane.scratch.forget(min(commands, code.Batch))
	return replies
}

// forget releases the payload, of which at most so many lines are referenced here.
func (x *scratch) forget(lines int) {
	clear(x.lines[:lines])
	clear(x.prepared[:lines])
	d := &x.decision
	clear(d.events[:cap(d.events)])
	d.prepared, d.c, d.out, d.events = nil, nil, wire.Outcome{}, d.events[:0]
}

// roomFor returns b with room for so many bytes more. It at least doubles what it replaces, so that many small messages
// cost no more than a large one.
func roomFor(b []byte, more int) []byte {
	if cap(b)-len(b) >= more {
		return b
	}
	return append(make([]byte, 0, max(len(b)+more, 2*cap(b))), b...)
}

// checkMessage refuses a message as a whole: too long or too many lines. One without any is found by deciding it.
func checkMessage(payload []byte, newlines int) error {
	if len(payload) > wire.MaxMessage {
		return wire.Invalidf("", "the message has %d bytes, at most %d are allowed; send several", len(payload), wire.MaxMessage)
	}
	if newlines < wire.MaxMessageLines {
		return nil
	}
	lines := 0
	for line := range bytes.Lines(payload) {
		if !blank(bytes.TrimSuffix(line, newline)) {
			lines++
		}
	}
	if lines > wire.MaxMessageLines {
		return wire.Invalidf("", "the message has %d lines, at most %d are allowed; send several", lines, wire.MaxMessageLines)
	}
	return nil
}

// decide answers line i of those that were read.
func (s *Step) decide(m Message, i int, now wire.Instant, replies []byte) []byte {
	x := &s.lane.scratch
	l := &x.lines[i]
	s.Commands, s.request = s.Commands+1, l.cmd.RequestID
	// Once it is full, all later lines are refused, short ones too: the sender may depend on the order.
	if s.full = s.full || s.size()+len(l.text)+costAny+costOf(s.by)+costOf(l.cmd.RequestID) > wire.MaxStep; s.full {
		return s.tooMuch(m, l, replies)
	}
	if problem := s.check(m, l, x.prepared[i].c); problem != nil {
		s.count(l.cmd.Type, wire.Invalid, false)
		out := s.reject(m, l, problem, now)
		return s.answer(&out, replies)
	}
	d := &x.decision
	d.events, d.later = d.events[:0], true
	d.decide(s.lane, &x.prepared[i], now)
	s.count(l.cmd.Type, d.out.Refusal, d.out.Repeat)
	codeAt := 0
	for i := range d.events {
		s.append(&d.events[i])
		codeAt = max(codeAt, x.stamps.CodeAt)
	}
	if d.out.Refused() {
		s.refuse(d.out.Campaign, d.out.Refusal) // also an invalid one: its sender wrote a command, and has the answer
	}
	replies = s.answer(&d.out, replies)
	if d.open != 0 {
		t := &x.codes
		t.coupons[t.n] = code.Coupon{Campaign: d.c.number, N: d.open}
		t.at[t.n].event, t.at[t.n].reply = codeAt, x.stamps.CodeAt
		t.n++
	}
	return replies
}

// OutcomeCount is how many command lines of a type were answered alike.
type OutcomeCount struct {
	OutcomeKind
	Count uint64
}

// OutcomeKind is what command lines were answered with: a refusal, a repeat or neither.
type OutcomeKind struct {
	Command wire.CommandType
	Refusal wire.Refusal
	Repeat  bool
}

// Result is the kind as metrics show it: ok, repeat or the refusal.
func (k OutcomeKind) Result() string {
	switch {
	case k.Refusal != "":
		return string(k.Refusal)
	case k.Repeat:
		return "repeat"
	}
	return "ok"
}

// count counts an outcome. A step has few kinds, and most lines are of the kind of the one before.
func (s *Step) count(t wire.CommandType, r wire.Refusal, repeat bool) {
	kind := OutcomeKind{t, r, repeat}
	for i := len(s.Outcomes) - 1; i >= 0; i-- {
		if s.Outcomes[i].OutcomeKind == kind {
			s.Outcomes[i].Count++
			return
		}
	}
	s.Outcomes = append(s.Outcomes, OutcomeCount{kind, 1})
}

// Decide answers one command at the given time (see [Lane.Advance]) and appends the events it makes to evs. The events
// are applied already when it returns. A refusal and a repeat make no events.
func (l *Lane) Decide(cmd *wire.Command, at wire.Instant, evs []wire.Event) ([]wire.Event, wire.Outcome) {
	d := decision{events: evs}
	first := len(evs)
	p := [1]prepared{{cmd: cmd}}
	l.prepare(p[:])
	d.decide(l, &p[0], l.Advance(at))
	for i := first; i < len(d.events); i++ {
		d.events[i].Code = strings.Clone(d.events[i].Code)
	}
	d.out.Code, d.out.Message = strings.Clone(d.out.Code), strings.Clone(d.out.Message)
	return d.events, d.out
}

// decide answers one command. Code and Message of the outcome are views of the decision, valid until the next one.
func (d *decision) decide(l *Lane, p *prepared, now wire.Instant) {
	d.lane, d.prepared, d.now, d.c, d.first, d.shown, d.open = l, p, now, nil, len(d.events), 0, 0
	cmd := p.cmd
	d.out = wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign}
	switch cmd.Type {
	case wire.Claim:
		d.claim()
	case wire.Remind:
		d.remind()
	case wire.Unremind:
		d.unremind()
	case wire.Expire:
		d.expire()
	case wire.RemindDue:
		d.remindDue()
	case wire.CreateCampaign:
		d.create()
	case wire.UpdateCampaign:
		d.update()
	case wire.PauseCampaign, wire.ResumeCampaign, wire.EndCampaign:
		d.changeState()
	case wire.ImportCodes:
		d.importCodes()
	case wire.Allot:
		d.allot()
	default:
		d.onCoupon()
	}
}

func (s *Step) answer(out *wire.Outcome, replies []byte) []byte {
	s.lane.scratch.stamps.CodeAt = 0
	return append(out.AppendWith(replies, &s.lane.scratch.stamps), '\n')
}

// check returns what is wrong with a line that was read, or with its subject or lane. c is the campaign it names, if known.
func (s *Step) check(m Message, l *commandLine, c *campaign) error {
	if l.problem != nil {
		return l.problem
	}
	cmd := &l.cmd
	if !m.Scope.Allows(cmd.Type) {
		return wire.Invalidf("type", "%s may not be sent on this subject", cmd.Type)
	}
	if cmd.N != 0 && m.Scope == wire.ScopeProducer {
		return wire.Invalidf("n", wire.CodeOnly)
	}
	// A campaign that is known here lives here.
	if c == nil && cmd.Campaign != "" && wire.LaneOf(cmd.Campaign, s.lane.lanes) != s.lane.lane {
		return wire.Invalidf("campaign", "lives on lane %d, not on lane %d", wire.LaneOf(cmd.Campaign, s.lane.lanes), s.lane.lane)
	}
	return nil
}

// rejectMessage refuses a whole message and parks it.
func (s *Step) rejectMessage(m Message, problem error, now wire.Instant, replies []byte) []byte {
	out := s.reject(m, &commandLine{text: m.Payload}, problem, now)
	return s.answer(&out, replies)
}

// reject refuses a line that could not be parsed and parks it. Number 0 is the whole message.
func (s *Step) reject(m Message, l *commandLine, problem error, now wire.Instant) wire.Outcome {
	out := wire.Outcome{Status: wire.StatusRefused, Refusal: wire.Invalid, Message: problem.Error(), ID: l.cmd.ID, Campaign: l.cmd.Campaign}
	if out.Campaign == "" && wire.ValidCampaignName(m.Campaign) {
		out.Campaign = m.Campaign
	}
	s.park(m, l.number, l.text, wire.Reason(problem), out.Campaign, now)
	return out
}

// tooMuch refuses a line because the lines before it fill the step. Nothing is wrong with it, so it is not parked.
func (s *Step) tooMuch(m Message, l *commandLine, replies []byte) []byte {
	s.refuse(m.Campaign, wire.NotDurable)
	return s.answer(&wire.Outcome{
		ID: l.cmd.ID, Campaign: l.cmd.Campaign, Status: wire.StatusRefused, Refusal: wire.NotDurable,
		Message: "the lines before it in the message make too many events; send it again in another message",
	}, replies)
}

// park writes a dead letter, so that no bad line is lost silently, even if its sender does not wait for an outcome.
// Those beyond maxParked of a step are counted instead, because dead letters stay in the log. All but the payload may
// be read by people who see neither codes nor customers, so the reason has nothing of the line, and a campaign that does not exist is
// not named.
func (s *Step) park(m Message, number uint32, line []byte, reason, campaignName string, now wire.Instant) {
	if s.parked == maxParked {
		r := &s.rest
		if r.Count == 0 {
			*r = wire.Event{Type: wire.CommandRejected, Sequence: m.Sequence, Line: number,
				Reason: quoted(reason, maxReasonQuoted), Payload: quoted(line, min(minQuoted, s.lane.quoted))}
		}
		r.Count, r.Bytes, r.LastSequence, r.At = r.Count+1, r.Bytes+uint64(len(line)), m.Sequence, now
		return
	}
	s.parked++
	if s.lane.campaigns[campaignName] == nil {
		campaignName = ""
	}
	s.append(&wire.Event{
		Type: wire.CommandRejected, Campaign: campaignName, At: now, Sequence: m.Sequence, Line: number,
		Reason: quoted(reason, maxReasonQuoted), Payload: quoted(line, s.quote),
	})
}

func (s *Step) append(ev *wire.Event) {
	s.lane.scratch.stamps.CodeAt = 0
	ev.By, ev.RequestID = s.by, s.request
	s.Events = append(ev.AppendWith(s.Events, &s.lane.scratch.stamps), '\n')
	s.Lines++
}

// refuse counts a refusal. Those of campaigns that do not exist are counted together: clients can invent any number
// of names, and each would be a permanent line of the log and row of the tables.
func (s *Step) refuse(campaignName string, r wire.Refusal) {
	if !s.refused.has(campaignName) && s.lane.campaigns[campaignName] == nil {
		s.refused.unknown(campaignName)
		campaignName = ""
	}
	s.refused.count(campaignName, r)
}

// Close writes what was refused, and what was not parked line by line. The step is complete after it.
func (s *Step) Close() {
	if r := &s.rest; r.Count > 0 {
		r.Reason = quoted(strconv.FormatUint(r.Count, 10)+" bad lines beyond the first "+strconv.Itoa(maxParked)+" of a step; the first: "+r.Reason, maxReasonQuoted)
		s.append(r)
	}
	s.parked, s.rest = 0, wire.Event{}
	for i := range s.refused.list {
		r := &s.refused.list[i]
		slices.SortFunc(r.counts, func(a, b wire.RefusalCount) int { return strings.Compare(string(a.Refusal), string(b.Refusal)) })
		s.append(&wire.Event{Type: wire.CommandsRefused, Campaign: r.campaign, At: s.lane.clock, Refused: r.counts, Sample: s.refused.sampleOf(r.campaign)})
	}
	s.refused.clear()
	s.lane.scratch.spare, s.refused = s.refused, tally{}
}

// read reads the next few lines and prepares their commands.
func (s *Step) read(m Message, in *lineReader) []commandLine {
	x := &s.lane.scratch
	n := 0
	for ; n < len(x.lines); n++ {
		text, ok := in.next()
		if !ok {
			break
		}
		l := &x.lines[n]
		l.text, l.number = text, in.number
		l.problem = l.cmd.ParseView(text, wire.Defaults{Campaign: m.Campaign})
		x.prepared[n] = prepared{cmd: &l.cmd}
	}
	s.lane.prepare(x.prepared[:n])
	return x.lines[:n]
}
