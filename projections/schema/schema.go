// Package schema creates the read tables and migrates them to the version of the program.
//
//	scrip       the tables of CONTRACT.md and their helpers; may be dropped at any time, they are a fold of the log
//	scrip_meta  which migrations ran, reset when schema scrip was dropped; what operators did about dead letters, kept then;
//	            a copy of how far push senders are
//
// Owner: the projector, before it applies anything. Other callers of Migrate wait for a session lock.
//
// A crash in a migration rolls that migration back (each file is one transaction); the next start runs it again. A
// crash between dropping the migration state and migrating leaves neither state nor tables: the next start creates
// both.
package schema

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
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

// ErrUnusable is the kind of errors of a database that cannot be used as it is; a retry does not help. The text names
// what to do.
var ErrUnusable = errors.New("read tables unusable")

// ErrIncomplete is the kind of an ErrUnusable that a rebuild resolves: a table is missing.
var ErrIncomplete = errors.New("schema scrip is incomplete")

// Migrate brings schema scrip to the version of this program. The result is true if it was created, because it did not
// exist or had been dropped. It opens two connections with the pool's configuration, and needs the right to create
// schemas.
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

	// Held on this connection: PostgreSQL releases it if this process dies.
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
		return false, fmt.Errorf("reading the encoding of the database: %w", err)
	}
	if encoding != "UTF8" {
		return false, fmt.Errorf("%w: the database has encoding %s, which cannot store every name; create another one: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", ErrUnusable, encoding)
	}
	fresh, err = reset(ctx, conn, log)
	if err != nil {
		return false, fmt.Errorf("reading schema scrip: %w", allowed(err))
	}
	if err := up(ctx, db, log); err != nil {
		return fresh, allowed(err)
	}
	return fresh, allowed(makeMeta(ctx, conn))
}

// unlimited is a pool of two connections without the time limits of a role or a database: a migration that exceeds them
// once would always exceed them.
func unlimited(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	config := pool.Config()
	config.MinConns, config.MinIdleConns, config.MaxConns = 0, 0, 2
	for _, limit := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		config.ConnConfig.RuntimeParams[limit] = "0"
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// allowed adds to an error of a missing right what to do.
func allowed(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42501" {
		return fmt.Errorf("%w: %w; the user must own schemas scrip and scrip_meta, or be allowed to create them (GRANT CREATE ON DATABASE … TO …)", ErrUnusable, err)
	}
	return err
}

// reset creates the two schemas, and deletes the state of migrations if schema scrip has been dropped since.
func reset(ctx context.Context, conn *sql.Conn, log *slog.Logger) (fresh bool, err error) {
	var names string
	if err := conn.QueryRowContext(ctx, "SELECT coalesce(string_agg(relname, ' '), '') FROM ("+relationsSQL+") r", Relations).Scan(&names); err != nil {
		return false, err
	}
	ours := strings.Fields(names)
	var migrated sql.NullString
	if err := conn.QueryRowContext(ctx, `SELECT to_regclass($1)::text`, stateTable).Scan(&migrated); err != nil {
		return false, err
	}
	switch {
	case len(ours) == 0:
		if migrated.Valid {
			log.WarnContext(ctx, "read tables were dropped; they are created again and filled from the log")
		}
	case !migrated.Valid:
		return false, notOurs(ours)
	default:
		return false, missing(ctx, conn, ours)
	}
	for _, statement := range []string{
		"DROP TABLE IF EXISTS " + stateTable,
		"CREATE SCHEMA IF NOT EXISTS scrip_meta",
		"CREATE SCHEMA IF NOT EXISTS scrip",
		"DROP FUNCTION IF EXISTS scrip.digest(), scrip.backlog(), scrip.due_next_hour()", // these remain when tables are dropped one by one
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return false, err
		}
	}
	return true, nil
}

func notOurs(tables []string) error {
	return fmt.Errorf("%w: schema scrip has tables that scrip did not create (%s), or schema scrip_meta was dropped: rename schema scrip, or drop it if it is scrip's own, or use another database",
		ErrUnusable, strings.Join(tables, ", "))
}

// missing returns an error if some tables were dropped and others not: the rest may be stale. It checks only a fully
// migrated database, because a migration may still create what is missing.
func missing(ctx context.Context, conn *sql.Conn, there []string) error {
	var version sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT max(version_id) FROM "+stateTable).Scan(&version); err != nil {
		return err
	}
	if version.Int64 != Version() {
		return nil
	}
	for _, name := range Relations {
		if !slices.Contains(there, name) {
			return fmt.Errorf("%w: %w: %s is missing from schema scrip; run `scrip rebuild`, or `DROP SCHEMA scrip CASCADE` and start again: all tables are filled from the log",
				ErrUnusable, ErrIncomplete, name)
		}
	}
	return nil
}

// Version returns the newest migration of this program, which is that of tables made by Create.
func Version() int64 {
	names, _ := fs.Glob(migrations, "migrations/*.sql") // the pattern is well formed
	return int64(len(names))
}

// passSQL lets the ids of the state of migrations go on after the greatest one. With wal_level = minimal a crash of PostgreSQL
// before its next checkpoint sets a sequence back that was used in the transaction that created it (seen with PostgreSQL 15), and
// the state's first row is of that transaction: without this, the next migration would repeat an id.
const passSQL = `
SELECT setval(pg_get_serial_sequence('` + stateTable + `', 'id'), max(id)) FROM ` + stateTable + ` HAVING max(id) IS NOT NULL`

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
		return fmt.Errorf("%w: they were created by a newer scrip (migration %d, this program knows %d): use that one, or `DROP SCHEMA scrip CASCADE` so that this one fills them again",
			ErrUnusable, current, target)
	}
	if current >= 0 {
		if _, err := db.ExecContext(ctx, passSQL); err != nil {
			return fmt.Errorf("reading which migrations ran: %w", err)
		}
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

// What operators did about dead letters is not a fold of the log: it would be lost with tables that are dropped or
// rebuilt, and would make their digests differ. So it is stored beside the state of migrations, outlives the tables,
// and names the event of the dead letter. at is the dead letter's: a log that lost its tail may use positions again.
const deadLettersSQL = `
CREATE TABLE IF NOT EXISTS scrip_meta.dead_letter (
    log            text COLLATE "C" NOT NULL,
    lane           bigint NOT NULL,
    event_sequence bigint NOT NULL,
    event_line     bigint NOT NULL,
    at             timestamptz NOT NULL,
    settled_at     timestamptz NOT NULL,
    state          text COLLATE "C" NOT NULL,
    note           text NOT NULL,

    CONSTRAINT dead_letter_key PRIMARY KEY (log, lane, event_sequence, event_line, at),
    CONSTRAINT dead_letter_state_is_known CHECK (state IN ('retried', 'discarded'))
)`

// How far push senders are, and what they could not deliver, is a copy of what NATS holds, see readmodel.Keeper: no fold of the
// log either.
var deliveriesSQL = []string{`
CREATE TABLE IF NOT EXISTS scrip_meta.push_audience (
    name              text COLLATE "C" NOT NULL,
    lane              bigint NOT NULL,
    delivered         bigint NOT NULL,
    dead              bigint NOT NULL,
    failed_tries      bigint NOT NULL,
    waiting           bigint NOT NULL,
    oldest_waiting_at timestamptz,
    recorded_at       timestamptz NOT NULL,

    CONSTRAINT push_audience_key PRIMARY KEY (name, lane)
)`, `
CREATE TABLE IF NOT EXISTS scrip_meta.push_dead_letter (
    message     text COLLATE "C" NOT NULL,
    line        bigint NOT NULL,
    id          bigint NOT NULL,
    name        text COLLATE "C" NOT NULL,
    lane        bigint NOT NULL,
    sequence    bigint NOT NULL,
    campaign    text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    customer_id text COLLATE "C" NOT NULL,
    due_at      timestamptz,
    fired_at    timestamptz,
    reason      text NOT NULL,
    tries       bigint NOT NULL,
    at          timestamptz NOT NULL,

    CONSTRAINT push_dead_letter_key PRIMARY KEY (message, line)
)`,
	`CREATE INDEX IF NOT EXISTS push_dead_letter_customer ON scrip_meta.push_dead_letter USING hash (customer_id)`,
}

func makeMeta(ctx context.Context, conn *sql.Conn) error {
	for _, statement := range append([]string{deadLettersSQL}, deliveriesSQL...) {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// $1 = relations of this program
const relationsSQL = `
SELECT c.relname::text FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = 'scrip' AND c.relkind IN ('r', 'p', 'v') AND c.relname = ANY($1) ORDER BY c.relname COLLATE "C"`

// rower is the common interface of a pool, a connection and a transaction.
type rower interface {
	querier
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Applied returns the newest migration of the tables in schema scrip; 0 = there are no tables. It writes nothing.
// Errors of kind ErrUnusable: the tables are not scrip's.
func Applied(ctx context.Context, db rower) (version int64, err error) {
	rows, err := db.Query(ctx, relationsSQL, Relations)
	if err != nil {
		return 0, err
	}
	ours, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(ours) == 0 {
		return 0, err
	}
	var known bool
	if err := db.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", stateTable).Scan(&known); err != nil {
		return 0, err
	}
	if !known {
		return 0, notOurs(ours)
	}
	err = db.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+stateTable).Scan(&version)
	return version, err
}

// $1 = version
const stampSQL = `
INSERT INTO ` + stateTable + ` (version_id, is_applied)
SELECT v, true FROM generate_series(1, $1::bigint) v WHERE NOT EXISTS (SELECT 1 FROM ` + stateTable + ` WHERE version_id = v)`

// Stamp records that the tables which the transaction moves into schema scrip have every migration of this program. It
// waits for a running Migrate, until the transaction's lock_timeout.
func Stamp(ctx context.Context, tx pgx.Tx) error {
	for _, statement := range []string{fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", int64(migrateLock)), deadLettersSQL, passSQL} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, stampSQL, Version())
	return err
}

// searchPath is where names without a schema are looked up. Otherwise an operator or function of the same name in
// schema public, created by another role, would run with this role's rights if it fits the arguments better than
// PostgreSQL's own. Temporary tables are found nevertheless.
const searchPath = "pg_catalog"

// Pin sets search_path and the encoding (UTF-8), overriding settings of the database, the role and the URL. Every
// connection that works on the read tables is configured with it.
func Pin(config *pgx.ConnConfig) {
	config.RuntimeParams["search_path"] = searchPath
	config.RuntimeParams["client_encoding"] = "UTF8"
}

// Connect connects to the database with the read tables.
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("the URL of PostgreSQL: %w", err)
	}
	Pin(config)
	return pgx.ConnectConfig(ctx, config)
}

// Digest is a digest of the rows of one table, independent of their order.
type Digest struct {
	Relation string
	Rows     int64
	Digest   string // 128 bits in hex; equal contents give equal digests on any machine
}

// querier is the common interface of a pool, a connection and a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Digests returns a digest of every table of schema scrip, sorted by name: helpers included, checkpoint and processed
// expiry tasks left out. In a REPEATABLE READ transaction they are consistent.
func Digests(ctx context.Context, db querier) ([]Digest, error) {
	rows, err := db.Query(ctx, "SELECT relation, row_count, digest FROM scrip.digest()")
	if err != nil {
		return nil, fmt.Errorf("digesting the read tables: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Digest])
	if err != nil {
		return nil, fmt.Errorf("digesting the read tables: %w", err)
	}
	return list, nil
}

// Name is the schema of the read tables. Shadow, copied and previous tables are in other schemas.
const Name = "scrip"

// named finds the schema's name in migrations and function bodies; scrip_meta is another word.
var named = regexp.MustCompile(`\bscrip\b`)

// Create creates the read tables of this program, empty and with all indexes, in a schema of another name, which must
// not exist. The name needs no quotes. It runs the migrations with the other name in them, so the tables equal those of
// Migrate; a migration therefore names no other schema. The state of migrations does not change.
func Create(ctx context.Context, tx pgx.Tx, name string) error {
	if _, err := tx.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		return fmt.Errorf("creating schema %s: %w", name, allowed(err))
	}
	files, err := fs.Glob(migrations, "migrations/*.sql") // sorted
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := fs.ReadFile(migrations, file)
		if err != nil {
			return err
		}
		_, up, _ := strings.Cut(string(text), "-- +goose Up")
		up, _, _ = strings.Cut(up, "-- +goose Down")
		// Many statements at once: the simple protocol.
		if err := tx.Conn().PgConn().Exec(ctx, named.ReplaceAllLiteralString(up, name)).Close(); err != nil {
			return fmt.Errorf("creating the tables of schema %s (%s): %w", name, file, allowed(err))
		}
	}
	return nil
}

// functions are those of the migrations; schema scrip may have others beside them.
var functions = []string{"backlog", "digest", "due_next_hour"}

// $1 = schema   $2 = functions
const functionsSQL = `
SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc p
JOIN pg_namespace s ON s.oid = p.pronamespace WHERE s.nspname = $1 AND p.prokind = 'f' AND p.proname = ANY($2)`

// Rename gives a schema made by Migrate or Create another name. Tables, indexes and the view move with the schema;
// functions name their schema in their text and are created again.
func Rename(ctx context.Context, tx pgx.Tx, from, to string) error {
	rows, err := tx.Query(ctx, functionsSQL, from, functions)
	if err != nil {
		return fmt.Errorf("renaming schema %s: %w", from, err)
	}
	type function struct{ Name, Text string }
	functions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	if err != nil {
		return fmt.Errorf("renaming schema %s: %w", from, err)
	}
	if _, err := tx.Exec(ctx, "ALTER SCHEMA "+from+" RENAME TO "+to); err != nil {
		return fmt.Errorf("renaming schema %s to %s: %w", from, to, err)
	}
	own := regexp.MustCompile(`\b` + from + `\b`)
	for _, f := range functions {
		if _, err := tx.Exec(ctx, own.ReplaceAllLiteralString(f.Text, to)); err != nil {
			return fmt.Errorf("renaming schema %s to %s: %s: %w", from, to, f.Name, err)
		}
	}
	return nil
}
