package rebuild

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// onTables runs a statement for each table of a schema, which is %s in it.
func (r *rig) onTables(url, name, sql string) {
	r.T.Helper()
	pool := projtest.Pool(r.T, url)
	_, err := pool.Exec(r.T.Context(), fmt.Sprintf(`DO $do$ DECLARE t regclass; BEGIN
		FOR t IN SELECT oid FROM pg_class WHERE relnamespace = '%s'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition LOOP EXECUTE format($sql$%s$sql$, t); END LOOP; END $do$`, name, sql))
	streamtest.Must(r.T, err)
}

// Tables in use that the projector cannot write, or that a rebuild cannot, are replaced and dropped, and the projector
// goes on.
func TestTablesThatCannotBeWritten(t *testing.T) {
	r := filled(t)
	r.exec("CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$")
	r.exec("CREATE FUNCTION public.as_it_is() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
	other := "o" + strings.ReplaceAll(r.text("SELECT current_database()::text"), "test", "wner")
	projtest.Role(t, r.URL, other)
	admin := projtest.Admin(t, r.URL)
	for name, c := range map[string]struct{ url, sql, why, compared string }{
		"a trigger": {r.URL, "CREATE TRIGGER no BEFORE INSERT OR UPDATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION public.no()", "not today", ""},
		// The projector can write them.
		"a trigger that lets the projector": {r.URL, "CREATE TRIGGER no BEFORE UPDATE OF generation ON %s FOR EACH ROW EXECUTE FUNCTION public.no()", "not today", ""},
		"a trigger that leaves them":        {r.URL, "CREATE TRIGGER no BEFORE UPDATE OF generation ON %s FOR EACH ROW EXECUTE FUNCTION public.as_it_is()", "do not change", ""},
		"a trigger at the commit":           {r.URL, "CREATE CONSTRAINT TRIGGER no AFTER UPDATE ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.no()", "not today", ""},
		"row security":                      {r.URL, "ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY", "row security", "no checkpoint of lane 0"},
		"another owner":                     {admin, "ALTER TABLE %s OWNER TO " + other, "permission denied", "cannot be read"},
	} {
		now, err := schema.Current(t.Context(), r.Pool)
		streamtest.Must(t, err)
		if strings.Contains(c.sql, "generation") {
			r.exec(fmt.Sprintf(c.sql, now.Live+".checkpoint"))
		} else {
			r.onTables(c.url, now.Live, c.sql)
		}
		r.Claim(0, 2)
		r.Claim(1, 2)
		got := r.rebuild(Options{})
		if !strings.Contains(got.Unwritable, c.why) || !strings.Contains(got.NotCompared, c.compared) {
			t.Errorf("%s: %+v", name, got)
		}
		streamtest.Equal(t, name+": schemas", r.schemas(), "scrip")
		r.Claim(0, 1)
		r.Claim(1, 1)
		r.synced()
	}
	streamtest.Equal(t, "tables are not the fold of the log", r.digest(), r.folded())
}

// What prevents an exchange for sure is refused before the loading, with the statements that help.
func TestWhatCannotBeExchanged(t *testing.T) {
	r := filled(t)
	r.rebuild(Options{})
	other := "o" + strings.ReplaceAll(r.text("SELECT current_database()::text"), "test", "wner")
	projtest.Role(t, r.URL, other)
	admin := projtest.Pool(t, projtest.Admin(t, r.URL))
	me := r.text("SELECT current_user::text")
	s := r.open(Options{Hook: func(p Phase) error { return fmt.Errorf("phase %s", p) }})
	defer s.Close()
	for _, what := range []string{"SCHEMA scrip_2", "VIEW scrip.coupon", "FUNCTION scrip.digest()"} {
		_, err := admin.Exec(t.Context(), "ALTER "+what+" OWNER TO "+other)
		streamtest.Must(t, err)
		_, err = s.Rebuild(t.Context())
		mend := "ALTER " + what + " OWNER TO " + me
		if !errors.Is(err, ErrRefused) || !strings.HasSuffix(err.Error(), ": "+mend) {
			t.Errorf("%s of another role: %v", what, err)
		}
		if err := s.Undo(t.Context()); !errors.Is(err, ErrRefused) || !strings.HasSuffix(err.Error(), ": "+mend) {
			t.Errorf("%s of another role, undone: %v", what, err)
		}
		_, err = admin.Exec(t.Context(), mend)
		streamtest.Must(t, err)
	}
	streamtest.Equal(t, "schemas", r.schemas(), "scrip previous")
}
