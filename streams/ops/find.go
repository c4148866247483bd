package ops

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// findFor is the time after which a search reads no further part of a lane: it ends within 200 ms. Tests use a shorter one.
var findFor = 150 * time.Millisecond

const (
	// partLeast and partMost are how many messages of a lane are read at once, and partFor how long that is to take.
	partLeast, partMost = 64, 4096
	partFor             = 10 * time.Millisecond
	// findPatience bounds the read of one part, from a server that does not answer.
	findPatience = 2 * time.Second
)

// FindCommand names a command.
type FindCommand struct {
	ID       string `json:"id" maxLength:"64" doc:"Of the command."`
	Campaign string `json:"campaign,omitempty" maxLength:"64" doc:"Its campaign; absent = any. Only the lane of the campaign is searched."`
	After    string `json:"after,omitempty" maxLength:"16384" doc:"The next of the answer before: goes on with older messages."`
}

func (q *FindCommand) cursor() *string { return &q.After }

// FoundCommand is what a command did, as far as the log was searched. There is no index of commands: their events have their ids,
// and are searched from the newest on.
type FoundCommand struct {
	Events   []CommandEvent `json:"events" nullable:"false" doc:"Of the newest messages that have some. None = no event is in what was searched; with a next the rest is unknown."`
	Searched []SearchedLane `json:"searched" nullable:"false" doc:"How far each lane was searched."`
	Next     string         `json:"next,omitempty" doc:"The value of after that goes on with older messages; absent = all were searched."`
}

func (f *FoundCommand) next() *string { return &f.Next }

// CommandEvent is an event that a command caused.
type CommandEvent struct {
	At       time.Time `json:"at"`
	What     string    `json:"what" doc:"The type of the event."`
	Campaign string    `json:"campaign,omitempty"`
	N        uint32    `json:"n,omitempty" doc:"The coupon."`
	By       string    `json:"by,omitempty"`
	Lane     int       `json:"lane"`
	Sequence uint64    `json:"sequence"`
	Line     int       `json:"line"`
}

// SearchedLane is how far a lane was searched.
type SearchedLane struct {
	Lane     int       `json:"lane"`
	Messages uint64    `json:"messages" doc:"How many were read."`
	Since    time.Time `json:"since,omitzero" doc:"When the oldest of them was stored. Absent = none was read."`
	All      bool      `json:"all,omitempty" doc:"It has no older ones."`
}

// FindCommand finds the newest events of a command, reading the log backwards for 200 ms. The answer has what was not read.
func (o *Ops) FindCommand(ctx context.Context, who Caller, q FindCommand) (out FoundCommand, err error) {
	if q.ID == "" || q.Campaign != "" && !wire.ValidCampaignName(q.Campaign) {
		return out, invalid("id", "give the id of a command, and the name of a campaign or none")
	}
	s := search{ops: o, who: who, id: q.ID, text: wire.AppendText([]byte(`"id":`), q.ID), events: []CommandEvent{}}
	for n := range o.Log.Lanes {
		if q.Campaign == "" || wire.LaneOf(q.Campaign, o.Log.Lanes) == n {
			s.lanes = append(s.lanes, searchedLane{SearchedLane: SearchedLane{Lane: n}, part: partLeast})
		}
	}
	if q.After != "" && !s.goOn([]byte(q.After)) {
		return out, invalid("after", "must be the next of a search in the same log, with the same campaign")
	}
	end, err := o.searches.take(ctx, who.Client(), &searchTurn)
	if err != nil {
		return out, err
	}
	defer end()
	if err := s.run(ctx); err != nil {
		return out, err
	}
	out = FoundCommand{Events: s.events, Searched: []SearchedLane{}}
	for i := range s.lanes {
		out.Searched = append(out.Searched, s.lanes[i].SearchedLane)
	}
	out.Next = s.place()
	return out, nil
}

// search is a search through lanes.
type search struct {
	ops    *Ops
	who    Caller
	id     string
	text   []byte // the id as an event has it
	lanes  []searchedLane
	events []CommandEvent
}

// searchedLane is a lane of a search. Messages from down on were read, now or by searches before it.
type searchedLane struct {
	SearchedLane
	down  uint64 // 0 = none were read, 1 = all
	first uint64 // of the stream, 0 = not known
	part  uint64 // how many to read next
}

// run reads until an event is found, the time is over, or all is read: always of the lane whose messages were read up to the
// youngest one, so that what was read is the newest of all lanes. At least one part is read. An error after that ends the search
// with what it has.
func (s *search) run(ctx context.Context) error {
	for began, read := time.Now(), false; ; read = true {
		lane := s.youngest()
		if lane == nil || read && (len(s.events) > 0 || time.Since(began) >= findFor) {
			return nil
		}
		if err := s.read(ctx, lane); err != nil {
			if read && ctx.Err() == nil {
				return nil
			}
			return fmt.Errorf("lane %d: %w", lane.Lane, err)
		}
	}
}

// youngest is the lane to go on with, nil = all were read.
func (s *search) youngest() (lane *searchedLane) {
	for i := range s.lanes {
		l := &s.lanes[i]
		if !l.All && (lane == nil || !lane.Since.IsZero() && (l.Since.IsZero() || l.Since.After(lane.Since))) {
			lane = l
		}
	}
	return lane
}

// read reads the next part of a lane.
func (s *search) read(ctx context.Context, lane *searchedLane) error {
	ctx, cancel := context.WithTimeout(ctx, findPatience)
	defer cancel()
	stream := eventlog.Events(s.ops.JetStream, lane.Lane).In(s.ops.Log)
	if lane.first == 0 {
		bounds, err := stream.Bounds(ctx)
		if err != nil {
			return err
		}
		if lane.first = max(bounds.First, 1); lane.down == 0 || lane.down > bounds.Last+1 { // the log was restored since
			lane.down = bounds.Last + 1
		}
	}
	if lane.All = lane.down <= lane.first; lane.All {
		return nil
	}
	from, began := max(lane.down, lane.first+lane.part)-lane.part, time.Now()
	var found []CommandEvent
	var since time.Time
	messages := uint64(0)
	err := stream.Span(ctx, from, lane.down-1, func(raw *eventlog.Raw) {
		if messages++; since.IsZero() {
			since = raw.Time
		}
		if bytes.Contains(raw.Data, s.text) {
			found = append(s.eventsOf(lane.Lane, raw), found...)
		}
	})
	if err != nil {
		return err
	}
	s.events = append(s.events, found...)
	lane.Messages, lane.down, lane.All = lane.Messages+messages, from, from == lane.first
	if !since.IsZero() {
		lane.Since = since
	}
	took := max(time.Since(began), partFor/4) // four times as many at most
	lane.part = min(partMost, max(partLeast, uint64(float64(lane.part)*float64(partFor)/float64(took))))
	return nil
}

// eventsOf are the events of a message that the command caused and the caller may see.
func (s *search) eventsOf(lane int, raw *eventlog.Raw) (all []CommandEvent) {
	for n, line := range eventlog.Lines(raw.Data) {
		var e wire.Event
		if wire.ParseEvent(line, &e) == nil && e.ID == s.id && s.who.Check(access.OpFindCommand, e.Campaign) == nil {
			all = append(all, CommandEvent{e.At.Time(), e.Type.Spec().Name, e.Campaign, e.N, e.By, lane, raw.Sequence, n + 1})
		}
	}
	return all
}

// place is where the search ended: of each lane down, 1 = all was read, 0 = it was not begun. "" = all lanes were read.
func (s *search) place() string {
	if s.youngest() == nil {
		return ""
	}
	var place []byte
	for i := range s.lanes {
		down := s.lanes[i].down
		if s.lanes[i].All {
			down = 1
		}
		place = binary.AppendUvarint(place, down)
	}
	return string(place)
}

// goOn starts where a search ended, and reports whether that is a place of these lanes.
func (s *search) goOn(place []byte) bool {
	for i := range s.lanes {
		down, n := binary.Uvarint(place)
		if n <= 0 {
			return false
		}
		place = place[n:]
		l := &s.lanes[i]
		l.down, l.All = down, down == 1
	}
	return len(place) == 0
}
