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
	// lockFor is how long one attempt waits for the projector's transactions to end. Those that come after it wait
	// behind us, so it is short.
	lockFor = 2 * time.Second
	// holdFor is how long the live tables may be held while the shadow catches up for the last time.
	holdFor = 5 * time.Second
	// attempts are made before the last one, which holds them for as long as it takes.
	attempts = 5
)

// Writers of checkpoint are locked out: the projector moves it first in each of its transactions, so none is under way
// that wrote rows of the old tables and would write more into the new ones. A statement that waits for this lock looks
// up its tables again when it gets it. Readers are not disturbed.
const lockSQL = `LOCK TABLE scrip.checkpoint IN SHARE ROW EXCLUSIVE MODE`

// A generation is told to projectors at work: they begin again when it changes.
const generationSQL = `UPDATE %s.checkpoint SET generation = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint WHERE projection = $1`

// Whoever waits for a sequence looks again.
const notifySQL = `SELECT pg_notify('scrip_checkpoint', lane || ' ' || sequence) FROM scrip.checkpoint WHERE projection = $1`

// Checkpoints of other projections, which have their tables elsewhere, go along.
const carrySQL = `
INSERT INTO %[1]s.checkpoint (projection, lane, sequence, updated_at, log, digest, log_time, generation)
SELECT projection, lane, sequence, updated_at, log, digest, log_time, generation FROM %[2]s.checkpoint WHERE projection <> $1
ON CONFLICT (projection, lane) DO UPDATE SET sequence = excluded.sequence, updated_at = excluded.updated_at, log = excluded.log,
    digest = excluded.digest, log_time = excluded.log_time, generation = excluded.generation`

// Locked runs f in a transaction that locks the projector out of the live tables, on the connection that holds our own
// lock. there is whether there are live tables to lock.
func (s *Session) Locked(ctx context.Context, f func(ctx context.Context, tx pgx.Tx, there bool) error) error {
	for attempt := 1; ; attempt++ {
		err := s.tryLocked(ctx, attempt > attempts, f)
		var pg *pgconn.PgError
		busy := errors.As(err, &pg) && pg.Code == "55P03" || errors.Is(err, errHeld)
		if !busy || attempt > attempts || ctx.Err() != nil {
			return err
		}
		// What made it wait, or what there was to catch up, is less the next time.
		if err := topology.Pause(ctx, lockFor); err != nil {
			return err
		}
	}
}

// errHeld: catching up took longer than the live tables may be held.
var errHeld = errors.New("the live tables were held for too long")

func (s *Session) tryLocked(ctx context.Context, last bool, f func(ctx context.Context, tx pgx.Tx, there bool) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A query that is cancelled costs the connection, and with it the lock; the limit is for what f does elsewhere.
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
		holding, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if !last {
			timer := time.AfterFunc(holdFor, func() { cancel(errHeld) })
			defer timer.Stop()
		}
		err := f(holding, tx, there)
		if err != nil && errors.Is(context.Cause(holding), errHeld) {
			return errHeld
		}
		if err == nil {
			err = ctx.Err()
		}
		return err
	})
}

// Renew tells projectors at work that rows of the live tables were changed by somebody else, in the transaction of
// Locked that changed them.
func Renew(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(generationSQL, schema.Name), projector.Projection)
	return err
}

// exchange puts the shadow in the place of the live tables, which become the previous ones. left is what others made on
// them that stays there.
func (sh *Shadow) exchange(ctx context.Context) (left []string, err error) {
	s := sh.s
	var late []step
	err = s.Locked(ctx, func(ctx context.Context, tx pgx.Tx, there bool) error {
		background := context.WithoutCancel(ctx)
		if there {
			if err := sh.Reach(ctx, tx); err != nil {
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
			return fmt.Errorf("noting the migrations of the new tables: %w", err)
		}
		g, err := s.guests(background, tx, schema.Name, version)
		if err != nil {
			return err
		}
		if err := errors.Join(s.refused(g), lackIndexes(background, tx, sh.name, g.indexes)); err != nil {
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
		if err := s.droppable(background, tx); err != nil {
			return err
		}
		if _, found, err := commentOn(background, tx, PreviousSchema); err != nil {
			return err
		} else if found { // dropped after the commit: that waits for its readers, and the projector would wait with us
			if err := aside(background, tx, PreviousSchema); err != nil {
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

// Reach brings the shadow to where the live tables are, which do not move while we hold them. Where they claim to be
// beyond the end of the log, its end is where they are.
func (sh *Shadow) Reach(ctx context.Context, tx pgx.Tx) error {
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

// swap renames, and marks what is put aside with the migration that it has.
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

// previousMark begins the comment on the previous tables; the migration they have follows.
const previousMark = "read tables of scrip before the last rebuild, migration "

// Undo puts the previous tables back, and the present ones in their place: undone twice, nothing has changed. The
// projector catches up from where the previous ones were left.
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
		g, err := s.guests(background, tx, schema.Name, schema.Version())
		if err != nil {
			return err
		}
		if err := errors.Join(s.refused(g), lackIndexes(background, tx, PreviousSchema, g.indexes)); err != nil {
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

// previousVersion refuses where there are no previous tables that this program can use.
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

// undoable looks for what would refuse an undoing, and gives the previous tables the indexes that others made since.
func (s *Session) undoable(ctx context.Context) error {
	var g *guests
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if err := previousVersion(ctx, tx); err != nil {
			return err
		}
		if g, err = s.guests(ctx, tx, schema.Name, schema.Version()); err != nil {
			return err
		}
		return s.refused(g)
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
			return refuse("the log no longer holds what the previous tables were filled from up to message %d of lane %d (%w); run `scrip rebuild` instead", p.Sequence, n, err)
		default:
			return fmt.Errorf("looking for the checkpoint of the previous tables in the log: %w", err)
		}
	}
	return s.addIndexes(ctx, PreviousSchema, g.indexes)
}

// DropPrevious removes the tables that the last rebuild, or its undoing, took out of use. dropped says whether there
// were any.
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
		if err := s.droppable(ctx, tx); err != nil {
			return err
		}
		return dropSchema(ctx, tx, PreviousSchema, dropAskedFor)
	})
	if isLockTimeout(err) {
		return false, refuse("somebody reads the previous tables, for longer than %s; try again when it has ended (pg_stat_activity, pg_locks)", dropAskedFor)
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
