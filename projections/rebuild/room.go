package rebuild

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/room"
)

// What a rebuild shares with live work: the disk, and the machine.

const (
	// tablesPerLog is the maximum of bytes in tables and indexes per byte of log: about 1.3 for claims without
	// attributes (235 bytes of row and indexes, 180 of line), which grow most.
	tablesPerLog = 1.7
	// sparePart is the part that must remain free for PostgreSQL's write-ahead log and for sorting.
	sparePart = 0.25
)

// $1 = schema
const sizeSQL = `
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = $1 AND c.relkind = 'r'`

// checkRoom returns an error if the disk of PostgreSQL has no room for another set of tables. Free space is known only
// on this machine, and if PostgreSQL shows its data directory; otherwise note reports that it was not checked.
func checkRoom(ctx context.Context, s *Session) (note string, err error) {
	var live int64
	if err := s.pool.QueryRow(ctx, sizeSQL, s.now.Live).Scan(&live); err != nil {
		return "", err
	}
	logged := uint64(0)
	for n := range s.log.Lanes {
		bounds, err := eventlog.Events(s.js, n).Bounds(ctx)
		if err != nil {
			return "", err
		}
		logged += bounds.Bytes
	}
	// A large part of a log may be refusals, which make no rows; then the live tables are a better estimate, unless
	// rows were lost from them. Bloated tables are an overestimate.
	need := tablesPerLog * float64(logged)
	if float64(live) > need/4 {
		need = min(need, float64(live))
	}
	need *= 1 + sparePart
	space, known := freeRoom(ctx, s)
	switch {
	case !known:
		return "free space on the disk of PostgreSQL was not checked: it is on another machine, or does not show its data directory", nil
	case float64(space.Free) < need+float64(space.Reserve()):
		return "", refuse("the disk of PostgreSQL has %s free, another set of tables needs about %s, and %s remain free as a reserve; make room, "+
			"drop the tables of the last rebuild (`scrip rebuild --drop-previous`), or move PostgreSQL to a larger disk",
			room.Text(space.Free), room.Text(uint64(need)), room.Text(space.Reserve()))
	}
	return "", nil
}

// full returns an error if the disk of PostgreSQL has no more than its reserve left: the log may be on it.
func full(ctx context.Context, s *Session) error {
	space, known := freeRoom(ctx, s)
	if !known || space.Free >= space.Reserve() {
		return nil
	}
	return fmt.Errorf("%w: that of PostgreSQL has %s free, and %s remain free as a reserve; make room, then run it again",
		room.ErrFull, room.Text(space.Free), room.Text(space.Reserve()))
}

// freeRoom measures the disk of PostgreSQL.
func freeRoom(ctx context.Context, s *Session) (space room.Space, known bool) {
	if s.opts.Room != nil {
		return s.opts.Room()
	}
	if !isLocal(s.conn.Config().Host) {
		return space, false
	}
	var dir string
	if s.pool.QueryRow(ctx, "SHOW data_directory").Scan(&dir) != nil { // needs a right that is often missing
		return space, false
	}
	space, err := room.Measure(dir)
	return space, err == nil
}

func isLocal(host string) bool {
	if strings.HasPrefix(host, "/") || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

const (
	// lookFor bounds one check whether live work lags.
	lookFor = 5 * time.Second
	// lookLanes is how many lanes one check reads, in rotation: it costs the servers some requests per lane.
	lookLanes = 4
	// lagsFrom is the number of waiting messages from which a lane, or its live tables, count as lagging. A busy lane
	// always has some in flight.
	lagsFrom = 200
	// longestPause bounds the pause of a throttled loader between two batches.
	longestPause = time.Second
)

// lagging reports whether some of lookLanes lanes, from the given one on, lag with their commands, or live tables with
// their events.
func lagging(ctx context.Context, s *Session, first int) bool {
	ctx, done := context.WithTimeout(ctx, lookFor)
	defer done()
	for i := range min(lookLanes, s.log.Lanes) {
		if lags(ctx, s, (first+i)%s.log.Lanes) {
			return true
		}
	}
	return false
}

// Reads a checkpoint only if it moved recently: a projector that lags commits all the time; otherwise none is running.
//
// $1 = projection   $2 = lane
const appliedSQL = `
SELECT sequence FROM scrip.checkpoint WHERE projection = $1 AND lane = $2 AND updated_at > clock_timestamp() - interval '5 seconds'`

// lags reports whether a lane lags with its commands or its live tables with their events. If that cannot be read, it
// returns true.
func lags(ctx context.Context, s *Session, lane int) bool {
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
	if commands.Last > covered+lagsFrom {
		return true
	}
	var applied int64
	err = s.pool.QueryRow(ctx, appliedSQL, fill.Projection, lane).Scan(&applied)
	return err == nil && events.Last > uint64(applied)+lagsFrom // no row: there are no tables, or no projector is running
}

// level is the level of load for the loaders, which work half of the time while live work lags.
func (r *reporter) level() load.Level {
	if r.get().Yielding {
		return load.Busy
	}
	return load.Idle
}
