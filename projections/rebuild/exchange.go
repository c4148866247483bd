package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// lockedFor is how long the live tables may be locked while the shadow catches up for the last time. The last attempt has
// no limit.
const lockedFor = 5 * time.Second

// Locks out writers of checkpoint: the projector moves it first in each of its transactions, so no transaction is open
// that wrote other rows of these tables. One that waits for this lock finds another generation when it gets it. Readers
// do not wait. With the row of a lane alone it is so for that lane.
const (
	lockSQL     = `LOCK TABLE %s.checkpoint IN SHARE ROW EXCLUSIVE MODE`
	lockLaneSQL = `SELECT FROM %s.checkpoint WHERE projection = '` + fill.Projection + `' AND lane = %d FOR UPDATE`
)

// allLanes is what an exchange locks.
const allLanes = -1

// locked runs f in a transaction that locks the projector of a lane, or of all, out of the live tables, on the connection that
// holds the session's lock. s.now has them, as they are then.
func (s *Session) locked(ctx context.Context, lane int, f func(ctx context.Context, tx pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := s.tryLocked(ctx, lane, attempt > waits.attempts, f)
		if !schema.Blocked(err) && !errors.Is(err, errLockedTooLong) || attempt > waits.attempts || ctx.Err() != nil {
			return err
		}
		// The next attempt has less to wait for, or less to catch up.
		if err := natsx.Pause(ctx, waits.lock); err != nil {
			return err
		}
	}
}

var (
	// errLockedTooLong: catching up took longer than the live tables may be locked.
	errLockedTooLong = errors.New("the live tables were locked for too long")
	// errNoCheckpoints: the live tables have lost their checkpoints, so nobody can write them.
	errNoCheckpoints = errors.New("their table of checkpoints is missing")
)

func (s *Session) tryLocked(ctx context.Context, lane int, last bool, f func(ctx context.Context, tx pgx.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Cancelling a query closes the connection and so releases the lock; ctx only limits what f does on other
	// connections.
	// Each statement must see what others committed before this one got the lock.
	return pgx.BeginTxFunc(context.WithoutCancel(ctx), s.conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		limit := waits.lock
		if last {
			limit = time.Minute
		}
		background := context.WithoutCancel(ctx)
		if _, err := tx.Exec(background, fmt.Sprintf("SET LOCAL lock_timeout = %d", limit.Milliseconds())); err != nil {
			return err
		}
		if !last { // a process that is stopped must not keep the projector out
			if _, err := tx.Exec(background, "SET LOCAL idle_in_transaction_session_timeout = '"+schema.MostIdle+"'"); err != nil {
				return err
			}
		}
		if s.now, err = schema.Current(background, tx); err != nil {
			return err
		}
		if s.unlocked, err = s.lockLive(background, tx, lane); err != nil {
			return fmt.Errorf("waiting for the projector's transactions: %w", err)
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

// lockLive locks the projector of a lane, or of all, out of the live tables. why is the reason if that is impossible: an exchange goes on.
func (s *Session) lockLive(ctx context.Context, tx pgx.Tx, lane int) (why, err error) {
	if s.now.Live == "" {
		return errNoCheckpoints, nil
	}
	var there bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", s.now.Live+".checkpoint").Scan(&there); err != nil {
		return nil, err
	}
	if !there {
		return errNoCheckpoints, nil
	}
	sql := fmt.Sprintf(lockSQL, s.now.Live)
	if lane != allLanes {
		sql = fmt.Sprintf(lockLaneSQL, s.now.Live, lane)
	}
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql)
		return err
	})
	if schema.State(err) == "42501" { // they belong to another role
		return err, nil
	}
	return nil, err
}

// Copies the checkpoints of other projections, whose tables are in other schemas.
const carrySQL = `
INSERT INTO %[1]s.checkpoint (projection, lane, sequence, updated_at, log, digest, log_time, generation)
SELECT projection, lane, sequence, updated_at, log, digest, log_time, generation FROM %[2]s.checkpoint WHERE projection <> $1
ON CONFLICT (projection, lane) DO UPDATE SET sequence = excluded.sequence, updated_at = excluded.updated_at, log = excluded.log,
    digest = excluded.digest, log_time = excluded.log_time, generation = excluded.generation`

// exchange makes the tables of a schema the live ones, and those the previous ones, in one transaction in which the
// projector is locked out; prepare comes first, unless the live tables cannot be locked. A projector of either
// tables finds another generation and begins again.
//
// unwritable is why the former live tables cannot be given a generation, nil if they can: then they get another name,
// and are no previous ones. A former projector may be able to write them all the same, and does not find them.
func (s *Session) exchange(ctx context.Context, to string, prepare func(ctx context.Context, tx pgx.Tx) error) (unwritable, err error) {
	err = s.locked(ctx, allLanes, func(ctx context.Context, tx pgx.Tx) (err error) {
		if s.now.Live == "" {
			return errors.New("the read tables were dropped in the meantime; run it again")
		}
		if s.unlocked == nil {
			if err := prepare(ctx, tx); err != nil {
				return err
			}
		}
		if err := s.phase(Exchanging); err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx)
		if unwritable = s.unlocked; unwritable == nil {
			if unwritable, err = s.fence(ctx, tx, to); err != nil {
				return err
			}
		}
		if err := fill.Fence(ctx, tx, to, s.log.UUID, s.log.Lanes); err != nil {
			return err
		}
		wait, err := schema.Unnoticed(ctx, tx)
		if err != nil {
			return err
		}
		if err := schema.Use(ctx, tx, to, s.now, min(wait, waits.lock)); err != nil || unwritable == nil {
			return err
		}
		return schema.Retire(ctx, tx, s.now.Live)
	})
	if schema.Blocked(err) {
		return nil, fmt.Errorf("the tables in use, or their views, are being read or written by transactions that do not end (pg_stat_activity, pg_locks); "+
			"run it again when they have ended, pg_dump as well: %w", err)
	}
	if err != nil {
		return nil, err
	}
	s.report.enter(Exchanged, 0)
	return unwritable, nil
}

// Triggers of others that wait for the commit run now, while an error can be taken back. Others leave rows as they are.
//
// %[1]s is the schema, %[2]s the projection, %[3]d the generation.
const renewSQL = `
UPDATE %[1]s.checkpoint SET generation = %[3]d WHERE projection = '%[2]s';
SET CONSTRAINTS ALL IMMEDIATE;
SELECT FROM %[1]s.checkpoint WHERE projection = '%[2]s' AND generation <> %[3]d`

// What hides or keeps checkpoints as they are without an error.
var (
	errHidden    = errors.New("row security hides their checkpoints")
	errUnchanged = errors.New("their checkpoints do not change")
)

// fence gives the checkpoints of the live tables another generation, and copies those of other projections to the new
// tables. It makes none: a missing one is no place in the log. why is the reason if they cannot be written, by row
// security, a trigger or another owner.
func (s *Session) fence(ctx context.Context, tx pgx.Tx, to string) (why, err error) {
	var hidden bool
	var generation int64
	const lookSQL = "SELECT row_security_active($1), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
	if err := tx.QueryRow(ctx, lookSQL, s.now.Live+".checkpoint").Scan(&hidden, &generation); err != nil {
		return nil, err
	}
	if hidden {
		return errHidden, nil
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(carrySQL, to, s.now.Live), fill.Projection); err != nil {
		return nil, err
	}
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		results, err := tx.Conn().PgConn().Exec(ctx, fmt.Sprintf(renewSQL, s.now.Live, fill.Projection, generation)).ReadAll()
		if err == nil && len(results[len(results)-1].Rows) > 0 {
			err = errUnchanged
		}
		return err
	})
	if errors.Is(err, errUnchanged) || schema.State(err) != "" && !schema.Blocked(err) && !unavailable(err) {
		return err, nil
	}
	return nil, err
}

// unavailable reports whether PostgreSQL ended the connection, lacks a resource or refuses to work now, whatever the statement was.
func unavailable(err error) bool {
	state := schema.State(err)
	return len(state) == 5 && slices.Contains([]string{"08", "40", "53", "57"}, state[:2])
}

// dropLeftovers drops the tables that are neither live nor previous nor kept and are not being read: of an interrupted
// run, or replaced twice. note names those that remain, "" if none do.
func (s *Session) dropLeftovers(ctx context.Context) (note string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, err := schema.DropLeftovers(ctx, s.conn, waits.drop)
	if len(left) > 0 {
		note = fmt.Sprintf("tables that are not in use any more are still being read, or belong to another role; the next rebuild or verification drops them: schema %s", strings.Join(left, ", "))
	}
	return note, err
}
