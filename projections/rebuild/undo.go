package rebuild

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

const (
	// previousMark starts the comment on the previous tables; their format follows.
	previousMark = "read tables of scrip before the last rebuild, format "
	// droppedPrefix begins the names of schemas that are set aside to be dropped; microseconds since 1970 follow.
	droppedPrefix = "scrip_dropped_"
)

// Undo exchanges the live and the previous tables: a second Undo reverts the first. The projector catches up from the
// checkpoints of the previous ones.
func (s *Session) Undo(ctx context.Context) (left []string, err error) {
	if err := sameVersion(ctx, s.pool); err != nil {
		return nil, err
	}
	extra, err := s.precheck(ctx, previousVersion)
	if err != nil {
		return nil, err
	}
	at, err := s.positions(ctx, s.pool, PreviousSchema)
	if err != nil {
		return nil, explain(err)
	}
	for n, p := range at {
		err := eventlog.Events(s.js, n).In(s.log).Verify(ctx, s.log.UUID, p)
		switch {
		case fill.IsLost(err):
			return nil, refuse("the log no longer has what the previous tables were filled from up to message %d of lane %d (%w); run `scrip rebuild` instead", p.Sequence, n, err)
		case err != nil:
			return nil, fmt.Errorf("looking for the checkpoint of the previous tables in the log: %w", err)
		}
	}
	if err := s.addIndexes(ctx, PreviousSchema, extra); err != nil {
		return nil, explain(err)
	}
	left, err = s.exchange(ctx, PreviousSchema, func(ctx context.Context, tx pgx.Tx, _ bool) (int64, error) {
		ctx = context.WithoutCancel(ctx)
		if err := sameVersion(ctx, tx); err != nil { // the tables may have been replaced in between
			return 0, err
		}
		return schema.Format, previousVersion(ctx, tx)
	})
	return left, explain(err)
}

// previousVersion returns an error if there are no previous tables of this program's version.
func previousVersion(ctx context.Context, tx pgx.Tx) error {
	version, found, err := previousFormat(ctx, tx)
	switch {
	case err != nil:
		return err
	case !found:
		return refuse("there are no previous tables: nothing was rebuilt, or they were dropped")
	case version != schema.Format:
		return refuse("the previous tables have format %d, this program needs %d; run `scrip rebuild` instead", version, schema.Format)
	}
	return nil
}

// DropPrevious drops the tables that the last rebuild or Undo replaced. dropped is false if there were none.
func (s *Session) DropPrevious(ctx context.Context) (dropped bool, err error) {
	if err := sameVersion(ctx, s.pool); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		if _, dropped, err = previousFormat(ctx, tx); err != nil {
			return err
		}
		if err := s.checkPrevious(ctx, tx); err != nil {
			return err
		}
		return dropSchema(ctx, tx, PreviousSchema, waits.dropAsked)
	})
	if isLockTimeout(err) {
		return false, refuse("the previous tables have been read for longer than %s; try again when the readers have ended (pg_stat_activity, pg_locks)", waits.dropAsked)
	}
	return dropped, explain(err)
}

// previousFormat returns the format of the previous tables, 0 if it is not known; found is false if there are none.
func previousFormat(ctx context.Context, tx pgx.Tx) (version int64, found bool, err error) {
	var comment string
	err = tx.QueryRow(ctx, "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = $1", PreviousSchema).Scan(&comment)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	version, _ = strconv.ParseInt(strings.TrimPrefix(comment, previousMark), 10, 64)
	return version, err == nil, err
}

// setAside sets a schema aside: renames it so that a later session drops it. That needs no lock on its tables, which
// may be in use.
func setAside(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("ALTER SCHEMA %s RENAME TO %s%d", name, droppedPrefix, time.Now().UnixMicro()))
	return err
}

// dropSchema drops a schema of this package, waiting at most the given time for readers of its tables.
func dropSchema(ctx context.Context, tx pgx.Tx, name string, wait time.Duration) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", wait.Milliseconds())); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DROP SCHEMA IF EXISTS "+name+" CASCADE")
	return err
}

// isLockTimeout reports whether PostgreSQL ended a statement by lock_timeout.
func isLockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}

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
	rows, err := s.conn.Query(ctx, "SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname, $1) ORDER BY 1", droppedPrefix)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
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

// schemaName matches the allowed names of a copy, which need no quotes.
var schemaName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,50}$`)

// CheckName validates the schema name of a copy.
func CheckName(name string) error {
	switch {
	case !schemaName.MatchString(name):
		return fmt.Errorf("is not a valid schema name; give 1 to 51 of a-z, 0-9 and _, beginning with a letter")
	case strings.HasPrefix(name, "scrip"), strings.HasPrefix(name, "pg_"), name == "public", name == "information_schema":
		return fmt.Errorf("is a name that scrip or PostgreSQL uses itself; choose another")
	}
	return nil
}

// Copy creates tables as of a time in a separate schema. A zero time is now. No projector updates them.
func (s *Session) Copy(ctx context.Context, name string, until time.Time) (r Result, err error) {
	began := time.Now()
	if err := CheckName(name); err != nil {
		return r, refuse("schema %q %w", name, err)
	}
	var only selection
	if !until.IsZero() {
		if until.After(began) {
			return r, refuse("%s is in the future; give a time that has passed", until.UTC().Format(time.RFC3339))
		}
		only.Until = wire.At(until)
	}
	var there bool
	if err := s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", name).Scan(&there); err != nil {
		return r, explain(err)
	}
	if there {
		return r, refuse("schema %s exists; drop it (DROP SCHEMA %s CASCADE), or choose another name", name, name)
	}
	err = s.fillSchema(ctx, ScratchSchema, func(ctx context.Context) error {
		sh, err := s.load(ctx, ScratchSchema, only, &r)
		if err != nil {
			return err
		}
		r.Schema, r.Events = name, sh.events()
		s.mu.Lock()
		defer s.mu.Unlock()
		ctx = context.WithoutCancel(ctx)
		return pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
			if err := copyGrants(ctx, tx, schema.Name, ScratchSchema); err != nil {
				return err
			}
			return schema.Rename(ctx, tx, ScratchSchema, name)
		})
	})
	r.Took = time.Since(began)
	return r, err
}
