package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// mark is the comment on schemas of tables: one of somebody else with such a name is left alone.
const mark = "tables of scrip"

// keptSQL is the comment on tables that a rebuild has filled and not exchanged yet. Their rows depend on the program and on the
// setting, too: under others they are leftovers.
var keptSQL = fmt.Sprintf("format('%s, filled: format %d of %s, tables.keep %%s', keep_days)", mark, Format, build())

// build identifies the program: its version, or the commit that it is made from.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	text := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += " " + s.Value
		}
	}
	return regexp.MustCompile(`[^a-zA-Z0-9.+ -]`).ReplaceAllString(text, "")
}

// Tables are the schemas of tables and their formats, see meta.sql. Previous is "" if there are none.
type Tables struct {
	Version         int64
	Live, Previous  string
	PreviousVersion int64
	// Kept are tables that a rebuild has filled and not exchanged yet, of this program's format and the setting
	// KeepDays; "" = none.
	Kept     string
	KeepDays int64
}

// Current returns which tables there are. Live is "" if schema scrip was dropped, or was never made.
func Current(ctx context.Context, db Querier) (t Tables, err error) {
	if t.Version, err = Applied(ctx, db); err != nil || t.Version == 0 {
		return t, err
	}
	err = db.QueryRow(ctx, `SELECT live, coalesce(previous, ''), coalesce(previous_version, 0), keep_days,
		coalesce((SELECT max(nspname::text) FROM pg_namespace WHERE nspname ~ '^scrip_[0-9]+$' AND obj_description(oid, 'pg_namespace') = `+keptSQL+`), '')
		FROM scrip_meta.format`).Scan(&t.Live, &t.Previous, &t.PreviousVersion, &t.KeepDays, &t.Kept)
	return t, err
}

// Keep marks tables that are filled to some place in the log, with the setting as it was then: DropLeftovers leaves
// them to the next rebuild. They are marked until Use puts them in use, or Forget.
func Keep(ctx context.Context, tx pgx.Tx, name string, keepDays int64) error {
	var text string
	if err := tx.QueryRow(ctx, "SELECT "+keptSQL+" FROM (SELECT $1::bigint) x (keep_days)", keepDays).Scan(&text); err != nil {
		return err
	}
	return run(ctx, tx, fmt.Sprintf("COMMENT ON SCHEMA %s IS '%s'", name, text))
}

// Forget makes tables leftovers that Keep has marked.
func Forget(ctx context.Context, tx pgx.Tx, name string) error {
	return run(ctx, tx, fmt.Sprintf("COMMENT ON SCHEMA %s IS '%s'", name, mark))
}

// Use makes schema scrip show the tables of a schema, of this program's format; those in use until then are the
// previous ones. It waits that long for readers of the views, and for a running Ensure.
func Use(ctx context.Context, tx pgx.Tx, name string, now Tables, wait time.Duration) error {
	if err := run(ctx, tx, fmt.Sprintf("SET LOCAL lock_timeout = %d", wait.Milliseconds())); err != nil {
		return err
	}
	if err := lock(ctx, tx); err != nil {
		return err
	}
	if err := lockViews(ctx, tx, wait); err != nil {
		return err
	}
	if err := exchange(ctx, tx, name); err != nil {
		return err
	}
	if err := Forget(ctx, tx, name); err != nil { // they are no leftovers while they are in use
		return err
	}
	tag, err := tx.Exec(ctx, "UPDATE scrip_meta.format SET version = $1, live = $2::text, previous = live, previous_version = version WHERE live = $3::text", Format, name, now.Live)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("the read tables were replaced in the meantime; run it again")
	}
	return err
}

// tries are how often lockViews tries, and for which part of the most time. Readers that never pause leave moments that
// are found by trying often, and long statements must be waited for.
var tries = []struct {
	times int
	part  time.Duration
}{{20, 80}, {8, 32}, {4, 16}, {2, 8}, {1, 4}, {1, 1}}

// readersTurn is how long readers go on between two tries.
const readersTurn = 10 * time.Millisecond

// lockViews locks out readers, in at most that time for all views together. A statement that reads several may have locked
// them in another order, and wait for this one: so all are given up, and tried again. After an error no view may be
// changed.
//
// LOCK TABLE would lock the tables under a view.
func lockViews(ctx context.Context, tx pgx.Tx, most time.Duration) (err error) {
	sql := ""
	for _, name := range views() {
		sql += fmt.Sprintf("ALTER VIEW IF EXISTS %s RESET (security_barrier); ", name)
	}
	for _, t := range tries {
		for range t.times {
			// One statement for all: its time is limited, that of each lock is not.
			limit := max((most / t.part).Milliseconds(), 1)
			err = try(ctx, tx, fmt.Sprintf("SET LOCAL statement_timeout = %d; DO $$ BEGIN %s END $$; SET LOCAL statement_timeout = 0", limit, sql))
			if State(err) != "57014" && !Blocked(err) { // query_canceled
				return err
			}
			if err := natsx.Pause(ctx, readersTurn); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%w: %v", errReaders, err) // which would look like PostgreSQL that is stopped
}

// try runs statements with a time limit under a savepoint. After an error it goes back to that: PostgreSQL may end the statement that
// follows them instead ("due to user request"), the release of the savepoint as well.
func try(ctx context.Context, tx pgx.Tx, sql string) error {
	err := run(ctx, tx, "SAVEPOINT try; "+sql)
	if err == nil {
		err = run(ctx, tx, "RELEASE SAVEPOINT try")
	}
	for attempt := 0; tx.Conn().PgConn().TxStatus() == 'E' && attempt < 3; attempt++ {
		_ = run(ctx, tx, "ROLLBACK TO SAVEPOINT try") // what follows fails if this does
	}
	return err
}

var errReaders = errors.New("the views are being read all the time")

// Unnoticed is a time in which PostgreSQL looks for no deadlock: whoever waits longer looks, and ends itself if it
// finds one. Locks that are taken in this time, or given up, end no reader.
func Unnoticed(ctx context.Context, db Querier) (wait time.Duration, err error) {
	var ms int64
	err = db.QueryRow(ctx, "SELECT setting::bigint FROM pg_settings WHERE name = 'deadlock_timeout'").Scan(&ms)
	return max(time.Duration(ms)*time.Millisecond*7/10, time.Millisecond), err // 0 is no limit
}

// Blocked reports whether PostgreSQL ended a statement because of the locks of others: by lock_timeout, or as one of
// several that waited for each other. It may be tried again.
func Blocked(err error) bool {
	return errors.Is(err, errReaders) || slices.Contains([]string{"55P03", "40P01"}, State(err))
}

// Again reads, and once more if PostgreSQL ended the read because of the locks of others: an exchange takes some
// milliseconds. It does so, too, where the views have got columns of other types since the connection prepared the statement, as
// after schema scrip was dropped and made by another program: pgx prepares a statement again after an error.
func Again[T any](read func() (T, error)) (T, error) {
	got, err := read()
	if Blocked(err) || State(err) == "0A000" { // feature_not_supported: a prepared statement with other columns
		return read()
	}
	return got, err
}

// Retire gives the previous tables, which cannot be written, another name, and makes them leftovers: a former projector
// finds them no more, and they cannot be put in use again.
func Retire(ctx context.Context, tx pgx.Tx, name string) error {
	next, err := nextName(ctx, tx)
	if err != nil {
		return err
	}
	return run(ctx, tx, fmt.Sprintf("ALTER SCHEMA %s RENAME TO %s; UPDATE scrip_meta.format SET previous = NULL, previous_version = NULL", name, next))
}

// DropLeftovers drops schemas of tables that are neither in use nor previous nor kept, unless a rebuild is running that
// fills one. It waits that long for readers of each, and returns those that remain.
func DropLeftovers(ctx context.Context, conn *pgx.Conn, wait time.Duration) (left []string, err error) {
	var mine bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(RebuildLock)).Scan(&mine); err != nil || !mine {
		return nil, err
	}
	defer func() { // or the connection is lost, and the lock with it; a rebuild that has it keeps it
		_, unlocking := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", int64(RebuildLock))
		err = cmp.Or(err, unlocking)
	}()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var there bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass('scrip_meta.format') IS NOT NULL").Scan(&there); err != nil || !there {
			return err
		}
		names, err := Collect(ctx, tx, pgx.RowTo[string], `SELECT nspname::text FROM pg_namespace
			WHERE nspname ~ '^scrip_[0-9]+$' AND (obj_description(oid, 'pg_namespace') = $1 OR starts_with(obj_description(oid, 'pg_namespace'), $1 || ', filled: '))
			AND obj_description(oid, 'pg_namespace') NOT IN (SELECT `+keptSQL+` FROM scrip_meta.format)
			AND nspname NOT IN (SELECT live FROM scrip_meta.format UNION SELECT previous FROM scrip_meta.format WHERE previous IS NOT NULL)`, mark)
		if err != nil {
			return err
		}
		for _, name := range names {
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return Drop(ctx, tx, name, wait) })
			switch {
			case Blocked(err), State(err) == "42501": // its owner is another role
				left = append(left, name)
			case err != nil:
				return err
			}
		}
		return nil
	})
	return left, err
}

// Drop drops a schema of tables, waiting at most that long for their readers.
func Drop(ctx context.Context, tx pgx.Tx, name string, wait time.Duration) error {
	return run(ctx, tx, fmt.Sprintf("SET LOCAL lock_timeout = %d; DROP SCHEMA IF EXISTS %s CASCADE", wait.Milliseconds(), name))
}

// Foreign are what Use and Drop cannot change, since the role does not own it: the statements that mend it. Tables are
// not among them: the owner of their schema may drop them.
func Foreign(ctx context.Context, db Querier, live string) ([]string, error) {
	return Collect(ctx, db, pgx.RowTo[string], `
		SELECT format('ALTER %s OWNER TO %I', x.what, current_user) FROM (
			SELECT format('SCHEMA %I', nspname) AS what, nspowner AS owner FROM pg_namespace WHERE nspname::text IN ($1::text, $2::text, $5::text)
			UNION ALL
			SELECT 'VIEW ' || v, c.relowner FROM unnest($3::text[]) v JOIN pg_class c ON c.oid = to_regclass(v)
			UNION ALL
			SELECT format('FUNCTION %s', oid::regprocedure), proowner FROM pg_proc
			WHERE pronamespace = to_regnamespace($1::text) AND proname = ANY($4)) x
		WHERE NOT pg_has_role(x.owner, 'USAGE') ORDER BY x.what`, Name, live, views(), functions, Whole)
}

func nextName(ctx context.Context, tx pgx.Tx) (name string, err error) {
	const nextSQL = `SELECT 'scrip_' || coalesce(max(substr(nspname, 7)::bigint), 0) + 1 FROM pg_namespace WHERE nspname ~ '^scrip_[0-9]+$'`
	if err := tx.QueryRow(ctx, nextSQL).Scan(&name); err != nil {
		return "", fmt.Errorf("looking for the name of a schema: %w", err)
	}
	return name, nil
}

// Make creates the read tables of this program, empty and with all indexes, in a new schema, and returns its name.
func Make(ctx context.Context, tx pgx.Tx) (name string, err error) {
	if name, err = nextName(ctx, tx); err != nil {
		return "", err
	}
	if err := run(ctx, tx, fmt.Sprintf("CREATE SCHEMA %s; COMMENT ON SCHEMA %[1]s IS '%s'; ", name, mark)+strings.ReplaceAll(tablesSQL, "scrip.", name+".")); err != nil {
		return "", fmt.Errorf("creating the tables of schema %s: %w", name, allowed(err))
	}
	return name, nil
}

// leaves are tables with rows that leave, see table leaving, and which of a campaign that is there.
var leaves = map[string]string{
	"allotment": "l.through >= x.from_n", "coupon_event": "l.through >= x.n", "expiry_event": "l.expiries >= x.through",
	"redemption_row": "l.through >= x.n", "reminder": "l.reminders >= x.r",
}

// Leaves reports whether rows of a table leave, so that Staying needs table leaving.
func Leaves(table string) bool {
	_, there := leaves[table]
	return there
}

// Staying is a condition for rows x of a table of a schema: that they have not left. It is no join, which the planner would have to
// place among others and would estimate badly; the first part costs a look into a hash table.
func Staying(name, table string) string {
	left, there := leaves[table]
	if !there {
		return "true"
	}
	return fmt.Sprintf("(x.campaign IN (SELECT campaign FROM %s.leaving) AND "+
		"EXISTS (SELECT FROM %[1]s.leaving l WHERE l.campaign = x.campaign AND %s)) IS NOT TRUE", name, left)
}

// exchange makes the views of servers and those of the contract show the tables of a schema.
func exchange(ctx context.Context, tx pgx.Tx, name string) error {
	if err := ShowWhole(ctx, tx, Whole, name); err != nil {
		return err
	}
	return Show(ctx, tx, Name, name)
}

// ShowWhole makes the views of a schema, which need not exist, those of all columns of the tables of another one. Neither name needs
// quotes.
func ShowWhole(ctx context.Context, tx pgx.Tx, views, name string) error {
	sql := "CREATE SCHEMA IF NOT EXISTS " + views + ";\n"
	for _, relation := range whole {
		sql += fmt.Sprintf("CREATE OR REPLACE VIEW %s.%s AS SELECT * FROM %s.%[2]s x WHERE %[4]s;\n", views, relation, name, Staying(name, relation))
	}
	return show(ctx, tx, views, sql)
}

// Show makes the views and functions of the contract in a schema those of the tables of another one, with their comments. Neither
// name needs quotes. It is the same with the views of a copy.
func Show(ctx context.Context, tx pgx.Tx, views, name string) error {
	// What is made is in schema views, and made of tables.
	made := []string{"VIEW scrip.", "VIEW " + views + ".", "COLUMN scrip.", "COLUMN " + views + ".", "FUNCTION scrip.", "FUNCTION " + views + "."}
	of := append(made, "scrip.", name+".", "{{tables}}", name)
	for table := range leaves {
		of = append(of, "{{staying "+table+"}}", Staying(name, table))
	}
	sql := strings.NewReplacer(of...).Replace(viewsSQL)
	return show(ctx, tx, views, sql+strings.NewReplacer(made...).Replace(commentsSQL))
}

func show(ctx context.Context, tx pgx.Tx, views, sql string) error {
	if err := run(ctx, tx, sql); err != nil {
		return fmt.Errorf("creating the views of schema %s: %w", views, allowed(err))
	}
	return nil
}
