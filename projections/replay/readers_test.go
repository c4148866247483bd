package replay

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestReaders: who is named in the file reads the tables, and nobody else of the analysts: those that are there, that a fold makes
// later, and after a reset, also if the first analyst comes after the projection. The user of an analyst makes none here.
func TestReaders(t *testing.T) {
	r := newRig(t)
	r.work()
	db := projtest.URL(t)
	pool := projtest.Pool(t, db)
	_, err := schema.Ensure(t.Context(), pool, slog.New(slog.DiscardHandler))
	streamtest.Must(t, err)
	const text = "-- scrip: create\nCREATE TABLE had (n int);\nCREATE VIEW shown AS SELECT n FROM had;\n-- scrip: fold\nINSERT INTO had SELECT 1 FROM events;\nCREATE TABLE IF NOT EXISTS later AS SELECT n FROM had;\n"
	replay := func(readers string, reset bool) {
		t.Helper()
		if readers != "" {
			readers = "-- scrip: readers " + readers + "\n"
		}
		r.run(Postgres(db, parse(t, "shared.sql", readers+text).Definition(), reset), Options{})
	}
	replay("analyst", false)

	var verifier string
	execute(t, projtest.Admin(t, db), "CREATE ROLE template_reader PASSWORD 'secret'")
	admin := projtest.Pool(t, projtest.Admin(t, db))
	streamtest.Must(t, admin.QueryRow(t.Context(), "SELECT rolpassword FROM pg_authid WHERE rolname = 'template_reader'").Scan(&verifier))
	execute(t, projtest.Admin(t, db), "DROP ROLE template_reader")
	logins := []access.Login{{Name: "reader-masked", ID: "0masked0", Verifier: verifier}, {Name: "reader-clear", ID: "0clear00", Verifier: verifier, Codes: true}}
	_, err = confine.Analysts(t.Context(), pool, logins, []byte("inner"), []byte("outer"), false, false)
	streamtest.Must(t, err)
	as := map[string]string{}
	conns := map[string]*pgx.Conn{}
	for _, login := range logins {
		u, err := url.Parse(db)
		streamtest.Must(t, err)
		u.User = url.UserPassword(access.SQLUser(login.Name), "secret")
		as[login.Name] = u.String()
		conns[login.Name], err = pgx.Connect(t.Context(), u.String())
		streamtest.Must(t, err)
		t.Cleanup(func() { _ = conns[login.Name].Close(context.Background()) })
	}
	for _, step := range []struct {
		readers       string
		reset         bool
		masked, clear bool
	}{
		{"analyst", false, true, true}, {"analyst", true, true, true}, {"codes", false, false, true}, {"", false, false, false}, {"codes, analyst", true, true, true},
	} {
		replay(step.readers, step.reset)
		for name, may := range map[string]bool{"reader-masked": step.masked, "reader-clear": step.clear} {
			for _, table := range []string{"had", "shown", "later"} {
				_, err := conns[name].Exec(t.Context(), "SELECT * FROM shared."+table)
				if may && err != nil || !may && schema.State(err) != "42501" {
					t.Errorf("readers %q, reset %v: %s of %s: %v", step.readers, step.reset, table, name, err)
				}
			}
		}
	}
	_, err = r.try(Postgres(as["reader-clear"], parse(t, "hers.sql", text).Definition(), false), Options{})
	var only *confine.AnalystError
	if !errors.As(err, &only) || !strings.Contains(err.Error(), "a PostgreSQL of yours: give its URL with --postgres, and the key with --key-file") || !strings.Contains(err.Error(), "readers analyst") {
		t.Errorf("with the user of an analyst's key: %v", err)
	}
	_, err = r.try(Postgres(projtest.Foreign(t), parse(t, "away.sql", "-- scrip: readers analyst\n"+text).Definition(), false), Options{})
	if err == nil || !strings.Contains(err.Error(), "readers: analyst is nobody here") || !strings.Contains(err.Error(), "remove the line of readers") {
		t.Errorf("where there are no tables of scrip: %v", err)
	}
}
