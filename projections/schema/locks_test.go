package schema

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestReadersLockNothing: who may only read can hold up neither Ensure nor a keeper, whose locks are those of tables.
func TestReadersLockNothing(t *testing.T) {
	p := pool(t)
	ensured(t, p)
	reader := projtest.Role(t, p.Config().ConnString(), "reader")
	exec(t, p, "GRANT USAGE ON SCHEMA scrip, scrip_meta, scrip_1 TO reader; "+
		"GRANT SELECT ON ALL TABLES IN SCHEMA scrip, scrip_meta, scrip_1 TO reader")
	names, err := Collect(t.Context(), p, pgx.RowTo[string], `SELECT s.nspname || '.' || c.relname FROM pg_class c
		JOIN pg_namespace s ON s.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v') AND s.nspname ~ '^scrip'`)
	streamtest.Must(t, err)
	as := projtest.Pool(t, reader)
	for _, name := range names {
		for _, sql := range []string{
			"LOCK TABLE %s IN ROW SHARE MODE", "LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE", "SELECT 1 FROM %s FOR KEY SHARE",
		} {
			_, err := as.Exec(t.Context(), fmt.Sprintf("BEGIN; "+sql+"; COMMIT", name))
			// Rows of some views cannot be locked at all, which is another error.
			if State(err) != "42501" && !strings.Contains(sql, "FOR") || err == nil {
				t.Errorf(sql+": %v", name, err)
			}
		}
	}
	if len(names) < 20 {
		t.Errorf("relations: %q", names)
	}
}

// TestEnsureNamesWhoItWaitsFor, after a while: else it would wait for ever.
func TestEnsureNamesWhoItWaitsFor(t *testing.T) {
	p := pool(t)
	ensured(t, p)
	was := lockWait
	defer func() { lockWait = was }()
	lockWait = 50 * time.Millisecond
	tx, err := p.Begin(t.Context())
	streamtest.Must(t, err)
	_, err = tx.Exec(t.Context(), "SET application_name = 'backups'; LOCK TABLE scrip_meta.format IN EXCLUSIVE MODE")
	streamtest.Must(t, err)
	_, err = Ensure(t.Context(), p, quiet)
	pid := tx.Conn().PgConn().PID()
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("backups (PostgreSQL process %d of role scrip, since 2", pid)) ||
		!strings.Contains(err.Error(), fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid)) {
		t.Errorf("%v", err)
	}
	streamtest.Must(t, tx.Rollback(t.Context()))
	lockWait = was
	if ensured(t, p) {
		t.Error("tables that were there are fresh")
	}
}

// TestHolders: what an outsider can choose, which is its name, makes it no process of scrip.
func TestHolders(t *testing.T) {
	p := pool(t)
	ensured(t, p)
	admin := projtest.Admin(t, p.Config().ConnString())
	analyst := projtest.Role(t, p.Config().ConnString(), "analyst_0a1b2c3d")
	exec(t, projtest.Pool(t, admin), "GRANT EXECUTE ON FUNCTION pg_advisory_lock(bigint) TO analyst_0a1b2c3d")
	for _, c := range []struct {
		url, what, says, end string
		is                   bool
	}{
		{p.Config().ConnString(), "scrip rebuild", "scrip rebuild, process ", "SELECT pg_terminate_backend(", true},
		{p.Config().ConnString(), "psql", "psql, process ", "as a superuser or as scrip: ", false},
		{analyst, "scrip rebuild", " of role analyst_0a1b2c3d)", "scrip access revoke 0a1b2c3d", false}, // since when is not to be seen
		{admin, "scrip rebuild", "of role postgres", "SELECT pg_terminate_backend(", true},
	} {
		t.Run(c.says, func(t *testing.T) {
			conn, err := Dial(t.Context(), projtest.Pool(t, c.url), c.what)
			streamtest.Must(t, err)
			var taken string
			function := map[bool]string{true: "pg_advisory_lock", false: "pg_try_advisory_lock"}[c.url == analyst]
			streamtest.Must(t, conn.QueryRow(t.Context(), "SELECT "+function+"($1)::text", int64(RebuildLock)).Scan(&taken))
			who, found, err := HolderOf(t.Context(), p, RebuildLock)
			streamtest.Must(t, err)
			if !found || who.Is("scrip rebuild") != c.is || !strings.Contains(who.String(), c.says) || !strings.Contains(who.End(), c.end) {
				t.Errorf("%v %+v: %s; %s", found, who, who, who.End())
			}
			streamtest.Must(t, conn.Close(t.Context()))
			streamtest.Eventually(t, "the lock is free", func() bool {
				_, found, err := HolderOf(t.Context(), p, RebuildLock)
				return err == nil && !found
			})
		})
	}
}
