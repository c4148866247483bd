package api

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// eventPlace is the last message of a lane that a client has. The start of its digest shows that the log is still the one that the
// client read: after a restore a lane may have other messages at the same sequences.
type eventPlace struct {
	Sequence uint64 `json:"s,omitempty"`
	Digest   string `json:"d,omitempty"`
}

// digestStart is how many symbols of a digest a cursor has.
const digestStart = 8

// eventEnds are the cursors of a stream: of what it selects, since events before a cursor that another stream leaves out would be lost
// without a word. Unlike those of lists they are of any client: a program that gets another key goes on where it was.
func (a *API) eventEnds(in *EventsWanted) ops.Ends {
	return a.Ops.Cursors.Of("events", access.Principal{}, &EventsWanted{Types: sorted(in.Types), Campaign: sorted(in.Campaign)})
}

// sorted is a text of names in their order.
func sorted(names string) string {
	all := listed(names)
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// eventPlaces is the place of a cursor: the last messages of all lanes.
func (a *API) eventPlaces(at map[int]eventlog.Position) string {
	all := make([]eventPlace, a.Log.Lanes)
	for lane := range all {
		if pos := at[lane]; pos.Sequence > 0 {
			all[lane] = eventPlace{pos.Sequence, pos.Digest[:digestStart]}
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic("api: places of events are no JSON: " + err.Error()) // they are numbers and texts
	}
	return string(text)
}

// places returns where a stream starts: by lane, the last message that the client has.
func (a *API) places(ctx context.Context, ends ops.Ends, after string) (map[int]eventlog.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	switch after {
	case "":
		return map[int]eventlog.Position{}, nil
	case "now":
		return a.ends(ctx)
	}
	text, err := ends.Open(after)
	var all []eventPlace
	if err != nil || json.Unmarshal([]byte(text), &all) != nil || len(all) != a.Log.Lanes {
		return nil, invalid("query.after", "must be a cursor of the events of this log, with the same types and campaign, or now; start again without it")
	}
	return a.verified(ctx, all)
}

// laneReads bounds the lanes that one request reads at once.
const laneReads = 8

// verified returns the positions of a cursor, after comparing it with the log.
func (a *API) verified(ctx context.Context, all []eventPlace) (map[int]eventlog.Position, error) {
	return a.eachLane(ctx, func(ctx context.Context, stream eventlog.Stream, lane int) (eventlog.Position, error) {
		pos, err := stream.Position(ctx, a.Log.UUID, lane, all[lane].Sequence)
		if err == nil && pos.Sequence > 0 && pos.Digest[:digestStart] != all[lane].Digest {
			err = eventlog.ErrDiverged
		}
		return pos, err
	})
}

// ends returns the last message of each lane.
func (a *API) ends(ctx context.Context) (map[int]eventlog.Position, error) {
	return a.eachLane(ctx, func(ctx context.Context, stream eventlog.Stream, lane int) (eventlog.Position, error) {
		bounds, err := stream.Bounds(ctx)
		if err != nil {
			return eventlog.Position{}, err
		}
		return stream.Position(ctx, a.Log.UUID, lane, bounds.Last)
	})
}

func (a *API) eachLane(ctx context.Context, read func(context.Context, eventlog.Stream, int) (eventlog.Position, error)) (map[int]eventlog.Position, error) {
	all := map[int]eventlog.Position{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(laneReads)
	for lane := range a.Log.Lanes {
		g.Go(func() error {
			pos, err := read(ctx, eventlog.Events(a.JS, lane).In(a.Log), lane)
			mu.Lock()
			defer mu.Unlock()
			all[lane] = pos
			return err
		})
	}
	err := g.Wait()
	switch {
	case fill.IsLost(err) || errors.Is(err, eventlog.ErrHole):
		return nil, invalid("query.after", "the log no longer has what the cursor names: it was restored, or lost its tail; start again without it")
	case err != nil:
		return nil, unavailable("the log cannot be read", err)
	}
	return all, nil
}
