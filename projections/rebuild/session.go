package rebuild

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// rebuildLock is the advisory lock for rebuilding, copying or verifying in a database: "scriprbd" as bytes.
	rebuildLock = 0x7363726970726264
	// lockAttempts are made, lockPause apart, before Open fails because another session holds the lock.
	lockAttempts = 10
	lockPause    = 100 * time.Millisecond
	// pingFor bounds the check of the connection that holds the lock.
	pingFor = 10 * time.Second
	// closeFor bounds cleaning up at the end.
	closeFor = 10 * time.Second
)

// limits are what tests shorten.
type limits struct {
	// lock is how long one attempt waits for the projector's transactions to end. Later transactions wait for this one, so it is
	// short. watch is how often the connection that holds the lock and the live traffic are checked.
	lock, watch time.Duration
	// drop is how long dropping waits for readers of the tables. New readers wait meanwhile. dropAsked is the same for
	// --drop-previous.
	drop, dropAsked time.Duration
}

var waits = limits{lock: 2 * time.Second, watch: time.Second, drop: 500 * time.Millisecond, dropAsked: 3 * time.Second}

// Session holds the advisory lock that allows rebuilding in one database, until Close.
type Session struct {
	js   jetstream.JetStream
	log  topology.Log
	opts Options
	pool *pgxpool.Pool

	owner string // of the live tables: the role to work as
	super bool   // whether the role that connected is a superuser
	known map[string]bool

	mu   sync.Mutex // one query at a time on conn
	conn *pgx.Conn  // holds the lock; exchanges use it, so they cannot happen without the lock

	report *reporter

	throttle load.Throttle // of loaders, while live work lags
}

// Open connects to a database, acquires the lock and removes what an interrupted run left. It creates no
// tables. Errors of kind ErrRefused: another session holds
// the lock, or a right is missing. Close the session.
func Open(ctx context.Context, postgres string, js jetstream.JetStream, log topology.Log, opts Options) (_ *Session, err error) {
	opts = opts.withDefaults()
	config, err := pgxpool.ParseConfig(postgres)
	if err != nil {
		return nil, fmt.Errorf("the URL of PostgreSQL: %w", err)
	}
	config.MaxConns = max(config.MaxConns, int32(opts.Parallel)+4)
	config.ConnConfig.RuntimeParams["application_name"] = applicationName(opts.Who)
	config.ConnConfig.RuntimeParams["timezone"] = "UTC"
	schema.Pin(config.ConnConfig)
	schema.Patient(config.ConnConfig) // loading and indexing may take hours
	s := &Session{js: js, log: log, opts: opts, report: &reporter{report: opts.Progress}}
	s.throttle = load.Throttle{Level: s.report.level, Times: 1, Longest: longestPause}
	if s.conn, err = pgx.ConnectConfig(ctx, config.ConnConfig.Copy()); err != nil {
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error { return setRole(ctx, c, s.owner) }
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if err := s.dropLeftovers(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// acquire acquires the lock and finds the role to work as.
func (s *Session) acquire(ctx context.Context) (err error) {
	if s.owner, s.super, err = rights(ctx, s.conn); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		var mine bool
		if err := s.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(rebuildLock)).Scan(&mine); err != nil {
			return fmt.Errorf("acquiring the lock of rebuilds: %w", err)
		}
		if mine {
			return setRole(ctx, s.conn, s.owner)
		}
		if attempt == lockAttempts {
			who, found, err := holder(ctx, s.conn, rebuildLock)
			if err != nil || !found {
				who = "another rebuild or verification"
			}
			return refuse("%s is running on this database; wait until it ends, or stop it", who)
		}
		// PostgreSQL takes a moment to notice that a process died.
		if err := natsx.Pause(ctx, lockPause); err != nil {
			return err
		}
	}
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

// fillSchema runs f, which fills a schema, under the lock. Its context ends when the lock may be lost: another session
// may then drop that schema. If f fails, fillSchema drops it.
func (s *Session) fillSchema(ctx context.Context, name string, f func(context.Context) error) error {
	within, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() { defer close(watched); s.watch(within, cancel) }()
	err := f(within)
	if cause := context.Cause(within); cause != nil && errors.Is(err, context.Canceled) && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	cancel(nil)
	<-watched
	if err == nil {
		return nil
	}
	// If this fails too, the next run retries.
	cleaning, done := context.WithTimeout(context.WithoutCancel(ctx), closeFor)
	defer done()
	if dropping := s.discard(cleaning, name); dropping != nil {
		s.opts.Logger.DebugContext(ctx, "dropping an incomplete schema failed; the next run retries", "schema", name, "err", dropping)
	}
	return explain(err)
}

// watch checks, until ctx ends, that the lock is held, and whether live work lags.
func (s *Session) watch(ctx context.Context, lost context.CancelCauseFunc) {
	yields := func(yes bool) { s.report.update(func(p *Progress) { p.Yielding = yes }) }
	defer yields(false)
	tick := time.NewTicker(waits.watch)
	defer tick.Stop()
	for first := 0; ; first += lookLanes {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.ping(ctx); err != nil && ctx.Err() == nil {
			lost(fmt.Errorf("the connection that holds the lock of rebuilds is lost: %w", err))
			return
		}
		yields(s.lagging(ctx, first))
	}
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

// phase reports to Options.Progress and Options.Hook that a phase begins.
func (s *Session) phase(phase Phase) error {
	s.report.enter(phase, 0)
	return s.opts.Hook(phase)
}

// ends returns the last sequence of each lane's event stream.
func (s *Session) ends(ctx context.Context) ([]uint64, error) {
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

// rower is the common interface of a pool, a connection and a transaction.
type rower interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// positions returns the checkpoints of the tables of a schema, a position per lane; sequence 0 for a lane without one.
func (s *Session) positions(ctx context.Context, db rower, name string) ([]eventlog.Position, error) {
	list := make([]eventlog.Position, s.log.Lanes)
	for n := range list {
		list[n] = eventlog.Position{Log: s.log.UUID, Lane: n}
	}
	rows, err := db.Query(ctx, "SELECT lane, sequence, log, digest FROM "+name+".checkpoint WHERE projection = $1", fill.Projection)
	if err == nil {
		var at eventlog.Position
		_, err = pgx.ForEachRow(rows, []any{&at.Lane, &at.Sequence, &at.Log, &at.Digest}, func() error {
			if at.Lane >= 0 && at.Lane < len(list) {
				list[at.Lane] = at
			}
			return nil
		})
	}
	if tables.Missing(err) {
		return list, nil
	}
	return list, err
}

// tablesOf returns the tables of a schema, sorted.
func tablesOf(ctx context.Context, db rower, name string) ([]string, error) {
	rows, err := db.Query(ctx, `SELECT c.relname::text FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
		WHERE s.nspname = $1 AND c.relkind IN ('r', 'p') ORDER BY c.relname COLLATE "C"`, name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

const (
	// lockedFor is how long the live tables may be locked while the shadow catches up for the last time.
	lockedFor = 5 * time.Second
	// attempts are made before the last one, which locks them without this limit.
	attempts = 5
)

// Locks out writers of checkpoint: the projector moves it first in each of its transactions, so no transaction is open
// that wrote rows of the old tables and would write more into the new ones. A statement that waits for this lock looks
// up its tables again when it gets it. Readers do not wait.
const lockSQL = `LOCK TABLE scrip.checkpoint IN SHARE ROW EXCLUSIVE MODE`

// locked runs f in a transaction that locks the projector out of the live tables, on the connection that holds the
// session's lock. there is false if there are no live tables.
func (s *Session) locked(ctx context.Context, f func(ctx context.Context, tx pgx.Tx, there bool) error) error {
	for attempt := 1; ; attempt++ {
		err := s.tryLocked(ctx, attempt > attempts, f)
		if !isLockTimeout(err) && !errors.Is(err, errLockedTooLong) || attempt > attempts || ctx.Err() != nil {
			return err
		}
		// The next attempt has less to wait for, or less to catch up.
		if err := natsx.Pause(ctx, waits.lock); err != nil {
			return err
		}
	}
}

// errLockedTooLong: catching up took longer than the live tables may be locked.
var errLockedTooLong = errors.New("the live tables were locked for too long")

func (s *Session) tryLocked(ctx context.Context, last bool, f func(ctx context.Context, tx pgx.Tx, there bool) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Cancelling a query closes the connection and so releases the lock; ctx only limits what f does on other
	// connections.
	return pgx.BeginFunc(context.WithoutCancel(ctx), s.conn, func(tx pgx.Tx) error {
		limit := waits.lock
		if last {
			limit = time.Minute
		}
		background := context.WithoutCancel(ctx)
		if _, err := tx.Exec(background, fmt.Sprintf("SET LOCAL lock_timeout = %d", limit.Milliseconds())); err != nil {
			return err
		}
		var there bool
		if err := tx.QueryRow(background, "SELECT to_regclass('scrip.checkpoint') IS NOT NULL").Scan(&there); err != nil {
			return err
		}
		if there {
			if _, err := tx.Exec(background, lockSQL); err != nil {
				return fmt.Errorf("waiting for the projector's transactions: %w", err)
			}
		}
		locked, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if !last {
			timer := time.AfterFunc(lockedFor, func() { cancel(errLockedTooLong) })
			defer timer.Stop()
		}
		err := f(locked, tx, there)
		if err != nil && errors.Is(context.Cause(locked), errLockedTooLong) {
			return errLockedTooLong
		}
		if err == nil {
			err = ctx.Err()
		}
		return err
	})
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
