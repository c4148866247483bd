package rebuild

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/load"
)

// Who may replace the live tables: the role, the version of the program, and what else runs on the database.

// Who owns the live tables, and what we may do.
//
// $1 = the live schema
const rightsSQL = `
SELECT current_user::text, current_database()::text, coalesce(pg_get_userbyid(s.nspowner)::text, current_user::text),
       coalesce(pg_has_role(current_user, s.nspowner, 'MEMBER'), true),
       (SELECT rolsuper FROM pg_roles WHERE rolname = session_user),
       has_database_privilege(coalesce(s.nspowner, (SELECT oid FROM pg_roles WHERE rolname = current_user)), d.oid, 'CREATE')
FROM pg_database d LEFT JOIN pg_namespace s ON s.nspname = $1 WHERE d.datname = current_database()`

// rights returns the role to work as: the owner of the live tables, so that a role that may use them may use the new
// ones. Errors of kind ErrRefused name the GRANT that is missing.
func rights(ctx context.Context, conn *pgx.Conn) (owner string, super bool, err error) {
	var me, database string
	var member, create bool
	if err := conn.QueryRow(ctx, rightsSQL, schema.Name).Scan(&me, &database, &owner, &member, &super, &create); err != nil {
		return "", false, fmt.Errorf("reading the rights of the role: %w", err)
	}
	quoted := func(name string) string { return pgx.Identifier{name}.Sanitize() }
	switch {
	case !member:
		return "", false, refuse("role %s does not own schema scrip; run this as %s, or have its owner run: GRANT %s TO %s", me, owner, quoted(owner), quoted(me))
	case !create:
		return "", false, refuse("role %s may not create schemas in database %s; have the owner of the database run: GRANT CREATE ON DATABASE %s TO %s",
			owner, database, quoted(database), quoted(owner))
	}
	return owner, super, nil
}

// setRole switches a connection to the owner's role, so that the owner owns all it creates.
func setRole(ctx context.Context, conn *pgx.Conn, owner string) error {
	_, err := conn.Exec(ctx, "SET ROLE "+pgx.Identifier{owner}.Sanitize())
	return err
}

// $1, $2 = upper and lower half of the lock's number
const holderSQL = `
SELECT l.pid, coalesce(a.application_name, ''), coalesce(a.backend_start, now())
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.classid::bigint = $1 AND l.objid::bigint = $2 AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// holder describes the connection that has an advisory lock; found is false if none has it.
func holder(ctx context.Context, db rower, lock int64) (text string, found bool, err error) {
	var pid int
	var name string
	var since time.Time
	err = db.QueryRow(ctx, holderSQL, lock>>32, lock&0xffffffff).Scan(&pid, &name, &since)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", false, nil
	case err != nil:
		return "", false, err
	case name == "":
		return fmt.Sprintf("PostgreSQL process %d", pid), true, nil
	}
	return fmt.Sprintf("%s (PostgreSQL process %d, since %s)", name, pid, since.UTC().Format(time.RFC3339)), true, nil
}

// applicationName returns an application_name: at most 63 bytes.
func applicationName(what string) string {
	host, _ := os.Hostname() // informative only
	name := fmt.Sprintf("%s, process %d on %s", what, os.Getpid(), host)
	return name[:min(len(name), 63)]
}

// sameVersion refuses tables of another version than this program's.
func sameVersion(ctx context.Context, db rower) error {
	version, err := schema.Applied(ctx, db)
	switch {
	case err != nil:
		return err
	case version == 0:
		return refuse("there are no read tables in this database; `scrip serve` or `scrip rebuild` creates them")
	case version > schema.Format:
		return newer(version)
	case version != schema.Format:
		return refuse("the read tables have format %d, and this program needs %d; run `scrip rebuild`", version, schema.Format)
	}
	return nil
}

func newer(version int64) error {
	return refuse("the read tables have format %d, this program knows formats up to %d; use the scrip that made them", version, schema.Format)
}

// replaceable returns the format of the live tables, or an error if they must not be replaced: a projector of a newer
// version would stop permanently on tables of this one.
func replaceable(ctx context.Context, db rower) (version int64, err error) {
	version, err = schema.Applied(ctx, db)
	if err == nil && version > schema.Format {
		err = newer(version)
	}
	return version, err
}

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
func (s *Session) checkRoom(ctx context.Context) (note string, err error) {
	var live int64
	if err := s.pool.QueryRow(ctx, sizeSQL, schema.Name).Scan(&live); err != nil {
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
	free, known := s.room(ctx)
	switch {
	case !known:
		return "free space on the disk of PostgreSQL was not checked: it is on another machine, or does not show its data directory", nil
	case float64(free) < need:
		return "", refuse("the disk of PostgreSQL has %s free, and another set of tables needs about %s; make room, "+
			"drop the tables of the last rebuild (`scrip rebuild --drop-previous`), or move PostgreSQL to a larger disk", bytesText(float64(free)), bytesText(need))
	}
	return "", nil
}

// room returns the free bytes on the disk of PostgreSQL.
func (s *Session) room(ctx context.Context) (free uint64, known bool) {
	if s.opts.Room != nil {
		return s.opts.Room()
	}
	if !isLocal(s.conn.Config().Host) {
		return 0, false
	}
	var dir string
	if s.pool.QueryRow(ctx, "SHOW data_directory").Scan(&dir) != nil { // needs a right that is often missing
		return 0, false
	}
	var fs syscall.Statfs_t
	if _, err := os.Stat(dir); err != nil || syscall.Statfs(dir, &fs) != nil {
		return 0, false
	}
	return fs.Bavail * uint64(fs.Bsize), true
}

func isLocal(host string) bool {
	if strings.HasPrefix(host, "/") || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func bytesText(n float64) string {
	unit := 0
	for n >= 1024 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	return fmt.Sprintf("%.1f %s", n, units[unit])
}

var units = []string{"B", "KiB", "MiB", "GiB", "TiB"}

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
func (s *Session) lagging(ctx context.Context, first int) bool {
	ctx, done := context.WithTimeout(ctx, lookFor)
	defer done()
	for i := range min(lookLanes, s.log.Lanes) {
		if s.lags(ctx, (first+i)%s.log.Lanes) {
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
