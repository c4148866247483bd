package confine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestRolesHaveNames: a rotated key is another password of the same role, which keeps what it was granted. A new key of a name that
// was revoked, also if no round was between, gets a role without rights, in this database and others, and no session of the former
// one goes on.
func TestRolesHaveNames(t *testing.T) {
	for place, foreign := range map[string]bool{"private": false, "foreign": true} {
		t.Run(place, func(t *testing.T) {
			url := projtest.URL(t)
			if foreign {
				url = projtest.Foreign(t)
			}
			w := newWorld(t, url, projtest.Admin(t, url))
			if foreign {
				w.exec(w.admin, "ALTER ROLE scrip CREATEROLE")
				t.Cleanup(func() { _, _ = w.admin.Exec(context.Background(), "ALTER ROLE scrip NOCREATEROLE") })
			}
			name := "n" + place // roles are of all databases
			role := "analyst_" + name
			first := w.login(name)
			first.ID = "0first00"
			w.round(first)
			session := w.connect(w.as(first, "secret"))
			elsewhere := w.connect(projtest.Admin(t, projtest.URL(t)))
			for _, grant := range []string{"CREATE SCHEMA reports", "CREATE TABLE reports.t (n int)", "GRANT USAGE ON SCHEMA reports TO " + role, "GRANT SELECT ON reports.t TO " + role} {
				w.exec(w.admin, grant)
				w.exec(elsewhere, grant)
			}
			w.exec(w.admin, "CREATE TABLE reports.kept (n int); ALTER TABLE reports.kept OWNER TO "+role)
			w.exec(session, "SELECT * FROM reports.t")
			// What it makes reads with the rights of the owner, for everybody.
			w.exec(w.admin, "GRANT CREATE ON SCHEMA reports TO "+role+"; GRANT USAGE ON SCHEMA reports TO PUBLIC")
			w.exec(session, "SET default_transaction_read_only = off")
			for _, made := range []string{"VIEW reports.customers AS SELECT * FROM scrip_meta.push_dead_letter_row", "VIEW reports.granted AS SELECT * FROM reports.t",
				"VIEW reports.campaigns AS SELECT * FROM scrip.campaign", "FUNCTION reports.key() RETURNS bytea LANGUAGE sql SECURITY DEFINER AS 'SELECT inner_pad FROM scrip_meta.mask'"} {
				w.exec(session, "CREATE "+made)
			}
			w.exec(session, "GRANT SELECT ON reports.customers, reports.granted, reports.campaigns TO PUBLIC")

			rotated := w.loginAs("other"+place, "rotated")
			rotated.Name, rotated.ID = name, first.ID
			if done := w.round(rotated); !slices.Contains(done.Ended, confine.Ended{Role: role, Why: confine.Changed, Sessions: 1}) {
				t.Fatalf("a rotated key ended no session: %+v", done)
			}
			w.ends(session)
			if conn, err := pgx.Connect(t.Context(), w.as(first, "secret")); err == nil {
				t.Error("the password of the key before opens the database")
				_ = conn.Close(t.Context())
			}
			session = w.connect(w.as(rotated, "rotated"))
			if done := w.round(rotated); len(done.Ended) > 0 {
				t.Errorf("a round after the rotation: %+v", done)
			}
			w.exec(session, "SELECT * FROM reports.t")

			second := w.login(name)
			second.ID = "0second0"
			// A server that has missed changes of keys neither opens nor drops.
			_, err := w.admin.Exec(t.Context(), "ALTER ROLE "+role+" NOLOGIN")
			streamtest.Must(t, err)
			for _, stale := range [][]access.Login{{rotated}, nil, nil} {
				_, err = confine.Analysts(t.Context(), w.pool, stale, nil, nil, false, true)
				streamtest.Must(t, err)
			}
			var closed bool
			streamtest.Must(t, w.admin.QueryRow(t.Context(), "SELECT NOT rolcanlogin FROM pg_roles WHERE rolname = $1", role).Scan(&closed))
			streamtest.Equal(t, "closed, and there", closed, true)
			w.ends(session)
			var again *pgx.Conn
			streamtest.Eventually(t, "the second key opens the database", func() bool {
				w.round(second)
				var err error
				again, err = pgx.Connect(t.Context(), w.as(second, "secret"))
				return err == nil
			})
			defer again.Close(context.Background()) //nolint:errcheck
			for _, sql := range []string{"SELECT * FROM reports.t", "SELECT * FROM reports.customers", "SELECT * FROM reports.campaigns", "SELECT reports.key()"} {
				w.refused(again, sql, "42501")
			}
			if !foreign { // where what a superuser grants only a superuser takes back
				w.refused(again, "SELECT * FROM reports.granted", "42501")
			}
			w.exec(again, "SELECT * FROM scrip.campaign")
			w.exec(w.admin, "SELECT * FROM reports.kept") // it was not dropped
			// A server that has judged the former role, and comes late, does nothing to the new one.
			owner := w.connect(w.url)
			streamtest.Must(t, confine.Late(t.Context(), owner, !foreign, []access.Login{second}, role, false))
			streamtest.Must(t, confine.Late(t.Context(), owner, !foreign, nil, role, true)) // nor if it does not know the new key
			w.exec(w.connect(w.as(second, "secret")), "SELECT * FROM scrip.campaign")
			var rights string
			streamtest.Must(t, elsewhere.QueryRow(t.Context(), "SELECT coalesce(relacl::text, '') FROM pg_class WHERE oid = 'reports.t'::regclass").Scan(&rights))
			if strings.Contains(rights, role) {
				t.Errorf("in another database the role may %s", rights)
			}
			w.exec(elsewhere, "DROP SCHEMA reports CASCADE")
		})
	}
}

// TestAnalystsReadCopies at once, whoever was first, with masks.
func TestAnalystsReadCopies(t *testing.T) {
	url := projtest.URL(t)
	w := newWorld(t, url, projtest.Admin(t, url))
	w.exec(w.admin, `INSERT INTO scrip_tables.campaign (campaign, status, claimed, redeemed, voided, opens_at, created_at, lane, number, per_customer,
		max_redemptions, generated_codes, imported_codes, inheriting_live, inheriting_redeemed) VALUES ('c', 'active', 1, 0, 0, 'epoch', 'epoch', 0, 1, 1, 1, 9, 0, 1, 0)`)
	w.exec(w.admin, `INSERT INTO scrip_1.coupon_claim (n, claimed_place, claimed_at, segment, campaign, code, customer_id) VALUES (1, 1, 'epoch', 0, 'c', 'clear', 'ann')`)
	duplicate := func(name string) {
		t.Helper()
		streamtest.Must(t, pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "CREATE SCHEMA "+name)
			if err == nil {
				err = schema.Show(t.Context(), tx, name, "scrip_1")
			}
			if err == nil {
				_, err = tx.Exec(t.Context(), confine.Copied(name, time.Unix(0, 0)), pgx.QueryExecModeSimpleProtocol)
			}
			return err
		}))
	}
	duplicate("thursday")
	login, analyst := w.analyst("0copies0")
	duplicate("friday")
	w.exec(analyst, "SELECT * FROM friday.coupon") // before another round
	w.exec(w.admin, "CREATE SCHEMA other; CREATE VIEW other.coupon AS SELECT 1; COMMENT ON SCHEMA other IS 'read tables of scrip as of today'")
	w.round(login)
	for _, name := range []string{"thursday", "friday"} {
		var code string
		streamtest.Must(t, analyst.QueryRow(t.Context(), "SELECT code FROM "+name+".coupon").Scan(&code))
		if !strings.HasPrefix(code, "masked-") {
			t.Errorf("%s shows %s", name, code)
		}
		w.exec(analyst, "SELECT * FROM "+name+".dead_letter")
		w.exec(analyst, "SELECT * FROM "+name+".backlog()")
	}
	w.refused(analyst, "SELECT * FROM other.coupon", "42501")
	w.refused(analyst, "SELECT * FROM friday.digest()", "42501")
}
