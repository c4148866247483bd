package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// lockFor is how long one attempt waits for the projector's transactions to end. Later transactions wait for this
	// one, so it is short.
	lockFor = 2 * time.Second
	// lockedFor is how long the live tables may be locked while the shadow catches up for the last time.
	lockedFor = 5 * time.Second
	// attempts are made before the last one, which locks them without this limit.
	attempts = 5
)

// Locks out writers of checkpoint: the projector moves it first in each of its transactions, so no transaction is open
// that wrote rows of the old tables and would write more into the new ones. A statement that waits for this lock looks
// up its tables again when it gets it. Readers do not wait.
const lockSQL = `LOCK TABLE scrip.checkpoint IN SHARE ROW EXCLUSIVE MODE`

// Running projectors start again when the generation changes.
const generationSQL = `UPDATE %s.checkpoint SET generation = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint WHERE projection = $1`

// Wakes processes that wait for a sequence.
const notifySQL = `SELECT pg_notify('scrip_checkpoint', lane || ' ' || sequence) FROM scrip.checkpoint WHERE projection = $1`

// Copies the checkpoints of other projections, whose tables are in other schemas.
const carrySQL = `
INSERT INTO %[1]s.checkpoint (projection, lane, sequence, updated_at, log, digest, log_time, generation)
SELECT projection, lane, sequence, updated_at, log, digest, log_time, generation FROM %[2]s.checkpoint WHERE projection <> $1
ON CONFLICT (projection, lane) DO UPDATE SET sequence = excluded.sequence, updated_at = excluded.updated_at, log = excluded.log,
    digest = excluded.digest, log_time = excluded.log_time, generation = excluded.generation`

// Locked runs f in a transaction that locks the projector out of the live tables, on the connection that holds the
// session's lock. there is false if there are no live tables.
func (s *Session) Locked(ctx context.Context, f func(ctx context.Context, tx pgx.Tx, there bool) error) error {
	for attempt := 1; ; attempt++ {
		err := s.tryLocked(ctx, attempt > attempts, f)
		var pg *pgconn.PgError
		busy := errors.As(err, &pg) && pg.Code == "55P03" || errors.Is(err, errLockedTooLong)
		if !busy || attempt > attempts || ctx.Err() != nil {
			return err
		}
		// The next attempt has less to wait for, or less to catch up.
		if err := topology.Pause(ctx, lockFor); err != nil {
			return err
		}
	}
}

// errHeld: catching up took longer than the live tables may be locked.
var errLockedTooLong = errors.New("the live tables were locked for too long")

func (s *Session) tryLocked(ctx context.Context, last bool, f func(ctx context.Context, tx pgx.Tx, there bool) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Cancelling a query closes the connection and so releases the lock; ctx only limits what f does on other
	// connections.
	return pgx.BeginFunc(context.WithoutCancel(ctx), s.conn, func(tx pgx.Tx) error {
		limit := lockFor
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

// Renew makes running projectors start again, because rows of the live tables were changed in this transaction of
// Locked.
func Renew(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(generationSQL, schema.Name), projector.Projection)
	return err
}

// exchange makes the shadow the live tables, and those the previous ones. left lists dependents that remain on the
// previous tables.
func (sh *Shadow) exchange(ctx context.Context) (left []string, err error) {
	s := sh.s
	var late []step
	err = s.Locked(ctx, func(ctx context.Context, tx pgx.Tx, there bool) error {
		background := context.WithoutCancel(ctx)
		if there {
			if err := sh.CatchUpLocked(ctx, tx); err != nil {
				return err
			}
		}
		s.report.enter(Exchanging, 0)
		if err := s.opts.Hook(Exchanging); err != nil {
			return err
		}
		version, err := replaceable(background, tx)
		if err != nil {
			return err
		}
		if err := schema.Stamp(background, tx); err != nil {
			return fmt.Errorf("recording the migrations of the new tables: %w", err)
		}
		g, err := s.dependents(background, tx, schema.Name, version)
		if err != nil {
			return err
		}
		if err := errors.Join(s.checkDependents(g), checkIndexes(background, tx, sh.name, g.indexes)); err != nil {
			return err
		}
		left = g.left
		if there && version == schema.Version() {
			if _, err := tx.Exec(background, fmt.Sprintf(carrySQL, sh.name, schema.Name), projector.Projection); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(background, fmt.Sprintf(generationSQL, sh.name), projector.Projection); err != nil {
			return err
		}
		if err := copyGrants(background, tx, schema.Name, sh.name); err != nil {
			return err
		}
		if err := s.checkPrevious(background, tx); err != nil {
			return err
		}
		if _, found, err := commentOn(background, tx, PreviousSchema); err != nil {
			return err
		} else if found { // dropped after the commit: dropping waits for readers, and the projector would wait too
			if err := setAside(background, tx, PreviousSchema); err != nil {
				return err
			}
		}
		if err := swap(background, tx, sh.name, version); err != nil {
			return err
		}
		sh.name = schema.Name
		late, err = s.carry(background, tx, g.steps())
		return err
	})
	if err != nil {
		sh.name = NextSchema
		return nil, err
	}
	s.report.enter(Exchanged, 0)
	return append(left, s.carryLater(ctx, late)...), s.opts.Hook(Exchanged)
}

// CatchUpLocked fills the shadow to the checkpoints of the live tables, which are locked. A checkpoint beyond the end
// of the log counts as the end.
func (sh *Shadow) CatchUpLocked(ctx context.Context, tx pgx.Tx) error {
	at, err := Live(context.WithoutCancel(ctx), tx, sh.s.log.Lanes, sh.s.log.UUID)
	if err != nil {
		return err
	}
	ends, err := sh.s.Ends(ctx)
	if err != nil {
		return err
	}
	to := make([]uint64, len(at))
	for n := range at {
		to[n] = min(at[n].Sequence, ends[n])
	}
	return sh.Fill(ctx, Exchanging, to)
}

// swap renames schemas, and comments the previous one with its migration.
func swap(ctx context.Context, tx pgx.Tx, from string, version int64) error {
	const aside = "scrip_aside"
	var there bool
	if err := tx.QueryRow(ctx, "SELECT to_regnamespace('scrip') IS NOT NULL").Scan(&there); err != nil {
		return err
	}
	if there {
		if err := schema.Rename(ctx, tx, schema.Name, aside); err != nil {
			return err
		}
	}
	if err := schema.Rename(ctx, tx, from, schema.Name); err != nil {
		return err
	}
	if there {
		if err := schema.Rename(ctx, tx, aside, PreviousSchema); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("COMMENT ON SCHEMA %s IS '%s%d'", PreviousSchema, previousMark, version)); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, notifySQL, projector.Projection)
	return err
}

// previousMark begins the comment on the previous tables; their migration follows.
const previousMark = "read tables of scrip before the last rebuild, migration "

// Undo exchanges the live and the previous tables: a second Undo reverts the first. The projector catches up from the
// checkpoints of the previous ones.
func (s *Session) Undo(ctx context.Context) (left []string, err error) {
	if err := s.CheckVersion(ctx); err != nil {
		return nil, err
	}
	if err := s.undoable(ctx); err != nil {
		return nil, explain(err)
	}
	var late []step
	err = s.Locked(ctx, func(ctx context.Context, tx pgx.Tx, there bool) error {
		background := context.WithoutCancel(ctx)
		if err := sameVersion(background, tx); err != nil {
			return err
		}
		if err := previousVersion(background, tx); err != nil {
			return err
		}
		s.report.enter(Exchanging, 0)
		if err := s.opts.Hook(Exchanging); err != nil {
			return err
		}
		g, err := s.dependents(background, tx, schema.Name, schema.Version())
		if err != nil {
			return err
		}
		if err := errors.Join(s.checkDependents(g), checkIndexes(background, tx, PreviousSchema, g.indexes)); err != nil {
			return err
		}
		left = g.left
		if there {
			if _, err := tx.Exec(background, fmt.Sprintf(carrySQL, PreviousSchema, schema.Name), projector.Projection); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(background, fmt.Sprintf(generationSQL, PreviousSchema), projector.Projection); err != nil {
			return err
		}
		if err := copyGrants(background, tx, schema.Name, PreviousSchema); err != nil {
			return err
		}
		const undoing = "scrip_undoing"
		if err := schema.Rename(background, tx, PreviousSchema, undoing); err != nil {
			return err
		}
		if err := swap(background, tx, undoing, schema.Version()); err != nil {
			return err
		}
		late, err = s.carry(background, tx, g.steps())
		return err
	})
	if err != nil {
		return nil, explain(err)
	}
	s.report.enter(Exchanged, 0)
	return append(left, s.carryLater(ctx, late)...), s.opts.Hook(Exchanged)
}

// previousVersion returns an error if there are no previous tables of this program's version.
func previousVersion(ctx context.Context, tx pgx.Tx) error {
	comment, found, err := commentOn(ctx, tx, PreviousSchema)
	switch {
	case err != nil:
		return err
	case !found:
		return refuse("there are no previous tables: nothing was rebuilt, or they were dropped")
	}
	if version, _ := strconv.ParseInt(strings.TrimPrefix(comment, previousMark), 10, 64); version != schema.Version() {
		return refuse("the previous tables have migration %d, this program needs %d; run `scrip rebuild` instead", version, schema.Version())
	}
	return nil
}

// undoable makes the checks of Undo in advance, and creates on the previous tables the indexes that others created
// since.
func (s *Session) undoable(ctx context.Context) error {
	var g *dependents
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if err := previousVersion(ctx, tx); err != nil {
			return err
		}
		if g, err = s.dependents(ctx, tx, schema.Name, schema.Version()); err != nil {
			return err
		}
		return s.checkDependents(g)
	})
	if err != nil {
		return err
	}
	at, err := positions(ctx, s.pool, PreviousSchema, s.log.Lanes, s.log.UUID)
	if err != nil {
		return err
	}
	for n, p := range at {
		err := eventlog.Events(s.js, n).In(s.log).Verify(ctx, s.log.UUID, p)
		switch {
		case err == nil:
		case errors.Is(err, eventlog.ErrLostTail), errors.Is(err, eventlog.ErrDiverged), errors.Is(err, eventlog.ErrTrimmed):
			return refuse("the log no longer has what the previous tables were filled from up to message %d of lane %d (%w); run `scrip rebuild` instead", p.Sequence, n, err)
		default:
			return fmt.Errorf("looking for the checkpoint of the previous tables in the log: %w", err)
		}
	}
	return s.addIndexes(ctx, PreviousSchema, g.indexes)
}

// DropPrevious drops the tables that the last rebuild or Undo replaced. dropped is false if there were none.
func (s *Session) DropPrevious(ctx context.Context) (dropped bool, err error) {
	if err := s.CheckVersion(ctx); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		if _, dropped, err = commentOn(ctx, tx, PreviousSchema); err != nil {
			return err
		}
		if err := s.checkPrevious(ctx, tx); err != nil {
			return err
		}
		return dropSchema(ctx, tx, PreviousSchema, dropAskedFor)
	})
	if isLockTimeout(err) {
		return false, refuse("the previous tables have been read for longer than %s; try again when the readers have ended (pg_stat_activity, pg_locks)", dropAskedFor)
	}
	return dropped, explain(err)
}

func commentOn(ctx context.Context, tx pgx.Tx, name string) (comment string, found bool, err error) {
	err = tx.QueryRow(ctx, "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = $1", name).Scan(&comment)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	return comment, err == nil, err
}
