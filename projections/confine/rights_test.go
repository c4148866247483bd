package confine_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// world is a database with read tables, whose owner makes analysts.
type world struct {
	t     *testing.T
	url   string
	admin *pgx.Conn
	pool  *pgxpool.Pool
}

func newWorld(t *testing.T, url, admin string) *world {
	t.Helper()
	w := &world{t: t, url: url, pool: projtest.Pool(t, url)}
	w.admin = w.connect(admin)
	_, err := schema.Ensure(t.Context(), w.pool, slog.New(slog.DiscardHandler))
	streamtest.Must(t, err)
	return w
}

func (w *world) connect(url string) *pgx.Conn {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), url)
	streamtest.Must(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// login is a new analyst's, with password "secret".
func (w *world) login(id string) access.Login { return w.loginAs(id, "secret") }

func (w *world) loginAs(id, password string) access.Login {
	w.t.Helper()
	login := access.Login{Name: id, ID: id}
	for _, sql := range []string{"CREATE ROLE template_" + id + " PASSWORD '" + password + "'", "DROP ROLE template_" + id} {
		_, err := w.admin.Exec(w.t.Context(), sql)
		streamtest.Must(w.t, err)
		if login.Verifier == "" {
			streamtest.Must(w.t, w.admin.QueryRow(w.t.Context(), "SELECT rolpassword FROM pg_authid WHERE rolname = $1", "template_"+id).Scan(&login.Verifier))
		}
	}
	return login
}

// as is the URL for an analyst.
func (w *world) as(login access.Login, password string) string {
	u, err := url.Parse(w.url)
	streamtest.Must(w.t, err)
	u.User = url.UserPassword(access.SQLUser(login.Name), password)
	return u.String()
}

func (w *world) round(wanted ...access.Login) confine.Round {
	w.t.Helper()
	done, err := confine.Analysts(w.t.Context(), w.pool, wanted, []byte("inner"), []byte("outer"), false, false)
	streamtest.Must(w.t, err)
	return done
}

// analyst makes an analyst and logs in.
func (w *world) analyst(id string) (access.Login, *pgx.Conn) {
	w.t.Helper()
	login := w.login(id)
	w.round(login)
	return login, w.connect(w.as(login, "secret"))
}

func (w *world) refused(conn *pgx.Conn, sql, state string) {
	w.t.Helper()
	_, err := conn.Exec(w.t.Context(), sql)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != state {
		w.t.Errorf("%s: %v, want SQLSTATE %s", sql, err, state)
	}
}

func (w *world) exec(conn *pgx.Conn, sql string) {
	w.t.Helper()
	if _, err := conn.Exec(w.t.Context(), sql); err != nil {
		w.t.Errorf("%s: %v", sql, err)
	}
}

// ends waits for the end of a session.
func (w *world) ends(conn *pgx.Conn) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if _, err := conn.WaitForNotification(ctx); err == nil || ctx.Err() != nil {
		w.t.Errorf("the session did not end: %v", err)
	}
}

// TestAnalystsExecuteWhatIsKept: every volatile function that an analyst may execute is in functions.txt, or one of the
// contract. This is another look at pg_proc than open.sql's: what that one overlooks is found here.
func TestAnalystsExecuteWhatIsKept(t *testing.T) {
	url := projtest.URL(t)
	w := newWorld(t, url, projtest.Admin(t, url))
	_, analyst := w.analyst("0kept000")
	rows, err := analyst.Query(t.Context(), `SELECT DISTINCT n.nspname || '.' || p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE p.provolatile = 'v' AND has_function_privilege(p.oid, 'EXECUTE') AND has_schema_privilege(n.oid, 'USAGE')
		AND NOT EXISTS (SELECT FROM unnest(p.proargtypes || p.prorettype) a JOIN pg_type y ON y.oid = a WHERE y.typname IN ('internal', 'trigger', 'event_trigger') OR y.typname LIKE '%\_handler')`)
	streamtest.Must(t, err)
	may, err := pgx.CollectRows(rows, pgx.RowTo[string])
	streamtest.Must(t, err)
	if len(may) < 50 {
		t.Errorf("it may execute %d functions only: the look is wrong", len(may))
	}
	for _, name := range may {
		if _, of, _ := strings.Cut(name, "pg_catalog."); !slices.Contains(confine.Kept(), of) {
			t.Errorf("an analyst may execute %s, which may have an effect that lasts and is not in functions.txt", name)
		}
	}
	for _, sql := range []string{"SELECT lo_create(0)", "SELECT pg_try_advisory_xact_lock(1)", "SELECT pg_notify('x', '')", "SELECT pg_logical_emit_message(false, 'x', 'y')", "SELECT txid_current()"} {
		w.refused(analyst, sql, "42501")
		if _, err := w.pool.Exec(t.Context(), sql); err != nil {
			t.Errorf("%s, by the owner: %v", sql, err)
		}
	}
}

// TestAnAnalystCannotMakeItGrow tries all that PostgreSQL lets a role without rights write, and looks at the disk.
func TestAnAnalystCannotMakeItGrow(t *testing.T) {
	url := projtest.URL(t)
	w := newWorld(t, url, projtest.Admin(t, url))
	var pgdata string
	streamtest.Must(t, w.admin.QueryRow(t.Context(), "SHOW data_directory").Scan(&pgdata))
	login, analyst := w.analyst("0grow000")
	size := func() (bytes int64) {
		w.exec(w.admin, "VACUUM pg_db_role_setting")
		w.exec(w.admin, "CHECKPOINT")
		streamtest.Must(t, filepath.WalkDir(pgdata, func(path string, d fs.DirEntry, err error) error {
			if info, ierr := d.Info(); err == nil && ierr == nil && filepath.Base(filepath.Dir(path)) != "pg_wal" { // which max_wal_size bounds
				bytes += info.Size()
			}
			return nil // a file may be gone
		}))
		return bytes
	}
	before := size()
	w.exec(analyst, "SET default_transaction_read_only = off; SET statement_timeout = 0; SET work_mem = '64kB'")
	for sql, state := range map[string]string{
		"DO $$ BEGIN FOR i IN 1..100 LOOP PERFORM lo_from_bytea(0, repeat('x', 10000000)::bytea); END LOOP; END $$": "42501",
		"CREATE TEMPORARY TABLE t AS SELECT repeat('x', 100000000)":                                                 "42501",
		"CREATE TABLE scrip.t AS SELECT repeat('x', 100000000)":                                                     "42501",
		"SELECT pg_export_snapshot()":                                                                               "42501",
		"PREPARE TRANSACTION 'x'":                                                                                   "25P01",
		"SET temp_file_limit = -1":                                                                                  "42501", "ALTER ROLE current_user SET temp_file_limit = -1": "42501", "ALTER ROLE current_user CONNECTION LIMIT -1": "42501",
	} {
		if state == "25P01" {
			w.exec(analyst, sql) // a warning
			continue
		}
		w.refused(analyst, sql, state)
	}
	var limit string
	streamtest.Must(t, analyst.QueryRow(t.Context(), "SHOW temp_file_limit").Scan(&limit))
	streamtest.Equal(t, "temp_file_limit", limit, "512MB")
	const big = "DO $$ BEGIN EXECUTE format('ALTER ROLE current_user SET search_path = %L', '\"' || (SELECT string_agg(md5(g::text), '') FROM generate_series(1, 300000) g) || '\"'); END $$"
	w.exec(analyst, big) // its own role it may change
	// So it may that of all analysts, which stays when its key ends.
	var group string
	streamtest.Must(t, analyst.QueryRow(t.Context(), "SELECT left(current_database(), 40) || '_analyst'").Scan(&group))
	w.exec(analyst, "SET ROLE "+group+"; "+big+"; RESET ROLE")
	w.exec(analyst, "SET ROLE "+group+"; ALTER ROLE current_user IN DATABASE postgres SET search_path = x")
	done := w.round(login)
	if !slices.Contains(done.Ended, confine.Ended{Role: "analyst_" + login.Name, Why: confine.Changed, Sessions: 1}) {
		t.Errorf("after it changed its role: %+v", done)
	}
	w.ends(analyst)
	var settings int
	streamtest.Must(t, w.admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_db_role_setting WHERE setrole = $1::regrole", group).Scan(&settings))
	streamtest.Equal(t, "settings of the role of all analysts", settings, 0)
	if grown := size() - before; grown > 4<<20 {
		t.Errorf("PGDATA has %d bytes more", grown)
	}
	var path string
	streamtest.Must(t, w.connect(w.as(login, "secret")).QueryRow(t.Context(), "SHOW search_path").Scan(&path))
	streamtest.Equal(t, "search_path", path, `"$user", public`)
}

// TestRevocationWaitsForNothing: whatever an analyst holds, one round within 2 s ends its sessions, and it cannot log
// in again.
func TestRevocationWaitsForNothing(t *testing.T) {
	for name, own := range map[string]bool{"private": false, "foreign": true} {
		t.Run(name, func(t *testing.T) {
			var w *world
			if own {
				url := projtest.Foreign(t)
				w = newWorld(t, url, projtest.Admin(t, url))
				w.exec(w.admin, "ALTER ROLE scrip CREATEROLE")
				t.Cleanup(func() { _, _ = w.admin.Exec(context.Background(), "ALTER ROLE scrip NOCREATEROLE") })
			} else {
				url := projtest.URL(t)
				w = newWorld(t, url, projtest.Admin(t, url))
			}
			id := map[bool]string{false: "0priv000", true: "0fore000"}[own]
			login := w.login(id)
			for _, hold := range []string{
				"ALTER ROLE current_user PASSWORD 'other'", "ALTER ROLE current_user SET search_path = x", "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC",
				"LOCK TABLE scrip.coupon IN ACCESS SHARE MODE", "LOCK TABLE pg_db_role_setting IN ACCESS SHARE MODE", "LOCK TABLE pg_roles IN ACCESS SHARE MODE",
				"SELECT pg_advisory_xact_lock(hashtextextended('scrip analysts', 0))", "LISTEN x",
			} {
				w.round(login)
				analyst := w.connect(w.as(login, "secret"))
				w.exec(analyst, "BEGIN READ WRITE")
				_, _ = analyst.Exec(t.Context(), hold) // perhaps refused
				started := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				done, err := confine.Analysts(ctx, w.pool, nil, []byte("inner"), []byte("outer"), false, false)
				cancel()
				if err != nil || !done.Guarded {
					t.Errorf("%s: %v after %s", hold, err, time.Since(started))
				}
				w.ends(analyst)
				for _, password := range []string{"secret", "other"} {
					if conn, err := pgx.Connect(t.Context(), w.as(login, password)); err == nil {
						t.Errorf("%s: it logs in again", hold)
						_ = conn.Close(t.Context())
					}
				}
			}
		})
	}
}

// TestRevocationOfOneWhoComesBack: four clients log in again and again, and hold the row of their role.
func TestRevocationOfOneWhoComesBack(t *testing.T) {
	url := projtest.URL(t)
	w := newWorld(t, url, projtest.Admin(t, url))
	login, _ := w.analyst("0back000")
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	in := make(chan struct{}, 1)
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				conn, err := pgx.Connect(ctx, w.as(login, "secret"))
				if err != nil {
					continue
				}
				_, _ = conn.Exec(ctx, "BEGIN READ WRITE; ALTER ROLE current_user PASSWORD 'secret'")
				select {
				case in <- struct{}{}:
				default:
				}
				_, _ = conn.Exec(ctx, "SELECT pg_sleep(0.1); COMMIT")
				_ = conn.Close(context.Background())
			}
		})
	}
	<-in
	within, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var err error
	for done := (confine.Round{}); !done.Guarded && within.Err() == nil; {
		done, err = confine.Analysts(within, w.pool, nil, nil, nil, false, false)
	}
	if within.Err() != nil {
		t.Errorf("it still logs in after 2 s: %v", err)
	}
	stop()
	clients.Wait()
}

// TestGuard: sessions that take what all share end, of analysts and of projections. Its bounds are of milliseconds
// here.
func TestGuard(t *testing.T) {
	url := projtest.URL(t)
	w := newWorld(t, url, projtest.Admin(t, url))
	login := w.login("0guard00")
	w.round(login)
	base, err := pgx.ParseConfig(url)
	streamtest.Must(t, err)
	list, err := json.Marshal([]access.Login{login})
	streamtest.Must(t, err)
	owner := w.connect(url)
	sooner := confine.Sooner("'5min'", "'0s'", "'1h'", "'0s'", "> 0.03", "> 1e-6", "> 60", "> 1")
	for _, c := range []struct {
		why, does  string
		full       bool
		projection bool // ends, too
		bounds     string
	}{
		{why: confine.Disk, full: true, projection: true},
		{why: confine.Idle, does: "BEGIN", projection: true, bounds: sooner},
		{why: confine.Writes, does: "BEGIN READ WRITE; ALTER ROLE current_user SET search_path = x"},
		{why: confine.Long, does: "BEGIN; DECLARE c CURSOR FOR SELECT", bounds: confine.Sooner("'1h'", "'0s'")},
		{why: confine.Notifications, does: "LISTEN x", bounds: confine.Sooner("> 0.03", "> 0", "'1s'", "'0s'")}, // but not one that reads
	} {
		analyst := w.connect(w.as(login, "secret"))
		projection, err := confine.Open(t.Context(), owner, base, "guarded")
		streamtest.Must(t, err)
		for _, conn := range []*pgx.Conn{analyst, projection} {
			w.exec(conn, c.does)
		}
		if c.why == confine.Notifications {
			w.exec(analyst, "BEGIN")
			w.exec(owner, "SELECT pg_notify('x', repeat('x', 7000) || g) FROM generate_series(1, 10) g")
			for range 10 { // PostgreSQL reads them in a transaction, and sends the last after its end
				_, err := projection.WaitForNotification(t.Context())
				streamtest.Must(t, err)
			}
		}
		if c.bounds == "" {
			c.bounds = confine.Sooner()
		}
		rows, err := w.admin.Query(t.Context(), c.bounds, string(list), c.full)
		streamtest.Must(t, err)
		got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[confine.Ended])
		streamtest.Must(t, err)
		ended := map[string]int{}
		for _, one := range got {
			if one.Why != c.why {
				t.Errorf("%s: %+v", c.why, one)
			}
			ended[strings.SplitN(one.Role, "_", 2)[0]] = one.Sessions
		}
		w.ends(analyst)
		if want := map[bool]int{true: 1}[c.projection]; ended["analyst"] != 1 || ended["scrip"] != want {
			t.Errorf("%s: ended %v", c.why, got)
		}
		_ = projection.Close(t.Context())
	}
	// More than all may have.
	first, second := w.connect(w.as(login, "secret")), w.connect(w.as(login, "secret"))
	_, err = w.admin.Exec(t.Context(), confine.Sooner("> 60", "> 1"), string(list), false)
	streamtest.Must(t, err)
	w.ends(second)
	var session int
	streamtest.Must(t, first.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&session))
	if got, err := confine.Processes(t.Context(), w.pool); err != nil || len(got) != 1 || got[0] != session {
		t.Errorf("processes of analysts: %v, not %d; %v", got, session, err)
	}
}
