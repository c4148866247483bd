// Package schema creates the read tables.
//
//	scrip         views and functions: the relations of CONTRACT.md with its columns; may be dropped at any time
//	scrip_tables  views with all columns of the tables in use, for servers
//	scrip_<n>     the tables behind them, a fold of the log: those in use, those before the last rebuild, those that a rebuild has
//	              filled and could not exchange, and while a rebuild or a verification runs those that it fills
//	scrip_meta    which those are, and their format; what operators did about dead letters, kept when schema scrip is dropped;
//	              a copy of how far push senders are
//
// Other tables are put in use by replacing the views and functions: grants, and what others built on them, stay.
//
// There is one format. Tables of another one are never changed: `scrip rebuild` makes those of this program from the log.
//
// Owner: the projector, before it applies anything. Other callers of Ensure wait for a lock, ten seconds at most.
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
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Format is the format of the tables that this program makes and reads.
const Format = 1

var (
	//go:embed tables.sql
	tablesSQL string
	//go:embed views.sql
	viewsSQL string
	//go:embed comments.sql
	commentsSQL string
	//go:embed meta.sql
	metaSQL string
)

const (
	// Name is the schema of the views of the contract.
	Name = "scrip"
	// Whole is the schema of the views with all columns, which servers read: who reads Name sees none of them.
	Whole = "scrip_tables"
)

// Reserved reports whether scrip or PostgreSQL uses a schema of that name itself, so that no person may choose it.
func Reserved(name string) bool {
	return strings.HasPrefix(name, "scrip_") || strings.HasPrefix(name, "pg_") ||
		slices.Contains([]string{"scrip", "public", "information_schema", "projection_roles"}, name)
}

// Ours reports whether a schema has tables that this program or an earlier one made.
func Ours(ctx context.Context, db Querier, name string) (ours bool, err error) {
	err = db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1 AND obj_description(oid, 'pg_namespace') = $2)", name, mark).Scan(&ours)
	return ours, err
}

// RebuildLock is the advisory lock for rebuilding, copying or verifying in a database: "scriprbd" as bytes. Advisory locks are for what
// lasts longer than a transaction; what excludes others for one transaction only locks a table, which no reader can.
const RebuildLock = 0x7363726970726264

func init() { viewsSQL, metaSQL = withMasks(viewsSQL), withMasks(metaSQL) }

var masked = regexp.MustCompile(`\{\{masked (code|customer) ([a-z]+\.[a-z_]+)\}\}`)

// withMasks replaces {{masked code COLUMN}} and {{masked customer COLUMN}} by what sessions without the right get: the masks of
// replay.Mask. An empty text stays so.
func withMasks(sql string) string {
	return masked.ReplaceAllStringFunc(sql, func(found string) string {
		part := masked.FindStringSubmatch(found)
		what, column := part[1], part[2]
		return fmt.Sprintf("CASE WHEN scrip_meta.masked('%ss') AND %[2]s <> '' THEN 'masked-' || left(encode(sha256((SELECT m.outer_pad FROM scrip_meta.mask m) "+
			"|| sha256((SELECT m.inner_pad FROM scrip_meta.mask m) || '\\x%x'::bytea || convert_to(%[2]s, 'UTF8'))), 'hex'), 32) ELSE %[2]s END", what, column, what+"\x00")
	})
}

// relations are the views of schema scrip, and whole those of schema scrip_tables, by the relations that they show. No view is
// made of another one of them.
var (
	relations = []string{"coupon", "redemption", "lag", "allotment", "campaign", "campaign_event", "campaign_stats", "checkpoint", "coupon_event", "dead_letter",
		"expiry_task", "refusal_stats", "reminder"}
	whole = []string{"coupon_row", "redemption_row", "allotment", "campaign", "campaign_event", "campaign_stats", "checkpoint", "coupon_event", "dead_letter",
		"expiry_event", "expiry_task", "refusal_stats", "reminder"}

	functions = []string{"backlog", "digest", "due_next_hour"}
)

// views are all that an exchange replaces, in the order in which it locks them: coupons first, as a transaction reads them. One that
// has read them and goes on to their campaign would wait for an exchange that had locked that, and waits for this transaction.
func views() (names []string) {
	for _, name := range relations {
		names = append(names, Name+"."+name)
	}
	for _, name := range whole {
		names = append(names, Whole+"."+name)
	}
	return names
}

// ErrUnusable is the kind of errors of a database that cannot be used as it is; a retry does not help. The text names
// what to do.
var ErrUnusable = errors.New("read tables unusable")

// lockWait is how long Ensure waits for a lock.
var lockWait = 10 * time.Second

// Ensure creates the read tables if there are none. The result is true if it did, because they did not exist or had been dropped.
// It needs the right to create schemas, then. Errors of kind ErrUnusable: what is there is not complete, or of another format.
func Ensure(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) (fresh bool, err error) {
	conn, err := Dial(ctx, pool, "scrip schema")
	if err != nil {
		return false, fmt.Errorf("creating the read tables: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for attempt := 1; ; attempt++ {
		// Each statement must see what others committed before this one got the lock.
		err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
			if _, err = tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", lockWait.Milliseconds())); err == nil {
				fresh, err = ensure(ctx, tx, log)
			}
			return err
		})
		if !Exists(err) || attempt == 3 {
			break
		}
	}
	switch {
	case State(err) == "55P03": // lock_timeout
		who, found, looking := holder(ctx, conn, tableHolderSQL)
		if looking == nil && found {
			return false, fmt.Errorf("%s has locked scrip_meta.format for more than %s; %s: %w", who, lockWait, who.End(), err)
		}
		return false, fmt.Errorf("waiting for a lock of another session, see pg_locks: %w", err)
	case err == nil && fresh: // those of a schema scrip that was dropped
		_, err = DropLeftovers(ctx, conn, time.Second)
	}
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
	gone, err := Collect(ctx, tx, pgx.RowTo[string], "SELECT v FROM unnest($1::text[]) v WHERE to_regclass(v) IS NULL", views())
	if err == nil && len(gone) > 0 { // the rest may be stale
		schema, name, _ := strings.Cut(gone[0], ".")
		err = fmt.Errorf("%w: %s is missing from schema %s; run `scrip rebuild`, or `DROP SCHEMA scrip CASCADE` and start again: all tables are filled from the log",
			ErrUnusable, name, schema)
	}
	if err != nil {
		return false, err
	}
	return false, run(ctx, tx, metaSQL)
}

// create makes all schemas.
func create(ctx context.Context, tx pgx.Tx, log *slog.Logger) error {
	var before bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass('scrip_meta.format') IS NOT NULL").Scan(&before); err != nil {
		return err
	}
	if before {
		log.WarnContext(ctx, "read tables were dropped; they are created again and filled from the log")
	}
	if err := run(ctx, tx, "CREATE SCHEMA IF NOT EXISTS scrip_meta; CREATE SCHEMA IF NOT EXISTS scrip; "+metaSQL); err != nil {
		return fmt.Errorf("creating the read tables: %w", err)
	}
	name, err := Make(ctx, tx)
	if err != nil {
		return err
	}
	if err := exchange(ctx, tx, name); err != nil {
		return err
	}
	return run(ctx, tx, fmt.Sprintf("DELETE FROM scrip_meta.format; INSERT INTO scrip_meta.format VALUES (%d, '%s')", Format, name))
}

// run executes many statements at once, by the simple protocol.
func run(ctx context.Context, tx pgx.Tx, sql string) error {
	return tx.Conn().PgConn().Exec(ctx, sql).Close()
}

// lock waits for others who make or exchange the tables. Before the first ones are made there is no table to lock: then the unique
// indexes of the catalog let one transaction make schema scrip_meta and its tables, and others get an error of kind Exists.
func lock(ctx context.Context, tx pgx.Tx) error {
	var there bool
	err := tx.QueryRow(ctx, "SELECT to_regclass('scrip_meta.format') IS NOT NULL").Scan(&there)
	if err == nil && there {
		_, err = tx.Exec(ctx, "LOCK TABLE scrip_meta.format IN SHARE UPDATE EXCLUSIVE MODE") // which excludes itself, and no UPDATE
	}
	return err
}

// Exists reports whether an object could not be made because another transaction made it meanwhile.
func Exists(err error) bool {
	switch State(err) {
	case "23505", "42P06", "42P07", "42710": // unique_violation in the catalog, duplicate_schema, duplicate_table, duplicate_object
		return true
	}
	return false
}

// allowed adds to an error of a missing right what to do.
func allowed(err error) error {
	if State(err) == "42501" {
		return fmt.Errorf("%w: %w; the user must own schemas scrip, scrip_tables and scrip_meta, or be allowed to create them (GRANT CREATE ON DATABASE … TO …)", ErrUnusable, err)
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

// MostIdle is how long a transaction may wait for its process, which is stopped then, or at fault: PostgreSQL ends it, with its locks.
// No transaction waits for anything but PostgreSQL, except for the snapshots of rebuilds.
const MostIdle = "60s"

// Patient replaces the time limits of a role or a database: work that exceeds them once would always exceed them.
func Patient(config *pgx.ConnConfig) {
	config.RuntimeParams["statement_timeout"] = "0"
	config.RuntimeParams["lock_timeout"] = "0"
	config.RuntimeParams["idle_in_transaction_session_timeout"] = MostIdle
}

// Dial makes a connection outside of a pool, with its configuration, and patient. Like the pool's it goes where BeforeConnect
// leads: a private cluster may have moved to another port. what is the begin of its name, see ApplicationName.
func Dial(ctx context.Context, pool *pgxpool.Pool, what string) (*pgx.Conn, error) {
	config := pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	Patient(config.ConnConfig)
	config.ConnConfig.RuntimeParams["application_name"] = ApplicationName(what)
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
