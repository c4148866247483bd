package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// droppedPrefix begins the names of schemas that are set aside to be dropped; microseconds since 1970 follow.
	droppedPrefix = "scrip_dropped_"
	// dropFor is how long dropping waits for readers of the tables. New readers wait meanwhile.
	dropFor = 500 * time.Millisecond
	// dropAskedFor is the same for --drop-previous.
	dropAskedFor = 3 * time.Second
)

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
	drop := func(tx pgx.Tx) error { return dropSchema(ctx, tx, name, dropFor) }
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
		err := pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error { return dropSchema(ctx, tx, name, dropFor) })
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
