package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

const (
	// findMost is how many of the newest messages of each lane are searched, and findFor how long in all.
	findMost = 2000
	findFor  = 3 * time.Second
)

// FindCommand names a command.
type FindCommand struct {
	ID       string `json:"id" maxLength:"64" doc:"Of the command."`
	Campaign string `json:"campaign,omitempty" maxLength:"64" doc:"Its campaign; absent = any."`
}

// FoundCommand is what a command did, as far as the newest messages have it. There is no index of commands: their events have their
// ids, and are searched from the newest on.
type FoundCommand struct {
	Events   []CommandEvent `json:"events" nullable:"false"`
	Searched []SearchedLane `json:"searched" nullable:"false"`
}

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
	Messages int       `json:"messages" doc:"How many of the newest."`
	Since    time.Time `json:"since,omitzero" doc:"When the oldest of them was stored."`
	All      bool      `json:"all,omitempty" doc:"It has no older ones."`
}

// FindCommand finds the events of a command among the newest messages.
func (o *Ops) FindCommand(ctx context.Context, who Caller, q FindCommand) (out FoundCommand, err error) {
	if q.ID == "" || q.Campaign != "" && !wire.ValidCampaignName(q.Campaign) {
		return out, invalid("id", "give the id of a command, and the name of a campaign or none")
	}
	out = FoundCommand{Events: []CommandEvent{}, Searched: []SearchedLane{}}
	ctx, cancel := context.WithTimeout(ctx, findFor)
	defer cancel()
	id := wire.AppendText([]byte(`"id":`), q.ID)
	for n := range o.Log.Lanes {
		if q.Campaign != "" && wire.LaneOf(q.Campaign, o.Log.Lanes) != n {
			continue
		}
		stream := eventlog.Events(o.JetStream, n).In(o.Log)
		bounds, err := stream.Bounds(ctx)
		if ctx.Err() != nil { // out of time: what the other lanes gave is an answer
			out.Searched = append(out.Searched, SearchedLane{Lane: n})
			continue
		}
		if err != nil {
			return out, fmt.Errorf("lane %d: %w", n, err)
		}
		searched := SearchedLane{Lane: n, All: true}
		for sequence := bounds.Last; sequence > 0 && sequence >= bounds.First; sequence-- {
			if searched.Messages == findMost || ctx.Err() != nil {
				searched.All = false
				break
			}
			raw, err := stream.Get(ctx, sequence)
			switch {
			case errors.Is(err, jetstream.ErrMsgNotFound), ctx.Err() != nil:
				continue
			case err != nil:
				return out, fmt.Errorf("lane %d: %w", n, err)
			}
			searched.Messages, searched.Since = searched.Messages+1, raw.Time.UTC()
			if bytes.Contains(raw.Data, id) {
				out.Events = append(out.Events, eventsOf(q.ID, n, &raw)...)
			}
		}
		out.Searched = append(out.Searched, searched)
	}
	out.Events = slices.DeleteFunc(out.Events, func(e CommandEvent) bool { return who.Check(access.OpFindCommand, e.Campaign) != nil })
	return out, nil
}

// eventsOf are the events of a message that a command caused.
func eventsOf(id string, lane int, raw *eventlog.Raw) (all []CommandEvent) {
	for n, line := range eventlog.Lines(raw.Data) {
		var e wire.Event
		if wire.ParseEvent(line, &e) == nil && e.ID == id {
			all = append(all, CommandEvent{e.At.Time(), e.Type.Spec().Name, e.Campaign, e.N, e.By, lane, raw.Sequence, n + 1})
		}
	}
	return all
}
