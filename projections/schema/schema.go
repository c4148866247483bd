// Package schema makes the read tables and keeps them in step with the program.
//
//	scrip       the tables of CONTRACT.md and their helpers; may be dropped at any time, they are a fold of the log
//	scrip_meta  which migrations ran, reset when schema scrip was dropped; what people did about dead letters, kept then
//
// Owner: the projector, before it applies anything. Whoever else calls Migrate waits for a session lock.
//
// A crash in a migration rolls that migration back (each file is one transaction); the next start goes on with it. A
// crash between dropping the migration state and migrating leaves neither state nor tables: the next start makes both.
package schema

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	stateTable = "scrip_meta.migration"
	// migrateLock is the advisory lock held while migrating: "scripmig" as bytes.
	migrateLock = 0x73637269706d6967
)

// Relations are the tables and views of schema scrip, sorted.
var Relations = []string{"campaign", "campaign_stats", "checkpoint", "coupon", "coupon_event", "coupon_row", "dead_letter", "expiry_event",
	"expiry_task", "redemption", "refusal_stats", "reminder"}

// ErrUnusable is the kind of every error that says that the database as it is will not do, whatever one waits. Its text
// says what to do.
var ErrUnusable = errors.New("read tables unusable")

// ErrIncomplete is the kind of an ErrUnusable that a rebuild mends: a table is missing.
var ErrIncomplete = errors.New("schema scrip is not whole")

// Migrate brings schema scrip to what this program needs and reports whether it was made anew, because it was not there
// or had been dropped. It connects twice, as the pool does, and needs the right to create schemas.
func Migrate(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) (fresh bool, err error) {
	own, err := unlimited(ctx, pool)
	if err != nil {
		return false, fmt.Errorf("migrating the read tables: %w", err)
	}
	defer own.Close()
	db := stdlib.OpenDBFromPool(own)
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, fmt.Errorf("migrating the read tables: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()

	// Held on this connection alone: if we die, PostgreSQL lets it go.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(migrateLock), lock.WithLockTimeout(1, 300))
	if err != nil {
		return false, err
	}
	if err := locker.SessionLock(ctx, conn); err != nil {
		return false, fmt.Errorf("waiting for another process to migrate the read tables: %w", err)
	}
	defer func() { err = errors.Join(err, locker.SessionUnlock(context.WithoutCancel(ctx), conn)) }()

	var encoding string
	if err := conn.QueryRowContext(ctx, "SHOW server_encoding").Scan(&encoding); err != nil {
		return false, fmt.Errorf("asking for the database's encoding: %w", err)
	}
	if encoding != "UTF8" {
		return false, fmt.Errorf("%w: the database has encoding %s, which cannot hold every name; make another one: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", ErrUnusable, encoding)
	}
	fresh, err = reset(ctx, conn, log)
	if err != nil {
		return false, fmt.Errorf("looking at schema scrip: %w", allowed(err))
	}
	if err := up(ctx, db, log); err != nil {
		return fresh, allowed(err)
	}
	return fresh, allowed(makeMeta(ctx, conn))
}

// unlimited is a pool of two connections without the time limits that a role or a database carries: a migration that took too
// long once would take as long the next time.
func unlimited(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	config := pool.Config()
	config.MinConns, config.MinIdleConns, config.MaxConns = 0, 0, 2
	for _, limit := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		config.ConnConfig.RuntimeParams[limit] = "0"
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// allowed says what to do when the user may not do what migrating needs.
func allowed(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42501" {
		return fmt.Errorf("%w: %w; the user must own schemas scrip and scrip_meta, or be allowed to make them (GRANT CREATE ON DATABASE … TO …)", ErrUnusable, err)
	}
	return err
}

// reset makes the two schemas, and forgets the migrations that ran when schema scrip has been dropped since.
func reset(ctx context.Context, conn *sql.Conn, log *slog.Logger) (fresh bool, err error) {
	rows, err := conn.QueryContext(ctx, `SELECT c.relname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
		WHERE s.nspname = 'scrip' AND c.relkind IN ('r', 'p', 'v') ORDER BY c.relname COLLATE "C"`)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	var there []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return false, err
		}
		there = append(there, name)
	}
	if err := rows.Err(); err != nil {
		return false, err
	}
	var migrated sql.NullString
	if err := conn.QueryRowContext(ctx, `SELECT to_regclass($1)::text`, stateTable).Scan(&migrated); err != nil {
		return false, err
	}
	ours := slices.DeleteFunc(slices.Clone(there), func(name string) bool { return !slices.Contains(Relations, name) })
	switch {
	case len(ours) == 0:
		if migrated.Valid {
			log.WarnContext(ctx, "read tables were dropped, they are made anew and filled from the log")
		}
	case !migrated.Valid:
		return false, notOurs(ours)
	default:
		return false, missing(ctx, conn, there)
	}
	for _, statement := range []string{
		"DROP TABLE IF EXISTS " + stateTable,
		"CREATE SCHEMA IF NOT EXISTS scrip_meta",
		"CREATE SCHEMA IF NOT EXISTS scrip",
		"DROP FUNCTION IF EXISTS scrip.digest(), scrip.backlog(), scrip.due_next_hour()", // left when tables were dropped one by one
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return false, err
		}
	}
	return true, nil
}

func notOurs(tables []string) error {
	return fmt.Errorf("%w: schema scrip holds tables that scrip did not make (%s), or lost schema scrip_meta: rename schema scrip, or drop it if it is scrip's own, or use another database",
		ErrUnusable, strings.Join(tables, ", "))
}

// missing complains when some tables were dropped and others not: nobody can say what the rest is worth. A migration
// of this program may yet bring what is missing, so only a database that is fully migrated is looked at.
func missing(ctx context.Context, conn *sql.Conn, there []string) error {
	var version sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT max(version_id) FROM "+stateTable).Scan(&version); err != nil {
		return err
	}
	if version.Int64 != latest() {
		return nil
	}
	for _, name := range Relations {
		if !slices.Contains(there, name) {
			return fmt.Errorf("%w: %w: %s is missing from schema scrip; run `scrip rebuild`, or `DROP SCHEMA scrip CASCADE` and start again: everything is filled anew from the log",
				ErrUnusable, ErrIncomplete, name)
		}
	}
	return nil
}

// latest is the version of the newest migration of this program.
func latest() int64 {
	names, _ := fs.Glob(migrations, "migrations/*.sql") // the pattern is well formed
	return int64(len(names))
}

func up(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(stateTable), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	current, target, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("reading which migrations ran: %w", err)
	}
	if current > target {
		return fmt.Errorf("%w: they were made by a newer scrip (migration %d, this program knows %d): use that one, or `DROP SCHEMA scrip CASCADE` to have them filled anew by this one",
			ErrUnusable, current, target)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrating the read tables: %w", err)
	}
	if len(results) > 0 {
		log.InfoContext(ctx, "read tables migrated", "from", current, "to", target)
	}
	return nil
}
