package rebuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// rebuildLock is the advisory lock of whoever rebuilds, copies or verifies in a database: "scriprbd" as bytes.
	rebuildLock = 0x7363726970726264
	// pingEvery is how often the connection that holds it is asked whether it still does, pingFor how long that may
	// take.
	pingEvery = time.Second
	// lockAttempts are made, lockPause apart, before somebody else is at it.
	lockAttempts = 10
	lockPause    = 100 * time.Millisecond
	pingFor      = 10 * time.Second
	// closeFor is how long cleaning up may take when everything else has ended.
	closeFor = 10 * time.Second
)

// Session is the right to rebuild in one database, held by an advisory lock until Close.
type Session struct {
	js   jetstream.JetStream
	log  topology.Log
	opts Options
	pool *pgxpool.Pool

	owner string // of the live tables: as whom to work
	super bool   // whether the role that connected is a superuser
	known map[int64]map[string]bool

	mu   sync.Mutex // one question at a time on conn
	conn *pgx.Conn  // holds the lock; exchanges happen on it, so they happen under the lock

	report *reporter
}

// Open connects to a database, takes the lock and removes what an interrupted run left. It migrates nothing: tables of
// another version are in use by a projector of that version. Errors of kind ErrRefused: another session holds the lock, or
// a right is missing. Close the session.
func Open(ctx context.Context, postgres string, js jetstream.JetStream, log topology.Log, opts Options) (*Session, error) {
	opts = opts.withDefaults()
	config, err := pgxpool.ParseConfig(postgres)
	if err != nil {
		return nil, fmt.Errorf("the URL of PostgreSQL: %w", err)
	}
	config.MaxConns = max(config.MaxConns, int32(opts.Parallel)+4)
	config.ConnConfig.RuntimeParams["application_name"] = whoami(opts.Who)
	config.ConnConfig.RuntimeParams["timezone"] = "UTC"
	schema.Pin(config.ConnConfig)
	for _, limit := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		config.ConnConfig.RuntimeParams[limit] = "0" // those of a role or database: loading and indexing take what they take
	}
	s := &Session{js: js, log: log, opts: opts, known: map[int64]map[string]bool{}, report: newReporter(opts.Progress)}
	if s.conn, err = pgx.ConnectConfig(ctx, config.ConnConfig.Copy()); err != nil {
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	if err := s.enter(ctx); err != nil {
		s.Close()
		return nil, err
	}
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error { return become(ctx, c, s.owner) }
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		s.Close()
		return nil, err
	}
	if err := s.dropLeftovers(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// enter takes the lock and finds out as whom to work.
func (s *Session) enter(ctx context.Context) (err error) {
	if s.owner, s.super, err = rights(ctx, s.conn); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		var mine bool
		if err := s.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(rebuildLock)).Scan(&mine); err != nil {
			return fmt.Errorf("asking for the lock of rebuilds: %w", err)
		}
		switch {
		case mine:
			return become(ctx, s.conn, s.owner)
		case attempt == lockAttempts:
			return refuse("%s is at work on this database; wait for it, or end it", s.other(ctx))
		}
		// PostgreSQL takes a moment to notice that a process died.
		if err := topology.Pause(ctx, lockPause); err != nil {
			return err
		}
	}
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

// other describes who has the lock of rebuilds.
func (s *Session) other(ctx context.Context) string {
	text, found, err := holder(ctx, s.conn, rebuildLock)
	if err != nil || !found {
		return "another rebuild or verification"
	}
	return text
}

// whoami fits into an application_name.
func whoami(what string) string {
	host, _ := os.Hostname() // informative only
	name := fmt.Sprintf("%s, process %d on %s", what, os.Getpid(), host)
	return name[:min(len(name), 63)]
}

// dropLeftovers removes what is being filled by nobody, since we hold the lock, and what was put aside.
func (s *Session) dropLeftovers(ctx context.Context) error {
	for _, name := range []string{NextSchema, ScratchSchema} {
		if err := s.discard(ctx, name); err != nil {
			return fmt.Errorf("removing what an interrupted run left: %w", explain(err))
		}
	}
	left, err := s.dropAside(ctx)
	if err != nil {
		return fmt.Errorf("removing what was put aside: %w", explain(err))
	}
	if len(left) > 0 {
		s.opts.Logger.InfoContext(ctx, asideNote(left))
	}
	return nil
}

// guarded runs f with a context that ends when the lock may be lost. Then somebody else may begin, and drop what we
// fill.
func (s *Session) guarded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := s.ping(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("the connection that holds the lock of rebuilds is lost: %w", err))
				return
			}
		}
	}()
	err := f(ctx)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	cancel(nil)
	<-done
	return explain(err)
}

// ping leaves the connection alone while it is used.
func (s *Session) ping(ctx context.Context) error {
	if !s.mu.TryLock() {
		return nil
	}
	defer s.mu.Unlock()
	// Not the caller's: a query that is cancelled costs the connection, and with it the lock.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingFor)
	defer cancel()
	return s.conn.Ping(ctx)
}

// Close removes what was being filled, lets go of the lock and disconnects.
func (s *Session) Close() {
	if s.pool != nil {
		s.pool.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeFor)
	defer cancel()
	_, _ = s.conn.Exec(ctx, "SELECT pg_advisory_unlock_all()") // the server may see the end of a connection some time later
	_ = s.conn.Close(ctx)                                      // whatever the server says, it is closed
}

// Phase tells, and Options.Hook with it, that a phase begins: for those who use a shadow in their own way.
func (s *Session) Phase(phase Phase) error {
	s.report.enter(phase, 0)
	return s.opts.Hook(phase)
}

// Log is the log the tables are filled from.
func (s *Session) Log() topology.Log { return s.log }

// Pool is for looking at tables. Its connections speak UTC.
func (s *Session) Pool() *pgxpool.Pool { return s.pool }

// Ends is where each lane's event stream ends now.
func (s *Session) Ends(ctx context.Context) ([]uint64, error) {
	ends := make([]uint64, s.log.Lanes)
	for n := range ends {
		bounds, err := eventlog.Events(s.js, n).Bounds(ctx)
		if err != nil {
			return nil, err
		}
		ends[n] = bounds.Last
	}
	return ends, nil
}

// explain adds what to do where PostgreSQL's own words do not say.
func explain(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || errors.Is(err, ErrRefused) {
		return err
	}
	switch {
	case pg.Code == "53100":
		return fmt.Errorf("%w; the disk of PostgreSQL is full: make room and run it again, it starts over", err)
	case pg.Code == "42501":
		return fmt.Errorf("%w; GRANT the role what is named here, or run as the owner of schema scrip", err)
	case pg.Code[:2] == "57" || pg.Code[:2] == "08":
		return fmt.Errorf("%w; PostgreSQL went away: run it again when it is back, it starts over", err)
	}
	return err
}
