package rebuild

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// lookEvery is how often we look whether live work lags, lookFor how long that may take.
	lookEvery = time.Second
	lookFor   = 5 * time.Second
	// lookLanes is how many lanes are looked at each time, in turn: a look costs the servers some requests per lane.
	lookLanes = 4
	// lagging is from how many messages on a lane, or its live table, lags. A busy lane always has some under way.
	lagging = 200
	// longestPause bounds what a yielding loader waits between two batches.
	longestPause = time.Second
)

// watchTraffic notes, until ctx ends, whether lanes have commands to decide, or live tables events to apply, that wait.
func (s *Session) watchTraffic(ctx context.Context) {
	defer s.report.yielding.Store(false)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for first := 0; ; first += lookLanes {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		looking, done := context.WithTimeout(ctx, lookFor)
		busy := false
		for i := range min(lookLanes, s.log.Lanes) {
			busy = busy || s.lags(looking, (first+i)%s.log.Lanes)
		}
		done()
		s.report.yielding.Store(busy)
	}
}

// One that lags commits all the time; where none did for a while, none is at work.
//
// $1 = projection   $2 = lane
const appliedSQL = `
SELECT sequence FROM scrip.checkpoint WHERE projection = $1 AND lane = $2 AND updated_at > clock_timestamp() - interval '5 seconds'`

// lags says whether a lane is behind with its commands or its live tables with its events. Who cannot be asked is busy.
func (s *Session) lags(ctx context.Context, lane int) bool {
	events, err := eventlog.Events(s.js, lane).In(s.log).Tail(ctx)
	if err != nil {
		return true
	}
	commands, err := eventlog.Commands(s.js, lane).Bounds(ctx)
	if err != nil {
		return true
	}
	covered := uint64(0)
	if events.Message != nil {
		covered = events.Message.Next() - 1
	}
	if commands.Last > covered+lagging {
		return true
	}
	var applied int64
	err = s.pool.QueryRow(ctx, appliedSQL, projector.Projection, lane).Scan(&applied)
	return err == nil && events.Last > uint64(applied)+lagging // no row: no tables or no projector waits for us
}

// yield pauses, while live work lags, for as long as the last batch took: half of the time is left to others. Nothing is
// yielded while others wait for us.
func (s *Session) yield(ctx context.Context, phase Phase, took time.Duration) error {
	if phase == Exchanging || !s.report.yielding.Load() {
		return nil
	}
	return topology.Pause(ctx, min(took, longestPause))
}
