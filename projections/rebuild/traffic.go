package rebuild

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/load"
)

const (
	// lookEvery is the time between checks whether live work lags, lookFor bounds one check.
	lookEvery = time.Second
	lookFor   = 5 * time.Second
	// lookLanes is how many lanes one check reads, in rotation: it costs the servers some requests per lane.
	lookLanes = 4
	// lagging is the number of waiting messages from which a lane, or its live tables, count as lagging. A busy lane
	// always has some in flight.
	lagging = 200
	// longestPause bounds the pause of a throttled loader between two batches.
	longestPause = time.Second
)

// watchTraffic records, until ctx ends, whether lanes lag with their commands or live tables with their events.
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

// Reads a checkpoint only if it moved recently: a projector that lags commits all the time; otherwise none is running.
//
// $1 = projection   $2 = lane
const appliedSQL = `
SELECT sequence FROM scrip.checkpoint WHERE projection = $1 AND lane = $2 AND updated_at > clock_timestamp() - interval '5 seconds'`

// lags reports whether a lane lags with its commands or its live tables with their events. If that cannot be read, it
// returns true.
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
	return err == nil && events.Last > uint64(applied)+lagging // no row: there are no tables, or no projector is running
}

// level is the level of load for the loaders, which work half of the time while live work lags.
func (r *reporter) level() load.Level {
	if r.yielding.Load() {
		return load.Busy
	}
	return load.Idle
}
