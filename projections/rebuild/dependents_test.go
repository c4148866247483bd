package rebuild

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// What others made on the tables, and what can be kept.
var kept = []string{
	"CREATE SCHEMA reports",
	"CREATE INDEX analyst_idx ON scrip.coupon_row (claimed_at) WHERE n > 1",
	"CREATE VIEW scrip.analyst_view AS SELECT campaign, count(*) AS claims FROM scrip.coupon GROUP BY campaign",
	"CREATE TABLE scrip.analyst_table (id serial PRIMARY KEY, a int DEFAULT 7)",
	"INSERT INTO scrip.analyst_table (a) VALUES (41)",
	"CREATE SEQUENCE scrip.analyst_sequence",
	"CREATE FUNCTION scrip.analyst_function() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM scrip.coupon'",
	"CREATE FUNCTION reports.f() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM scrip.coupon_row; END",
	"CREATE VIEW reports.v WITH (security_barrier = true) AS SELECT campaign, code FROM scrip.coupon JOIN scrip.analyst_view USING (campaign)",
	"CREATE VIEW reports.vv AS SELECT count(*) FROM reports.v",
	"ALTER DEFAULT PRIVILEGES IN SCHEMA scrip GRANT SELECT ON TABLES TO pg_monitor",
	"GRANT SELECT ON reports.vv TO pg_monitor",
	"REVOKE EXECUTE ON FUNCTION scrip.backlog() FROM PUBLIC",
	"GRANT EXECUTE ON FUNCTION scrip.backlog() TO pg_monitor",
}

// dependents reports of each dependent whether it exists and reads the live tables.
func (r *rig) dependents() string {
	r.T.Helper()
	return r.text(`SELECT concat_ws(' ',
		'index', (SELECT indexdef FROM pg_indexes WHERE schemaname = 'scrip' AND indexname = 'analyst_idx'),
		'claims', (SELECT sum(claims) FROM scrip.analyst_view) - (SELECT count(*) FROM scrip.coupon_row),
		'table', (SELECT max(a) FROM scrip.analyst_table), (SELECT pg_get_serial_sequence('scrip.analyst_table', 'id')), to_regclass('scrip.analyst_sequence'),
		'functions', scrip.analyst_function() - (SELECT count(*) FROM scrip.coupon_row), reports.f() - (SELECT count(*) FROM scrip.coupon_row),
		'views', (SELECT reloptions::text FROM pg_class WHERE oid = 'reports.v'::regclass), (SELECT count(*) FROM reports.v) - (SELECT count(*) FROM scrip.coupon_row),
		(SELECT * FROM reports.vv) - (SELECT count(*) FROM scrip.coupon_row),
		'rights', (SELECT count(*) FROM pg_default_acl WHERE defaclnamespace = 'scrip'::regnamespace), has_table_privilege('pg_monitor', 'reports.vv', 'SELECT'),
		(SELECT proacl::text FROM pg_proc WHERE oid = 'scrip.backlog()'::regprocedure))`)
}

// newDependents is a rig whose tables have dependents that a rebuild keeps, and what dependents returns of them.
func newDependents(t *testing.T) (r *rig, want string) {
	t.Helper()
	r = newRig(t)
	r.project()
	r.Work()
	r.synced()
	for _, sql := range kept {
		r.exec(sql)
	}
	return r, r.dependents()
}

func TestDependentsAreKept(t *testing.T) {
	t.Parallel()
	r, want := newDependents(t)
	more := func() {
		t.Helper()
		r.Claim(0, 2)
		r.Claim(1, 1)
		r.synced()
	}
	for range 2 {
		if got := r.rebuild(Options{}); len(got.Left) > 0 {
			t.Errorf("left: %v", got.Left)
		}
		more()
		streamtest.Equal(t, "rebuilt", r.dependents(), want)
	}
	r.exec("CREATE INDEX later ON scrip.redemption_row (order_id)")
	s := r.open(Options{})
	defer s.Close()
	for range 2 {
		if left, err := s.Undo(t.Context()); err != nil || len(left) > 0 {
			t.Fatalf("undo: %v, %v", left, err)
		}
		more()
		streamtest.Equal(t, "undone", r.dependents(), want)
		if n := r.text("SELECT count(*)::text FROM pg_indexes WHERE schemaname = 'scrip' AND indexname = 'later'"); n != "1" {
			t.Error("undone, an index made since the rebuild is missing")
		}
	}
	if dropped, err := s.DropPrevious(t.Context()); err != nil || !dropped {
		t.Errorf("nothing of others hangs on the previous tables: %t, %v", dropped, err)
	}
	streamtest.Equal(t, "previous tables dropped", r.dependents(), want)
}

func TestDependentsThatCannotBeKept(t *testing.T) {
	r := filled(t)
	r.exec("CREATE SCHEMA reports")
	made := map[string]string{
		"materialized view reports.m":                              "CREATE MATERIALIZED VIEW reports.m AS SELECT * FROM scrip.coupon",
		"table constraint note_campaign_fkey on reports.note":      `CREATE TABLE reports.note (campaign text COLLATE "C" REFERENCES scrip.campaign)`,
		"publication relation scrip.coupon_row in publication cdc": "CREATE PUBLICATION cdc FOR TABLE scrip.coupon_row",
		"function reports.g()":                                     "CREATE FUNCTION reports.g() RETURNS SETOF scrip.coupon LANGUAGE sql AS 'SELECT * FROM scrip.coupon'",
		"view column reports.w.c":                                  "CREATE VIEW reports.w AS SELECT c FROM scrip.coupon c",
		"column scrip.campaign.extra":                              "ALTER TABLE scrip.campaign ADD COLUMN extra text",
		"table constraint extra_check on scrip.campaign":           "ALTER TABLE scrip.campaign ADD CONSTRAINT extra_check CHECK (claimed < 1000000)",
		"policy pol on scrip.campaign":                             "CREATE POLICY pol ON scrip.campaign USING (true)",
		"type scrip.color":                                         "CREATE TYPE scrip.color AS ENUM ('red')",
		"table reports.child":                                      "CREATE TABLE reports.child () INHERITS (scrip.redemption_row)",
		"statistics object reports.st":                             "CREATE STATISTICS reports.st ON campaign, customer_id FROM scrip.coupon_row",
		"rule rl on scrip.reminder":                                "CREATE RULE rl AS ON DELETE TO scrip.reminder DO ALSO SELECT 1",
		"publication namespace scrip in publication cdc2":          "CREATE PUBLICATION cdc2 FOR TABLES IN SCHEMA scrip",
		"trigger trg on scrip.campaign":                            "CREATE TRIGGER trg AFTER INSERT ON scrip.campaign FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
	}
	admin := projtest.Pool(t, projtest.Admin(t, r.URL))
	for _, sql := range made {
		if strings.Contains(sql, "TABLES IN SCHEMA") { // a superuser's
			if _, err := admin.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
			continue
		}
		r.exec(sql)
	}
	s := r.open(Options{Hook: func(p Phase) error { t.Errorf("it began all the same: %s", p); return nil }})
	_, err := s.Rebuild(t.Context())
	s.Close()
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "--drop-dependents") {
		t.Fatalf("rebuild: %v", err)
	}
	for what := range made {
		if !strings.Contains(err.Error(), what) {
			t.Errorf("%s is not named: %v", what, err)
		}
	}
	if n := strings.Count(err.Error(), ";"); n != len(made) {
		t.Errorf("%d are named, want %d: %v", n, len(made), err)
	}
	got := r.rebuild(Options{DropDependents: true})
	for what := range made {
		if !strings.Contains(strings.Join(got.Left, "\n"), what) {
			t.Errorf("%s is not listed in Left: %v", what, got.Left)
		}
	}
	s = r.open(Options{})
	defer s.Close()
	_, rebuild := s.Rebuild(t.Context())
	_, drop := s.DropPrevious(t.Context())
	for what, err := range map[string]error{"rebuild": rebuild, "drop": drop} {
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "materialized view reports.m") || !strings.Contains(err.Error(), "note_campaign_fkey") {
			t.Errorf("%s: %v", what, err)
		}
		if strings.Contains(err.Error(), "extra_check") {
			t.Errorf("%s: a part of the previous tables themselves is in the way: %v", what, err)
		}
	}
	s.Close()
	r.rebuild(Options{DropDependents: true})
	if n := r.text("SELECT count(*)::text FROM pg_matviews"); n != "0" {
		t.Error("it was not dropped")
	}
	r.rebuild(Options{})
}

// A view in use does not delay the projector: it is created again when its reader has ended.
func TestDependentInUse(t *testing.T) {
	t.Parallel()
	r, want := newDependents(t)
	end := r.reading("scrip.analyst_view")
	exchanged, done := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(exchanged) })
	go func() {
		defer close(done)
		<-exchanged
		r.Claim(0, 1)
		r.synced() // the projector goes on all the while
		end()
	}()
	got := r.rebuild(Options{Progress: func(p Progress) {
		if p.Phase == Exchanged {
			once()
		}
	}})
	if len(got.Left) > 0 {
		t.Errorf("left: %v", got.Left)
	}
	<-done
	r.Claim(0, 1)
	r.synced()
	streamtest.Equal(t, "rebuilt", r.dependents(), want)
}
