package domain

import (
	"bytes"
	"sort"
)

// Step collects what a lane decides and writes at once: the events of any number of command messages, one event message.
//
//	message ──Add──> lines ──> Decide, Decide, … ──> Events        (to be written)
//	                                             └──> outcome lines (to be sent once Events are durable)
//	                         Close ──> commands.refused, one line per campaign
//
// A step that comes to nothing is still written, without lines: its header says which commands it covers.
type Step struct {
	Events   []byte // event lines, each with its newline
	Lines    int    // number of event lines
	Commands int    // command lines answered

	lane      *Lane
	scratch   []Event
	cmd       Command
	refused   []campaignRefusals
	refusedOf map[string]int // place of a campaign in refused
	closing   int            // the most bytes that Close will add
	quote     int            // bytes a dead letter of the message being added may quote
}

type campaignRefusals struct {
	campaign string
	counts   []RefusalCount
}

// Message is one command message as the log holds it.
type Message struct {
	Sequence uint64 // in the command stream
	Scope    Scope  // from its subject
	Campaign string // from its subject; "" where each line says it
	Payload  []byte
}

// NewStep starts a step on the lane; Reset reuses it.
func NewStep(l *Lane) *Step { return &Step{lane: l} }

// Reset empties the step. The Events of the one before are not touched any more.
func (s *Step) Reset() {
	clear(s.refusedOf)
	*s = Step{lane: s.lane, scratch: s.scratch[:0], refused: s.refused[:0], refusedOf: s.refusedOf, Events: make([]byte, 0, cap(s.Events))}
}

// Add decides all commands of a message at the given lane time and appends their outcome lines, each with its newline,
// in the order of the command lines. Bad lines are refused and parked; good ones beside them are done.
//
// The step stays within [MaxStep], whatever a message holds: when its events come near, its last lines are refused as not
// durable, to be sent again. Whether it fits beside others, so that this does not happen, the caller asks before
// ([Step.Fits]).
func (s *Step) Add(m Message, at Instant, replies []byte) []byte {
	now := s.lane.Advance(at)
	s.quote = quoteOf(m.Payload)
	if problem := checkMessage(m.Payload); problem != nil {
		out := s.reject(m, 0, m.Payload, problem, now)
		return append(out.AppendJSON(replies), '\n')
	}
	number, full := uint32(0), false
	for rest := m.Payload; len(rest) > 0; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		number++
		if blank(line) {
			continue
		}
		var out Outcome
		// Once full, full for all that follow, short ones too: the sender may count on the order.
		if full = full || s.size()+len(line)+costAny > MaxStep; full {
			out = s.tooMuch(m, line)
		} else {
			out = s.decide(m, number, line, now)
		}
		replies = append(out.AppendJSON(replies), '\n')
	}
	return replies
}

// checkMessage refuses a message as a whole: too long, too many lines, or none.
func checkMessage(payload []byte) error {
	if len(payload) > MaxMessage {
		return invalid("", "the message has %d bytes, at most %d are allowed; send several", len(payload), MaxMessage)
	}
	lines := 0
	for rest := payload; len(rest) > 0; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		if !blank(line) {
			lines++
		}
	}
	switch {
	case lines == 0:
		return invalid("", "the message has no command lines")
	case lines > MaxMessageLines:
		return invalid("", "the message has %d lines, at most %d are allowed; send several", lines, MaxMessageLines)
	}
	return nil
}

func blank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

// decide answers one line.
func (s *Step) decide(m Message, number uint32, line []byte, now Instant) Outcome {
	s.Commands++
	if err := s.parse(m, line); err != nil {
		return s.reject(m, number, line, err, now)
	}
	evs, out := s.lane.Decide(&s.cmd, now, s.scratch[:0])
	s.scratch = evs
	for i := range evs {
		s.append(&evs[i])
	}
	switch {
	case out.Refusal == Invalid:
		s.park(m, number, line, out.Message, out.Campaign, now)
	case out.Refused():
		s.count(out.Campaign, out.Refusal)
	}
	return out
}

// parse reads a line and checks that it may stand on the subject it came on.
func (s *Step) parse(m Message, line []byte) error {
	if err := ParseCommand(line, Defaults{Campaign: m.Campaign}, &s.cmd); err != nil {
		return err
	}
	c := &s.cmd
	if !m.Scope.Allows(c.Type) {
		return invalid("type", "%s may not be sent on this subject", c.Type)
	}
	if c.Campaign != "" && LaneOf(c.Campaign, s.lane.lanes) != s.lane.lane {
		return invalid("campaign", "%s lives on lane %d, not on lane %d", c.Campaign, LaneOf(c.Campaign, s.lane.lanes), s.lane.lane)
	}
	return nil
}

// reject refuses a line that was not understood and parks it.
func (s *Step) reject(m Message, number uint32, line []byte, problem error, now Instant) Outcome {
	out := Outcome{Status: StatusRefused, Refusal: Invalid, Message: problem.Error()}
	if number > 0 {
		out.ID, out.Campaign = s.cmd.ID, s.cmd.Campaign
	}
	if out.Campaign == "" && ValidCampaignName(m.Campaign) {
		out.Campaign = m.Campaign
	}
	s.park(m, number, line, out.Message, out.Campaign, now)
	return out
}

// tooMuch refuses a line because the lines before it fill the step. Nothing is wrong with it, so it is not parked.
func (s *Step) tooMuch(m Message, line []byte) Outcome {
	s.Commands++
	_ = ParseCommand(line, Defaults{Campaign: m.Campaign}, &s.cmd) // for its id
	s.count(m.Campaign, NotDurable)
	return Outcome{
		ID: s.cmd.ID, Campaign: s.cmd.Campaign, Status: StatusRefused, Refusal: NotDurable,
		Message: "the lines before it in the message make too many events; send it again in another message",
	}
}

// park writes a dead letter: nothing bad is lost silently, also where nobody waits for an answer.
func (s *Step) park(m Message, number uint32, line []byte, reason, campaignName string, now Instant) {
	s.append(&Event{
		Type: CommandRejected, Campaign: campaignName, At: now, Sequence: m.Sequence, Line: number,
		Reason: quoted(reason, maxReasonQuoted), Payload: quoted(line, s.quote),
	})
}

func (s *Step) append(ev *Event) {
	s.Events = append(ev.AppendJSON(s.Events), '\n')
	s.Lines++
}

// count notes a refusal; a million of them cost a line.
func (s *Step) count(campaignName string, r Refusal) {
	// The newest campaign first: refusals come in crowds.
	i := len(s.refused) - 1
	if i < 0 || s.refused[i].campaign != campaignName {
		var known bool
		if i, known = s.refusedOf[campaignName]; !known {
			if s.refusedOf == nil {
				s.refusedOf = make(map[string]int)
			}
			i = len(s.refused)
			s.refusedOf[campaignName] = i
			s.refused = append(s.refused, campaignRefusals{campaign: campaignName})
			s.closing += costRefused + len(campaignName)
		}
	}
	counts := s.refused[i].counts
	for k := range counts {
		if counts[k].Refusal == r {
			counts[k].Count++
			return
		}
	}
	s.refused[i].counts = append(counts, RefusalCount{r, 1})
	s.closing += costReason + len(r)
}

// Close writes what was refused. The step is complete after it.
func (s *Step) Close() {
	for _, r := range s.refused {
		sort.Slice(r.counts, func(i, j int) bool { return r.counts[i].Refusal < r.counts[j].Refusal })
		s.append(&Event{Type: CommandsRefused, Campaign: r.campaign, At: s.lane.clock, Refused: r.counts})
	}
	s.refused, s.closing = s.refused[:0], 0
	clear(s.refusedOf)
}

// LaneOf is the lane of a campaign: FNV-1a-32 of its name mod lanes, what NATS' own partition(lanes, 1) computes.
func LaneOf(campaignName string, lanes int) int {
	h := uint32(2166136261)
	for i := 0; i < len(campaignName); i++ {
		h = (h ^ uint32(campaignName[i])) * 16777619
	}
	return int(h % uint32(lanes))
}

// LaneOfNumber is the lane of the campaign with that number.
func LaneOfNumber(number uint32, lanes int) int { return int(number % uint32(lanes)) }
