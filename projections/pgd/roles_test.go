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
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// refuses runs SQL that has to be refused for want of rights.
func refuses(t *testing.T, dsn, sql string) {
	t.Helper()
	err := execute(dsn, sql)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Errorf("%s: %v, want it refused", sql, err)
		return
	}
	if pg, ok := joined.Unwrap()[0].(*pgconn.PgError); !ok || pg.Code != "42501" {
		t.Errorf("%s: %v, want it refused", sql, err)
	}
}

// holdsTheDoor checks what a reader of scrip.json must not be able to do.
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
	streamtest.Must(t, err)
	raw, err := os.ReadFile(filepath.Join(c.Dir(), "admin.password"))
	streamtest.Must(t, err)
	for _, name := range []string{"password", "admin.password"} {
		if info, err := os.Stat(filepath.Join(c.Dir(), name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600 (%v)", name, info.Mode(), err)
		}
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
