package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
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
	// attempts are made to exchange before the last one.
	attempts int
	// drop is how long dropping waits for readers of the tables. New readers wait as long. dropAsked is the same for
	// --drop-previous. PostgreSQL looks for deadlocks later.
	drop, dropAsked time.Duration
}

var waits = limits{lock: 2 * time.Second, watch: time.Second, attempts: 8, drop: 500 * time.Millisecond, dropAsked: 700 * time.Millisecond}

// Session holds the advisory lock that allows rebuilding in one database, until Close.
type Session struct {
	js   jetstream.JetStream
	log  topology.Log
	opts Options
	pool *pgxpool.Pool

	owner string        // of schema scrip: the role to work as
	now   schema.Tables // as look or locked found them
	// unlocked is why the projector could not be locked out of the live tables, nil if it is.
	unlocked error

	mu   sync.Mutex // one query at a time on conn
	conn *pgx.Conn  // holds the lock; exchanges use it, so they cannot happen without the lock

	report *reporter

	fills atomic.Bool // there are tables that are being filled

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
	config.ConnConfig.RuntimeParams["application_name"] = schema.ApplicationName(opts.Who)
	config.ConnConfig.RuntimeParams["timezone"] = "UTC"
	schema.Pin(config.ConnConfig)
	schema.Patient(config.ConnConfig)                                            // loading and indexing may take hours
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "0" // a snapshot waits while lanes are folded up to it
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
	note, err := s.dropLeftovers(ctx)
	if err != nil {
		return nil, fmt.Errorf("removing what an interrupted run left: %w", explain(err))
	}
	if note != "" {
		s.opts.Logger.InfoContext(ctx, note)
	}
	return s, nil
}

// acquire acquires the lock and finds the role to work as.
func (s *Session) acquire(ctx context.Context) (err error) {
	if s.owner, err = rights(ctx, s.conn); err != nil {
		return err
	}
	if err := setRole(ctx, s.conn, s.owner); err != nil { // which may take the lock
		return err
	}
	for attempt := 1; ; attempt++ {
		var mine bool
		if err := s.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(schema.RebuildLock)).Scan(&mine); err != nil {
			return fmt.Errorf("acquiring the lock of rebuilds: %w", err)
		}
		if mine {
			return nil
		}
		if attempt == lockAttempts {
			who, found, err := schema.HolderOf(ctx, s.conn, schema.RebuildLock)
			switch {
			case err != nil || !found:
				return refuse("another rebuild or verification is running on this database; wait until it ends, or stop it")
			case who.Is("scrip"):
				return refuse("%s is running on this database; wait until it ends, or stop it", who)
			}
			return refuse("%s holds the lock of rebuilds, and is none; %s", who, who.End())
		}
		// PostgreSQL takes a moment to notice that a process died.
		if err := natsx.Pause(ctx, lockPause); err != nil {
			return err
		}
	}
}

// filling runs f, which fills a schema, under the lock. Its context ends when the lock may be lost: another session
// may then drop that schema. If f fails, filling drops it, unless it is kept.
func (s *Session) filling(ctx context.Context, f func(context.Context) error) error {
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
	if _, dropping := s.dropLeftovers(cleaning); dropping != nil {
		s.opts.Logger.DebugContext(ctx, "dropping incomplete tables failed; the next run retries", "err", dropping)
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
		if s.fills.Load() { // before that the check of the room answers
			if err := full(ctx, s); err != nil && ctx.Err() == nil {
				lost(err)
				return
			}
		}
		yields(lagging(ctx, s, first))
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

// phase reports to Options.Progress and Options.Hook that a phase starts.
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

// positions returns the checkpoints of the tables of a schema, a position per lane: sequence 0 for a lane without one, or with one
// that cannot be seen; none has these lanes.
func (s *Session) positions(ctx context.Context, db schema.Querier, name string) (list []eventlog.Position, none []int, err error) {
	list = make([]eventlog.Position, s.log.Lanes)
	for n := range list {
		list[n] = eventlog.Position{Log: s.log.UUID, Lane: n}
		none = append(none, n)
	}
	rows, _ := db.Query(ctx, "SELECT lane, sequence, log, digest FROM "+name+".checkpoint WHERE projection = $1", fill.Projection) // its error is that of the rows
	var at eventlog.Position
	_, err = pgx.ForEachRow(rows, []any{&at.Lane, &at.Sequence, &at.Log, &at.Digest}, func() error {
		if at.Lane >= 0 && at.Lane < len(list) {
			list[at.Lane] = at
			none = slices.DeleteFunc(none, func(n int) bool { return n == at.Lane })
		}
		return nil
	})
	if tables.Missing(err) || schema.State(err) == "42501" {
		err = nil
	}
	return list, none, err
}

// inLog returns an error of kind ErrRefused unless tables can be filled on from their checkpoints: each lane with events has one, and
// the log has what it names. what are the tables.
func (s *Session) inLog(ctx context.Context, what, name string) error {
	at, none, err := s.positions(ctx, s.pool, name)
	if err != nil {
		return err
	}
	ends, err := s.ends(ctx)
	if err != nil {
		return err
	}
	for n, p := range at {
		if ends[n] > 0 && slices.Contains(none, n) {
			return refuse("%s have no checkpoint of lane %d", what, n)
		}
		err := eventlog.Events(s.js, n).In(s.log).Verify(ctx, s.log.UUID, p)
		switch {
		case fill.IsLost(err):
			return refuse("the log no longer has what %s were filled from up to message %d of lane %d (%w)", what, p.Sequence, n, err)
		case err != nil:
			return fmt.Errorf("looking for the checkpoint of %s in the log: %w", what, err)
		}
	}
	return nil
}

// A condition for relations of a schema, c in pg_class, that are compared: of coupons the view, whose rows do not depend on
// segments.
const comparedSQL = `(c.relkind = 'r' AND c.relname !~ '^coupon_claim_[0-9]' AND c.relname NOT IN ('segment', 'coupon_state', 'leaving') OR c.relname = '` + couponRow + `')`

const couponRow = "coupon_row"

// tablesOf returns the relations of a schema that are compared, and checkpoint, sorted.
func tablesOf(ctx context.Context, db schema.Querier, name string) ([]string, error) {
	return schema.Collect(ctx, db, pgx.RowTo[string], `SELECT c.relname::text FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
		WHERE s.nspname = $1 AND `+comparedSQL+` ORDER BY c.relname COLLATE "C"`, name)
}

// explain adds to errors of PostgreSQL what the operator can do.
func explain(err error) error {
	state := schema.State(err)
	switch {
	case errors.Is(err, ErrRefused):
	case state == "53100":
		return fmt.Errorf("%w; the disk of PostgreSQL is full: make room and run it again, it starts over", err)
	case state == "42501":
		return fmt.Errorf("%w; GRANT the role this right, or run as the owner of schema scrip", err)
	case unavailable(err):
		return fmt.Errorf("%w; PostgreSQL became unavailable: run it again when it is available", err)
	}
	return err
}

// Who owns the live tables, and what we may do.
//
// $1 = the live schema
const rightsSQL = `
SELECT current_user::text, current_database()::text, coalesce(pg_get_userbyid(s.nspowner)::text, current_user::text),
       coalesce(pg_has_role(current_user, s.nspowner, 'MEMBER'), true),
       has_database_privilege(coalesce(s.nspowner, (SELECT oid FROM pg_roles WHERE rolname = current_user)), d.oid, 'CREATE')
FROM pg_database d LEFT JOIN pg_namespace s ON s.nspname = $1 WHERE d.datname = current_database()`

// rights returns the role to work as: the owner of the live tables, so that a role that may use them may use the new
// ones. Errors of kind ErrRefused name the GRANT that is missing.
func rights(ctx context.Context, conn *pgx.Conn) (owner string, err error) {
	var me, database string
	var member, create bool
	if err := conn.QueryRow(ctx, rightsSQL, schema.Name).Scan(&me, &database, &owner, &member, &create); err != nil {
		return "", fmt.Errorf("reading the rights of the role: %w", err)
	}
	quoted := func(name string) string { return pgx.Identifier{name}.Sanitize() }
	switch {
	case !member:
		return "", refuse("role %s does not own schema scrip; run this as %s, or have its owner run: GRANT %s TO %s", me, owner, quoted(owner), quoted(me))
	case !create:
		return "", refuse("role %s may not create schemas in database %s; have the owner of the database run: GRANT CREATE ON DATABASE %s TO %s",
			owner, database, quoted(database), quoted(owner))
	}
	return owner, nil
}

// setRole switches a connection to the owner's role, so that the owner owns all it creates.
func setRole(ctx context.Context, conn *pgx.Conn, owner string) error {
	_, err := conn.Exec(ctx, "SET ROLE "+pgx.Identifier{owner}.Sanitize())
	return err
}

// look reads which tables there are, and refuses those of another version than this program's.
func (s *Session) look(ctx context.Context, db schema.Querier) (err error) {
	s.now, err = schema.Current(ctx, db)
	switch {
	case err != nil:
		return err
	case s.now.Version == 0:
		return refuse("there are no read tables in this database; `scrip serve` or `scrip rebuild` creates them")
	case s.now.Version > schema.Format:
		return newer(s.now.Version)
	case s.now.Version != schema.Format:
		return refuse("the read tables have format %d, and this program needs %d; run `scrip rebuild`", s.now.Version, schema.Format)
	}
	return nil
}

func newer(version int64) error {
	return refuse("the read tables have format %d, this program knows formats up to %d; use the scrip that made them", version, schema.Format)
}
