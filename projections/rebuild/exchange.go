package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// lockedFor is how long the live tables may be locked while the shadow catches up for the last time.
	lockedFor = 5 * time.Second
	// attempts are made before the last one, which locks them without this limit.
	attempts = 5
)

// Locks out writers of checkpoint: the projector moves it first in each of its transactions, so no transaction is open
// that wrote other rows of these tables. One that waits for this lock finds another generation when it gets it. Readers do not
// wait.
const lockSQL = `LOCK TABLE %s.checkpoint IN SHARE ROW EXCLUSIVE MODE`

// locked runs f in a transaction that locks the projector out of the live tables, on the connection that holds the
// session's lock. s.now has them, as they are then.
func (s *Session) locked(ctx context.Context, f func(ctx context.Context, tx pgx.Tx) error) error {
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

func (s *Session) tryLocked(ctx context.Context, last bool, f func(ctx context.Context, tx pgx.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Cancelling a query closes the connection and so releases the lock; ctx only limits what f does on other
	// connections.
	return pgx.BeginFunc(context.WithoutCancel(ctx), s.conn, func(tx pgx.Tx) (err error) {
		limit := waits.lock
		if last {
			limit = time.Minute
		}
		background := context.WithoutCancel(ctx)
		if _, err := tx.Exec(background, fmt.Sprintf("SET LOCAL lock_timeout = %d", limit.Milliseconds())); err != nil {
			return err
		}
		if s.now, err = schema.Current(background, tx); err != nil {
			return err
		}
		if err := tx.QueryRow(background, "SELECT to_regclass($1) IS NOT NULL", s.now.Live+".checkpoint").Scan(&s.lockable); err != nil {
			return err
		}
		if s.lockable {
			if _, err := tx.Exec(background, fmt.Sprintf(lockSQL, s.now.Live)); err != nil {
				return fmt.Errorf("waiting for the projector's transactions: %w", err)
			}
		}
		locked, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if !last {
			timer := time.AfterFunc(lockedFor, func() { cancel(errLockedTooLong) })
			defer timer.Stop()
		}
		err = f(locked, tx)
		if err != nil && errors.Is(context.Cause(locked), errLockedTooLong) {
			return errLockedTooLong
		}
		if err == nil {
			err = ctx.Err()
		}
		return err
	})
}

// Copies the checkpoints of other projections, whose tables are in other schemas.
const carrySQL = `
INSERT INTO %[1]s.checkpoint (projection, lane, sequence, updated_at, log, digest, log_time, generation)
SELECT projection, lane, sequence, updated_at, log, digest, log_time, generation FROM %[2]s.checkpoint WHERE projection <> $1
ON CONFLICT (projection, lane) DO UPDATE SET sequence = excluded.sequence, updated_at = excluded.updated_at, log = excluded.log,
    digest = excluded.digest, log_time = excluded.log_time, generation = excluded.generation`

// exchange makes the tables of a schema the live ones, and those the previous ones, in one transaction in which the
// projector is locked out; prepare comes first, unless the live tables have lost their checkpoints. A projector of either
// tables finds another generation and begins again.
func (s *Session) exchange(ctx context.Context, to string, prepare func(ctx context.Context, tx pgx.Tx) error) error {
	err := s.locked(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if s.now.Live == "" {
			return errors.New("the read tables were dropped in the meantime; run it again")
		}
		if s.lockable {
			if err := prepare(ctx, tx); err != nil {
				return err
			}
		}
		if err := s.phase(Exchanging); err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx)
		renewed := []string{to}
		if s.lockable {
			if _, err := tx.Exec(ctx, fmt.Sprintf(carrySQL, to, s.now.Live), fill.Projection); err != nil {
				return err
			}
			renewed = append(renewed, s.now.Live)
		}
		for _, name := range renewed {
			if err := fill.Fence(ctx, tx, name, s.log.UUID, s.log.Lanes); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", waits.lock.Milliseconds())); err != nil { // new readers wait as long
			return err
		}
		return schema.Use(ctx, tx, to, s.now)
	})
	if isLockTimeout(err) {
		return refuse("the tables in use, or their views, are being read or written by transactions that do not end (pg_stat_activity, pg_locks); run it again when they have ended, pg_dump as well: %w", err)
	}
	if err != nil {
		return err
	}
	s.report.enter(Exchanged, 0)
	return s.opts.Hook(Exchanged)
}

// isLockTimeout reports whether PostgreSQL ended a statement by lock_timeout.
func isLockTimeout(err error) bool { return schema.State(err) == "55P03" }

// dropLeftovers drops the tables that are neither live nor previous and are not being read: of an interrupted run, or
// replaced twice. note names those that remain, "" if none do.
func (s *Session) dropLeftovers(ctx context.Context) (note string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, err := schema.DropLeftovers(ctx, s.conn, waits.drop)
	if len(left) > 0 {
		note = fmt.Sprintf("tables that are not in use any more are still being read; the next rebuild or verification drops them: schema %s", strings.Join(left, ", "))
	}
	return note, err
}
