package rebuild

import (
	"context"
	_ "embed"
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

// Running projectors start again when the generation changes.
const generationSQL = `UPDATE %s.checkpoint SET generation = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint WHERE projection = $1`

// Wakes processes that wait for a sequence.
const notifySQL = `SELECT pg_notify('` + fill.Channel + `', lane || ' ' || sequence) FROM scrip.checkpoint WHERE projection = $1`

// Copies the checkpoints of other projections, whose tables are in other schemas.
const carrySQL = `
INSERT INTO %[1]s.checkpoint (projection, lane, sequence, updated_at, log, digest, log_time, generation)
SELECT projection, lane, sequence, updated_at, log, digest, log_time, generation FROM %[2]s.checkpoint WHERE projection <> $1
ON CONFLICT (projection, lane) DO UPDATE SET sequence = excluded.sequence, updated_at = excluded.updated_at, log = excluded.log,
    digest = excluded.digest, log_time = excluded.log_time, generation = excluded.generation`

// exchange makes the tables of a schema the live ones, and those the previous ones, in one transaction in which the
// projector is locked out. prepare comes first, and returns the format of the live tables. left lists dependents that
// remain on the previous tables.
func (s *Session) exchange(ctx context.Context, from string, prepare func(ctx context.Context, tx pgx.Tx, there bool) (version int64, err error)) (left []string, err error) {
	var late []step
	err = s.locked(ctx, func(ctx context.Context, tx pgx.Tx, there bool) error {
		version, err := prepare(ctx, tx, there)
		if err != nil {
			return err
		}
		if err := s.phase(Exchanging); err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx)
		g, err := s.others.of(ctx, tx, schema.Name)
		if err != nil {
			return err
		}
		if err := errors.Join(s.others.check(g), checkIndexes(ctx, tx, from, g.indexes)); err != nil {
			return err
		}
		left = g.left
		if there {
			if _, err := tx.Exec(ctx, fmt.Sprintf(carrySQL, from, schema.Name), fill.Projection); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf(generationSQL, from), fill.Projection); err != nil {
			return err
		}
		if err := copyGrants(ctx, tx, schema.Name, from); err != nil {
			return err
		}
		if err := swap(ctx, tx, from, version); err != nil {
			return err
		}
		late, err = s.others.carry(ctx, tx, g.steps())
		return err
	})
	if err != nil {
		return nil, err
	}
	s.report.enter(Exchanged, 0)
	return append(left, s.others.carryLater(ctx, late)...), s.opts.Hook(Exchanged)
}

// swap renames schemas, and comments the previous one with its format. Earlier previous tables are set aside and
// dropped after the commit: dropping waits for readers, and the projector would wait too.
func swap(ctx context.Context, tx pgx.Tx, from string, version int64) error {
	const incoming = "scrip_incoming" // from may be the previous one
	if err := schema.Rename(ctx, tx, from, incoming); err != nil {
		return err
	}
	var there, previous bool
	if err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL, to_regnamespace($2) IS NOT NULL", schema.Name, PreviousSchema).Scan(&there, &previous); err != nil {
		return err
	}
	if previous {
		if err := setAside(ctx, tx, PreviousSchema); err != nil {
			return err
		}
	}
	if there {
		if err := schema.Rename(ctx, tx, schema.Name, PreviousSchema); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("COMMENT ON SCHEMA %s IS '%s%d'", PreviousSchema, previousMark, version)); err != nil {
			return err
		}
	}
	if err := schema.Rename(ctx, tx, incoming, schema.Name); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, notifySQL, fill.Projection)
	return err
}

//go:embed grants.sql
var grantsSQL string

// copyGrants gives the roles that may use one schema's tables the same rights on another's.
func copyGrants(ctx context.Context, tx pgx.Tx, from, to string) error {
	grants, err := schema.Collect(ctx, tx, pgx.RowTo[string], grantsSQL, from, to)
	if err != nil {
		return fmt.Errorf("reading the grants on the tables: %w", err)
	}
	for _, grant := range grants {
		if _, err := tx.Exec(ctx, grant); err != nil {
			return errors.Join(fmt.Errorf("copying a grant to the new tables: %s", grant), err)
		}
	}
	return nil
}

// setAside sets a schema aside: renames it so that a later session drops it. That needs no lock on its tables, which
// may be in use.
func setAside(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("ALTER SCHEMA %s RENAME TO %s%d", name, droppedPrefix, time.Now().UnixMicro()))
	return err
}

// dropSchema drops a schema of this package, waiting at most the given time for readers of its tables.
func dropSchema(ctx context.Context, tx pgx.Tx, name string, wait time.Duration) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d; DROP SCHEMA IF EXISTS %s CASCADE", wait.Milliseconds(), name))
	return err
}

// isLockTimeout reports whether PostgreSQL ended a statement by lock_timeout.
func isLockTimeout(err error) bool { return schema.State(err) == "55P03" }

// discard drops an incomplete schema. If it is being read, by a backup for instance, it is set aside instead.
func (s *Session) discard(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	drop := func(tx pgx.Tx) error { return dropSchema(ctx, tx, name, waits.drop) }
	err := pgx.BeginFunc(ctx, s.conn, drop)
	if isLockTimeout(err) {
		err = pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error { return setAside(ctx, tx, name) })
	}
	return err
}

// dropAside drops the schemas that were set aside and are not being read, and returns those left for a later session.
func (s *Session) dropAside(ctx context.Context) (left []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, err := schema.Collect(ctx, s.conn, pgx.RowTo[string], "SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname, $1) ORDER BY 1", droppedPrefix)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		err := pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error { return dropSchema(ctx, tx, name, waits.drop) })
		switch {
		case isLockTimeout(err):
			left = append(left, name)
		case err != nil:
			return left, err
		}
	}
	return left, nil
}

// leftoverNote names the schemas that still take room.
func leftoverNote(left []string) string {
	return fmt.Sprintf("tables that were set aside are still being read; the next rebuild or verification drops them: schema %s", strings.Join(left, ", "))
}
