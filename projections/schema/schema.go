// Package schema creates the read tables.
//
//	scrip       the tables of CONTRACT.md and their helpers; may be dropped at any time, they are a fold of the log
//	scrip_meta  the format of the tables; what operators did about dead letters, kept when schema scrip is dropped;
//	            a copy of how far push senders are
//
// There is one format. Tables of another one are never changed: `scrip rebuild` makes those of this program from the log.
//
// Owner: the projector, before it applies anything. Other callers of Ensure wait for a lock.
//
// A crash leaves all of the tables, with their format, or none: they are made in one transaction.
package schema

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Format is the format of the tables that this program makes and reads.
const Format = 1

var (
	//go:embed tables.sql
	tablesSQL string
	//go:embed meta.sql
	metaSQL string
)

// Name is the schema of the read tables. Shadow, copied and previous tables are in other schemas.
const Name = "scrip"

// relations are the tables and views of schema scrip, sorted; functions are its functions. It may have others beside them.
var (
	relations = []string{"allotment", "campaign", "campaign_event", "campaign_stats", "checkpoint", "coupon", "coupon_event", "coupon_row", "dead_letter", "expiry_event",
		"expiry_task", "redemption", "redemption_row", "refusal_stats", "reminder"}
	functions = []string{"backlog", "digest", "due_next_hour"}
)

// ErrUnusable is the kind of errors of a database that cannot be used as it is; a retry does not help. The text names
// what to do.
var ErrUnusable = errors.New("read tables unusable")

// Ensure creates the read tables if there are none. The result is true if it did, because they did not exist or had been dropped.
// It needs the right to create schemas, then. Errors of kind ErrUnusable: what is there is not complete, or of another format.
func Ensure(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) (fresh bool, err error) {
	conn, err := Dial(ctx, pool)
	if err != nil {
		return false, fmt.Errorf("creating the read tables: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	// Each statement must see what others committed before this one got the lock.
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		fresh, err = ensure(ctx, tx, log)
		return err
	})
	return fresh, allowed(err)
}

func ensure(ctx context.Context, tx pgx.Tx, log *slog.Logger) (fresh bool, err error) {
	if err := lock(ctx, tx); err != nil {
		return false, err
	}
	var encoding string
	if err := tx.QueryRow(ctx, "SHOW server_encoding").Scan(&encoding); err != nil {
		return false, fmt.Errorf("reading the encoding of the database: %w", err)
	}
	if encoding != "UTF8" {
		return false, fmt.Errorf("%w: the database has encoding %s, which cannot store every name; create another one: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", ErrUnusable, encoding)
	}
	there, err := existing(ctx, tx)
	if err != nil {
		return false, err
	}
	format, err := Applied(ctx, tx)
	switch {
	case err != nil:
		return false, err
	case format == 0:
		return true, create(ctx, tx, log)
	case format > Format:
		return false, fmt.Errorf("%w: they were created by a newer scrip (format %d, this program knows %d): use that one, or `DROP SCHEMA scrip CASCADE` so that this one fills them again",
			ErrUnusable, format, Format)
	case format != Format:
		return false, fmt.Errorf("%w: they have format %d, and this program needs %d: run `scrip rebuild`, which makes them from the log", ErrUnusable, format, Format)
	}
	for _, name := range relations { // if some were dropped, the rest may be stale
		if !slices.Contains(there, name) {
			return false, fmt.Errorf("%w: %s is missing from schema scrip; run `scrip rebuild`, or `DROP SCHEMA scrip CASCADE` and start again: all tables are filled from the log",
				ErrUnusable, name)
		}
	}
	return false, run(ctx, tx, metaSQL)
}

// create makes both schemas.
func create(ctx context.Context, tx pgx.Tx, log *slog.Logger) error {
	var before bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass('scrip_meta.format') IS NOT NULL").Scan(&before); err != nil {
		return err
	}
	if before {
		log.WarnContext(ctx, "read tables were dropped; they are created again and filled from the log")
	}
	drop := "DROP FUNCTION IF EXISTS scrip." + strings.Join(functions, "(), scrip.") + "();" // these remain when tables are dropped one by one
	if err := run(ctx, tx, "CREATE SCHEMA IF NOT EXISTS scrip_meta; CREATE SCHEMA IF NOT EXISTS scrip; "+drop+metaSQL+tablesSQL); err != nil {
		return fmt.Errorf("creating the read tables: %w", err)
	}
	return stamp(ctx, tx)
}

// run executes many statements at once, by the simple protocol.
func run(ctx context.Context, tx pgx.Tx, sql string) error {
	return tx.Conn().PgConn().Exec(ctx, sql).Close()
}

// lock waits for others who make the tables; "scripmig" as bytes.
func lock(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(0x73637269706d6967))
	return err
}

// stamp records the format of the tables.
func stamp(ctx context.Context, tx pgx.Tx) error {
	return run(ctx, tx, fmt.Sprintf("%s; DELETE FROM scrip_meta.format; INSERT INTO scrip_meta.format VALUES (%d)", metaSQL, Format))
}

// Stamp records that the tables which the transaction moves into schema scrip have the format of this program. It waits for a
// running Ensure, until the transaction's lock_timeout.
func Stamp(ctx context.Context, tx pgx.Tx) error {
	if err := lock(ctx, tx); err != nil {
		return err
	}
	return stamp(ctx, tx)
}

// allowed adds to an error of a missing right what to do.
func allowed(err error) error {
	if State(err) == "42501" {
		return fmt.Errorf("%w: %w; the user must own schemas scrip and scrip_meta, or be allowed to create them (GRANT CREATE ON DATABASE … TO …)", ErrUnusable, err)
	}
	return err
}

// State returns the SQLSTATE of an error of PostgreSQL, "" for others.
func State(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// Querier is the common interface of a pool, a connection and a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Collect returns the rows of a query.
func Collect[T any](ctx context.Context, db Querier, row pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, sql, args...) // its error is that of the rows
	return pgx.CollectRows(rows, row)
}

// existing returns which of the relations are there.
func existing(ctx context.Context, db Querier) ([]string, error) {
	there, err := Collect(ctx, db, pgx.RowTo[string], `SELECT c.relname::text FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
		WHERE s.nspname = 'scrip' AND c.relkind IN ('r', 'p', 'v') AND c.relname = ANY($1) ORDER BY c.relname COLLATE "C"`, relations)
	if err != nil {
		return nil, fmt.Errorf("reading schema scrip: %w", err)
	}
	return there, nil
}

// Applied returns the format of the tables in schema scrip; 0 = there are no tables. It writes nothing. Errors of kind
// ErrUnusable: the tables are not scrip's.
func Applied(ctx context.Context, db Querier) (format int64, err error) {
	there, err := existing(ctx, db)
	if err != nil || len(there) == 0 {
		return 0, err
	}
	var known bool
	if err := db.QueryRow(ctx, "SELECT to_regclass('scrip_meta.format') IS NOT NULL").Scan(&known); err != nil {
		return 0, err
	}
	var found *int64
	if known {
		if err := db.QueryRow(ctx, "SELECT max(version) FROM scrip_meta.format").Scan(&found); err != nil {
			return 0, err
		}
	}
	if found == nil {
		return 0, fmt.Errorf("%w: schema scrip has tables that scrip did not create (%s), or schema scrip_meta was dropped: rename schema scrip, or drop it if it is scrip's own, or use another database",
			ErrUnusable, strings.Join(there, ", "))
	}
	return *found, nil
}

// Pin sets search_path and the encoding (UTF-8), overriding settings of the database, the role and the URL. Every connection that
// works on the read tables is configured with it. Names without a schema are looked up in pg_catalog: otherwise an operator or
// function of the same name in schema public, created by another role, would run with this role's rights if it fits the arguments
// better than PostgreSQL's own. Temporary tables are found nevertheless.
func Pin(config *pgx.ConnConfig) {
	config.RuntimeParams["search_path"] = "pg_catalog"
	config.RuntimeParams["client_encoding"] = "UTF8"
}

// Patient removes the time limits of a role or a database: work that exceeds them once would always exceed them.
func Patient(config *pgx.ConnConfig) {
	for _, limit := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		config.RuntimeParams[limit] = "0"
	}
}

// Dial makes a connection outside of a pool, with its configuration, and patient. Like the pool's it goes where BeforeConnect
// leads: a private cluster may have moved to another port.
func Dial(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	config := pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	Patient(config.ConnConfig)
	return pgx.ConnectConfig(ctx, config.ConnConfig)
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

// renamed replaces the name of a schema in SQL; scrip_meta is another word.
func renamed(sql, from, to string) string {
	return regexp.MustCompile(`\b`+from+`\b`).ReplaceAllLiteralString(sql, to)
}

// Create creates the read tables of this program, empty and with all indexes, in a schema of another name, which must
// not exist. The name needs no quotes. They equal those of Ensure, whose format does not change.
func Create(ctx context.Context, tx pgx.Tx, name string) error {
	if err := run(ctx, tx, "CREATE SCHEMA "+name+"; "+renamed(tablesSQL, Name, name)); err != nil {
		return fmt.Errorf("creating the tables of schema %s: %w", name, allowed(err))
	}
	return nil
}

// $1 = schema   $2 = functions
const functionsSQL = `
SELECT pg_get_functiondef(p.oid) FROM pg_proc p
JOIN pg_namespace s ON s.oid = p.pronamespace WHERE s.nspname = $1 AND p.prokind = 'f' AND p.proname = ANY($2)`

// Rename gives a schema made by Ensure or Create another name. Tables, indexes and the view move with the schema;
// functions name their schema in their text and are created again.
func Rename(ctx context.Context, tx pgx.Tx, from, to string) error {
	definitions, err := Collect(ctx, tx, pgx.RowTo[string], functionsSQL, from, functions)
	if err != nil {
		return fmt.Errorf("renaming schema %s: %w", from, err)
	}
	statements := []string{"ALTER SCHEMA " + from + " RENAME TO " + to}
	for _, definition := range definitions {
		statements = append(statements, renamed(definition, from, to))
	}
	if err := run(ctx, tx, strings.Join(statements, ";\n")); err != nil {
		return fmt.Errorf("renaming schema %s to %s: %w", from, to, err)
	}
	return nil
}
