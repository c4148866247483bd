package pgd

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/projections/confine"
)

// refuses runs SQL that has to be refused for want of rights.
func refuses(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), sql)
	pg, ok := err.(*pgconn.PgError)
	if !ok || pg.Code != "42501" {
		t.Errorf("%s: %v, want it refused", sql, err)
	}
}

// What a reader of scrip.json must not be able to do.
func holdsTheDoor(t *testing.T, c *Cluster) {
	t.Helper()
	for _, sql := range []string{
		"COPY (SELECT 1) TO PROGRAM 'cat > /dev/null'", "COPY (SELECT 1) TO '/tmp/x'", "SELECT pg_read_file('/etc/hostname')", "SELECT lo_import('/etc/hostname')",
		"CREATE ROLE other", "ALTER ROLE scrip SUPERUSER", "ALTER ROLE postgres PASSWORD 'x'", "GRANT pg_execute_server_program TO scrip", "SET ROLE postgres",
		"UPDATE pg_proc SET prosrc = prosrc", "ALTER SYSTEM SET archive_command = 'true'", "CREATE OR REPLACE FUNCTION pg_catalog.now() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"ALTER FUNCTION " + confine.Schema + ".projection(text, text) SECURITY INVOKER", "CREATE TABLE " + confine.Schema + ".t (n int)",
	} {
		refuses(t, c.URL(), sql)
	}
	u, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(c.Dir(), "admin.password"))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(c.Dir(), "admin.password")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("admin.password: %v, %v", info.Mode(), err)
	}
	u.User = url.UserPassword("postgres", strings.TrimSpace(string(raw)))
	if conn, err := pgx.Connect(t.Context(), u.String()); err == nil {
		_ = conn.Close(t.Context())
		t.Error("the superuser is let in by TCP")
	}
	if got := queryText(t, c.AdminURL(), "SELECT current_user || rolsuper FROM pg_roles WHERE rolname = current_user"); got != "postgrestrue" {
		t.Errorf("the superuser by the socket: %s", got)
	}
}

func TestRoleOfTheURLIsNoSuperuser(t *testing.T) {
	t.Parallel()
	c := Open(testOptions(madeDir(t)))
	start(t, c)
	holdsTheDoor(t, c)
	if got := queryText(t, c.URL(), "SHOW data_directory"); got != filepath.Join(c.Dir(), "data") {
		t.Errorf("data_directory is %q", got)
	}
	// What it is for: it makes what it owns.
	run(t, c.URL(), "CREATE SCHEMA mine; CREATE TABLE mine.t (n int)")
	run(t, c.URL(), "CREATE DATABASE another")
}

// A cluster of an earlier version, whose role scrip is the superuser that initdb made, is changed at its start: nothing is
// lost, and everything belongs to the new role. Interrupted, it is done again.
func TestOldClusterIsUpgraded(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	c := Open(opts)
	start(t, c)
	stop(t, c)
	// As the former version made it.
	bin, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.choose(t.Context(), opts.DataDir, bin)
	if err != nil {
		t.Fatal(err)
	}
	old := got.place
	owner, err := os.ReadFile(old.password())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{old.data(), old.admin()} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	making := filepath.Join(string(old), "old")
	mkdir(t, making)
	write(t, filepath.Join(making, "password"), string(owner))
	for _, path := range []string{making, filepath.Join(making, "password")} {
		if err := got.user.give(path); err != nil {
			t.Fatal(err)
		}
	}
	out, err := got.user.command(t.Context(), string(old), bin.initdb(), "-D", filepath.Join(making, "data"), "--username=scrip", "--pwfile="+filepath.Join(making, "password"),
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rename(t, filepath.Join(making, "data"), old.data())
	for database, statements := range map[string][]string{
		"postgres": {"CREATE DATABASE scrip OWNER scrip", "CREATE DATABASE reports", "CREATE ROLE analyst LOGIN PASSWORD 'a'", "CREATE ROLE boss IN ROLE scrip", "ALTER ROLE scrip SET work_mem = '5MB'"},
	} {
		if _, err := c.single(t.Context(), old, old.data(), got.user, bin, database, statements...); err != nil {
			t.Fatal(err)
		}
	}
	const things = "CREATE SCHEMA kept; CREATE TYPE kept.mood AS ENUM ('good'); CREATE TABLE kept.t (id serial, n int GENERATED ALWAYS AS IDENTITY, m kept.mood) PARTITION BY RANGE (id); " +
		"CREATE TABLE kept.part PARTITION OF kept.t FOR VALUES FROM (0) TO (100); INSERT INTO kept.t (m) VALUES ('good'); CREATE VIEW kept.v AS SELECT * FROM kept.t; " +
		"CREATE FUNCTION kept.f() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'; CREATE AGGREGATE kept.total(int) (SFUNC = int4pl, STYPE = int); CREATE TYPE kept.span AS RANGE (SUBTYPE = int); " +
		"CREATE STATISTICS kept.s ON id, n FROM kept.t; CREATE OPERATOR kept.|+| (LEFTARG = int, RIGHTARG = int, FUNCTION = int4pl); GRANT SELECT ON kept.t TO analyst; " +
		"CREATE SEQUENCE public.lone; CREATE SCHEMA theirs AUTHORIZATION analyst; CREATE TABLE theirs.t (n int); CREATE EXTENSION IF NOT EXISTS plpgsql"
	for _, database := range []string{"scrip", "reports"} {
		if _, err := c.single(t.Context(), old, old.data(), got.user, bin, database, strings.Split(things, "; ")...); err != nil {
			t.Fatal(err)
		}
	}

	for range 2 { // the second time as after a crash before the end
		c = Open(opts)
		start(t, c)
		holdsTheDoor(t, c)
		for _, database := range []string{"scrip", "reports"} {
			u := strings.Replace(c.URL(), "/scrip?", "/"+database+"?", 1)
			for sql, want := range map[string]string{
				"SELECT string_agg(DISTINCT pg_get_userbyid(relowner)::text, ' ') FROM pg_class WHERE relnamespace IN ('kept'::regnamespace, 'theirs'::regnamespace) OR relname = 'lone'": "scrip",
				"SELECT string_agg(DISTINCT pg_get_userbyid(proowner)::text, ' ') FROM pg_proc WHERE proname IN ('f', 'total')":                                                           "scrip",
				"SELECT string_agg(DISTINCT pg_get_userbyid(typowner)::text, ' ') FROM pg_type WHERE typname IN ('mood', 'span')":                                                         "scrip",
				"SELECT pg_get_userbyid(nspowner)::text || (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'theirs') FROM pg_namespace WHERE nspname = 'kept'":        "scripanalyst",
				"SELECT pg_get_userbyid(datdba)::text FROM pg_database WHERE datname = current_database()":                                                                                "scrip",
				"SELECT m::text || id FROM kept.v":                                                                 "good1",
				"SELECT has_table_privilege('analyst', 'kept.t', 'SELECT')::text":                                  "true",
				"SELECT pg_has_role('boss', 'scrip', 'MEMBER')::text || pg_has_role('boss', 'postgres', 'MEMBER')": "truefalse",
				"SHOW work_mem": "5MB",
			} {
				if got := queryText(t, u, sql); got != want {
					t.Errorf("%s: %s is %q, want %q", database, sql, got, want)
				}
			}
			run(t, u, "INSERT INTO kept.t (m) VALUES ('good'); DELETE FROM kept.t WHERE id > 1; ALTER TABLE kept.t ADD COLUMN x int; ALTER TABLE kept.t DROP COLUMN x; ALTER SEQUENCE kept.t_id_seq RESTART WITH 2")
		}
		if raw, err := os.ReadFile(old.password()); err != nil || string(raw) != string(owner) {
			t.Errorf("the password of role scrip was changed (%v)", err)
		}
		stop(t, c)
		remove(t, old.admin())
	}
}
