package confine_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) { os.Exit(projtest.Main(m)) }

// TestAnalystsOfAnotherDatabase: with the caller's rights, as in a PostgreSQL that scrip does not run. Without CREATEROLE the error
// names the statement, and with it all is as in the private one, which package main tests.
func TestAnalystsOfAnotherDatabase(t *testing.T) {
	const owner, id, name = "confine_owner", "0abcdefg", "Ada's $confine$ \"1\""
	url := projtest.Foreign(t)
	asOwner := projtest.Role(t, url, owner)
	admin, err := pgx.Connect(t.Context(), projtest.Admin(t, url))
	streamtest.Must(t, err)
	t.Cleanup(func() { _ = admin.Close(t.Context()) })
	var database, verifier string
	streamtest.Must(t, admin.QueryRow(t.Context(), "SELECT current_database()").Scan(&database))
	_, err = admin.Exec(t.Context(), "GRANT CREATE ON DATABASE "+database+" TO "+owner)
	streamtest.Must(t, err)
	streamtest.Must(t, admin.QueryRow(t.Context(), "SELECT rolpassword FROM pg_authid WHERE rolname = $1", owner).Scan(&verifier))
	pool := projtest.Pool(t, asOwner)
	_, err = schema.Ensure(t.Context(), pool, slog.New(slog.DiscardHandler))
	streamtest.Must(t, err)
	wanted := []access.Login{{Name: name, ID: id, Verifier: verifier}}
	set := func(logins []access.Login) error {
		_, err := confine.Analysts(t.Context(), pool, logins, []byte("inner"), []byte("outer"), false, false)
		return err
	}
	streamtest.Must(t, set(nil))
	if err := set(wanted); err == nil || !strings.Contains(err.Error(), `ALTER ROLE "`+owner+`" CREATEROLE`) {
		t.Errorf("without the right: %v", err)
	}
	_, err = admin.Exec(t.Context(), "ALTER ROLE "+owner+" CREATEROLE")
	streamtest.Must(t, err)
	streamtest.Must(t, set(wanted))
	exposed, err := confine.Exposed(t.Context(), pool)
	streamtest.Must(t, err)
	for _, part := range []string{"lo_create", "temporary tables", "temporary files", "scrip postgres rights " + owner} {
		if !strings.Contains(exposed, part) {
			t.Errorf("exposed lacks %q: %s", part, exposed)
		}
	}
	var masked [2]bool
	streamtest.Must(t, pool.QueryRow(t.Context(), "SELECT scrip_meta.masked('codes')").Scan(&masked[0]))
	connect := func() *pgx.Conn {
		t.Helper()
		config, err := pgx.ParseConfig(asOwner)
		streamtest.Must(t, err)
		config.User = access.SQLUser(name)
		conn, err := pgx.ConnectConfig(t.Context(), config)
		streamtest.Must(t, err)
		return conn
	}
	analyst := connect()
	defer analyst.Close(t.Context()) //nolint:errcheck // it is ended below
	streamtest.Must(t, analyst.QueryRow(t.Context(), "SELECT scrip_meta.masked('codes') FROM (SELECT count(code) FROM scrip.coupon) c").Scan(&masked[1]))
	streamtest.Equal(t, "masked for owner and analyst", masked, [2]bool{false, true})
	streamtest.Must(t, set(wanted)) // nothing is to be done
	streamtest.Must(t, set(nil))
	if _, err := analyst.WaitForNotification(t.Context()); err == nil || t.Context().Err() != nil {
		t.Errorf("the session did not end: %v", err)
	}
	// An analyst whose role is there again, and a role of another's making.
	streamtest.Must(t, set(wanted))
	_, err = admin.Exec(t.Context(), "CREATE ROLE analyst_0zzzzzzz")
	streamtest.Must(t, err)
	t.Cleanup(func() { _, _ = admin.Exec(t.Context(), "DROP ROLE analyst_0zzzzzzz") })
	if err := set(append(wanted, access.Login{Name: "0zzzzzzz", ID: "0zzzzzzz", Verifier: verifier})); err == nil || !strings.Contains(err.Error(), "is not an analyst of this database; give the key another name") {
		t.Errorf("a role of others: %v", err)
	}
	// What a superuser runs for it.
	_, err = admin.Exec(t.Context(), confine.Script(owner))
	streamtest.Must(t, err)
	streamtest.Must(t, set(wanted))
	again := connect()
	defer again.Close(t.Context()) //nolint:errcheck // of a test
	if exposed, err := confine.Exposed(t.Context(), pool); err != nil || exposed != "" {
		t.Errorf("after it: %q, %v", exposed, err)
	}
	_, err = again.Exec(t.Context(), "SET default_transaction_read_only = off")
	streamtest.Must(t, err)
	for _, sql := range []string{"SELECT lo_create(0)", "SELECT pg_try_advisory_lock(1)", "CREATE TEMPORARY TABLE t ()"} {
		if _, err := again.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: %v", sql, err)
		}
	}
}
