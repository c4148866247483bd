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
	// droppedPrefix begins the names of schemas that wait for being dropped; microseconds since 1970 follow.
	droppedPrefix = "scrip_dropped_"
	// dropFor is how long dropping waits for those who read the tables. Others who ask for them wait behind us meanwhile.
	dropFor = 500 * time.Millisecond
	// dropAskedFor is the same where somebody asked for nothing else.
	dropAskedFor = 3 * time.Second
)

// aside gives a schema a name under which a later session drops it. That needs no lock on its tables, which somebody may be
// reading.
func aside(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("ALTER SCHEMA %s RENAME TO %s%d", name, droppedPrefix, time.Now().UnixMicro()))
	return err
}

// dropSchema drops a schema of ours if that needs no longer wait than given for readers of its tables.
func dropSchema(ctx context.Context, tx pgx.Tx, name string, wait time.Duration) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", wait.Milliseconds())); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DROP SCHEMA IF EXISTS "+name+" CASCADE")
	return err
}

// isLockTimeout says whether somebody held a lock for longer than we wait.
func isLockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}

// discard removes a schema that was being filled. While somebody reads it, a backup for instance, it is put aside instead.
func (s *Session) discard(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	drop := func(tx pgx.Tx) error { return dropSchema(ctx, tx, name, dropFor) }
	err := pgx.BeginFunc(ctx, s.conn, drop)
	if isLockTimeout(err) {
		err = pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error { return aside(ctx, tx, name) })
	}
	return err
}

// dropAside drops what was put aside, as far as nobody reads it, and returns what is left for a later session.
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

// asideNote says what still takes room.
func asideNote(left []string) string {
	return fmt.Sprintf("somebody still reads tables that were put aside before; the next rebuild or verification drops them: schema %s", strings.Join(left, ", "))
}
