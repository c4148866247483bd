package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// replace makes other tables, and puts them in use.
func replace(t *testing.T, p *pgxpool.Pool) error {
	return pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error {
		now, err := Current(t.Context(), tx)
		if err != nil {
			return err
		}
		name, err := Make(t.Context(), tx)
		if err != nil {
			return err
		}
		return Use(t.Context(), tx, name, now, 2*time.Second)
	})
}

// Other tables are put in use: what others built on the views, and their rights, stay; a reader of the old tables delays only
// that they are dropped. A schema of somebody else with such a name is left alone.
func TestTablesAreReplaced(t *testing.T) {
	p := pool(t)
	ensured(t, p)
	role := strings.ReplaceAll(query(t, p, "SELECT current_database()::text")[0], "test", "reader")
	reader := projtest.Role(t, p.Config().ConnString(), role)
	exec(t, p, "INSERT INTO scrip_tables.refusal_stats VALUES ('2026-01-01Z', 1, 0, 'c', 'sold_out')")
	exec(t, p, "CREATE SCHEMA reports; CREATE VIEW reports.refused AS SELECT sum(refused)::bigint AS n FROM scrip.refusal_stats; CREATE VIEW reports.codes AS SELECT code FROM scrip.coupon")
	exec(t, p, fmt.Sprintf("GRANT USAGE ON SCHEMA scrip TO %[1]s; GRANT SELECT (campaign, status) ON scrip.coupon TO %[1]s; GRANT EXECUTE ON FUNCTION scrip.digest() TO %[1]s", role))
	refused := func() string {
		t.Helper()
		return query(t, p, "SELECT coalesce(n, 0) || ' ' || (SELECT row_count FROM scrip.digest() WHERE relation = 'refusal_stats') FROM reports.refused")[0]
	}
	streamtest.Equal(t, "refused, and rows by the digest", refused(), "1 1")

	dump, err := p.Begin(t.Context())
	streamtest.Must(t, err)
	defer dump.Rollback(t.Context()) //nolint:errcheck
	_, err = dump.Exec(t.Context(), "LOCK TABLE scrip_1.refusal_stats, scrip_1.coupon_claim IN ACCESS SHARE MODE")
	streamtest.Must(t, err)
	streamtest.Must(t, replace(t, p))
	streamtest.Equal(t, "after it", refused(), "0 0")
	streamtest.Must(t, replace(t, p))
	now, err := Current(t.Context(), p)
	streamtest.Must(t, err)
	streamtest.Equal(t, "the tables", now, Tables{Version: Format, Live: "scrip_3", Previous: "scrip_2", PreviousVersion: Format})
	if ensured(t, p) {
		t.Error("the tables were not taken for those of Ensure")
	}
	if got := query(t, projtest.Pool(t, reader), "SELECT count(status)::text FROM scrip.coupon"); got[0] != "0" {
		t.Errorf("a reader with rights on columns: %s", got)
	}
	drop := func() (left []string) {
		t.Helper()
		conn, err := Dial(t.Context(), p, "test")
		streamtest.Must(t, err)
		defer conn.Close(t.Context()) //nolint:errcheck
		left, err = DropLeftovers(t.Context(), conn, 100*time.Millisecond)
		streamtest.Must(t, err)
		return left
	}
	streamtest.Equal(t, "still read", strings.Join(drop(), " "), "scrip_1")
	streamtest.Must(t, dump.Rollback(t.Context()))
	exec(t, p, "CREATE SCHEMA scrip_2026")
	streamtest.Equal(t, "read no more", strings.Join(drop(), " "), "")
	streamtest.Equal(t, "schemas", strings.Join(query(t, p, "SELECT nspname::text FROM pg_namespace WHERE nspname LIKE 'scrip%' ORDER BY 1"), " "), "scrip scrip_2 scrip_2026 scrip_3 scrip_meta scrip_tables")
}

// Filled tables are no leftovers under the setting that they were filled with, and until they are in use.
func TestKeptTables(t *testing.T) {
	p := pool(t)
	ensured(t, p)
	conn, err := Dial(t.Context(), p, "test")
	streamtest.Must(t, err)
	defer conn.Close(t.Context()) //nolint:errcheck
	do := func(f func(tx pgx.Tx) error) {
		t.Helper()
		streamtest.Must(t, pgx.BeginFunc(t.Context(), conn, f))
	}
	kept := func(want string) {
		t.Helper()
		left, err := DropLeftovers(t.Context(), conn, time.Second)
		streamtest.Must(t, err)
		now, err := Current(t.Context(), p)
		streamtest.Must(t, err)
		got := strings.Join(query(t, p, "SELECT nspname::text FROM pg_namespace WHERE nspname ~ '^scrip_[0-9]' ORDER BY 1"), " ")
		streamtest.Equal(t, "kept, and all", now.Kept+": "+got+strings.Join(left, " "), want)
	}
	fill := func(name string, keepDays int64) {
		t.Helper()
		do(func(tx pgx.Tx) error {
			made, err := Make(t.Context(), tx)
			streamtest.Equal(t, "made", made, name)
			return errors.Join(err, Keep(t.Context(), tx, made, keepDays))
		})
	}
	fill("scrip_2", 0)
	kept("scrip_2: scrip_1 scrip_2")
	exec(t, p, "UPDATE scrip_meta.format SET keep_days = 30")
	kept(": scrip_1")
	fill("scrip_2", 30)
	kept("scrip_2: scrip_1 scrip_2")
	do(func(tx pgx.Tx) error { return Forget(t.Context(), tx, "scrip_2") })
	kept(": scrip_1")
	fill("scrip_2", 30)
	use := func(name string) {
		t.Helper()
		do(func(tx pgx.Tx) error {
			now, err := Current(t.Context(), tx)
			if err != nil {
				return err
			}
			return Use(t.Context(), tx, name, now, time.Second)
		})
	}
	use("scrip_2")
	kept(": scrip_1 scrip_2")
	use("scrip_1")
	kept(": scrip_1 scrip_2")
	do(func(tx pgx.Tx) error { return Retire(t.Context(), tx, "scrip_2") })
	kept(": scrip_1")
}
