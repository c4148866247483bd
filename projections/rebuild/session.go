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
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// rebuildLock is the advisory lock for rebuilding, copying or verifying in a database: "scriprbd" as bytes.
	rebuildLock = 0x7363726970726264
	// pingEvery is how often the connection that holds the lock is checked, pingFor bounds one check.
	pingEvery = time.Second
	// lockAttempts are made, lockPause apart, before Open fails because another session holds the lock.
	lockAttempts = 10
	lockPause    = 100 * time.Millisecond
	pingFor      = 10 * time.Second
	// closeFor bounds cleaning up at the end.
	closeFor = 10 * time.Second
)

// Session holds the advisory lock that allows rebuilding in one database, until Close.
type Session struct {
	js   jetstream.JetStream
	log  topology.Log
	opts Options
	pool *pgxpool.Pool

	owner string // of the live tables: the role to work as
	super bool   // whether the role that connected is a superuser
	known map[int64]map[string]bool

	mu   sync.Mutex // one query at a time on conn
	conn *pgx.Conn  // holds the lock; exchanges use it, so they cannot happen without the lock

	report *reporter

	throttle load.Throttle // of loaders, while live work lags
}

// Open connects to a database, acquires the lock and removes what an interrupted run left. It runs no migrations:
// tables of another version are in use by a projector of that version. Errors of kind ErrRefused: another session holds
// the lock, or a right is missing. Close the session.
func Open(ctx context.Context, postgres string, js jetstream.JetStream, log topology.Log, opts Options) (*Session, error) {
	opts = opts.withDefaults()
	config, err := pgxpool.ParseConfig(postgres)
	if err != nil {
		return nil, fmt.Errorf("the URL of PostgreSQL: %w", err)
	}
	config.MaxConns = max(config.MaxConns, int32(opts.Parallel)+4)
	config.ConnConfig.RuntimeParams["application_name"] = applicationName(opts.Who)
	config.ConnConfig.RuntimeParams["timezone"] = "UTC"
	schema.Pin(config.ConnConfig)
	for _, limit := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		config.ConnConfig.RuntimeParams[limit] = "0" // limits of the role or database: loading and indexing may take hours
	}
	s := &Session{js: js, log: log, opts: opts, known: map[int64]map[string]bool{}, report: newReporter(opts.Progress)}
	s.throttle = load.Throttle{Level: s.report.level, Times: 1, Longest: longestPause}
	if s.conn, err = pgx.ConnectConfig(ctx, config.ConnConfig.Copy()); err != nil {
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	if err := s.acquire(ctx); err != nil {
		s.Close()
		return nil, err
	}
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error { return setRole(ctx, c, s.owner) }
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

// enter acquires the lock and finds the role to work as.
func (s *Session) acquire(ctx context.Context) (err error) {
	if s.owner, s.super, err = rights(ctx, s.conn); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		var mine bool
		if err := s.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(rebuildLock)).Scan(&mine); err != nil {
			return fmt.Errorf("acquiring the lock of rebuilds: %w", err)
		}
		switch {
		case mine:
			return setRole(ctx, s.conn, s.owner)
		case attempt == lockAttempts:
			return refuse("%s is running on this database; wait until it ends, or stop it", s.otherHolder(ctx))
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

// otherHolder describes the session that holds the lock of rebuilds.
func (s *Session) otherHolder(ctx context.Context) string {
	text, found, err := holder(ctx, s.conn, rebuildLock)
	if err != nil || !found {
		return "another rebuild or verification"
	}
	return text
}

// applicationName returns an application_name: at most 63 bytes.
func applicationName(what string) string {
	host, _ := os.Hostname() // informative only
	name := fmt.Sprintf("%s, process %d on %s", what, os.Getpid(), host)
	return name[:min(len(name), 63)]
}

// dropLeftovers drops incomplete schemas, which no process fills because this session holds the lock, and schemas that
// were set aside.
func (s *Session) dropLeftovers(ctx context.Context) error {
	for _, name := range []string{NextSchema, ScratchSchema} {
		if err := s.discard(ctx, name); err != nil {
			return fmt.Errorf("removing what an interrupted run left: %w", explain(err))
		}
	}
	left, err := s.dropAside(ctx)
	if err != nil {
		return fmt.Errorf("dropping schemas that were set aside: %w", explain(err))
	}
	if len(left) > 0 {
		s.opts.Logger.InfoContext(ctx, leftoverNote(left))
	}
	return nil
}

// guarded runs f with a context that ends when the lock may be lost: another session may then drop the schema that f
// fills.
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

// ping checks the connection unless it is in use.
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

// Close releases the lock and disconnects.
func (s *Session) Close() {
	if s.pool != nil {
		s.pool.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeFor)
	defer cancel()
	_, _ = s.conn.Exec(ctx, "SELECT pg_advisory_unlock_all()") // the server may notice a closed connection later
	_ = s.conn.Close(ctx)                                      // closed, even with an error
}

// Phase reports to Options.Progress and Options.Hook that a phase begins. Verification, which fills a shadow itself,
// calls it.
func (s *Session) Phase(phase Phase) error {
	s.report.enter(phase, 0)
	return s.opts.Hook(phase)
}

// Log returns the log from which tables are filled.
func (s *Session) Log() topology.Log { return s.log }

// Pool returns connections for queries on tables, with time zone UTC.
func (s *Session) Pool() *pgxpool.Pool { return s.pool }

// Ends returns the last sequence of each lane's event stream.
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

// explain adds to errors of PostgreSQL what the operator can do.
func explain(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || errors.Is(err, ErrRefused) {
		return err
	}
	switch {
	case pg.Code == "53100":
		return fmt.Errorf("%w; the disk of PostgreSQL is full: make room and run it again, it starts from the beginning", err)
	case pg.Code == "42501":
		return fmt.Errorf("%w; GRANT the role this right, or run as the owner of schema scrip", err)
	case pg.Code[:2] == "57" || pg.Code[:2] == "08":
		return fmt.Errorf("%w; PostgreSQL became unavailable: run it again when it is available, it starts from the beginning", err)
	}
	return err
}
