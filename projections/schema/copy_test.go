package schema

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// shape lists columns, constraints, indexes and views of a schema, without its name.
func shape(t *testing.T, p *pgxpool.Pool, name string) (text string) {
	t.Helper()
	err := p.QueryRow(t.Context(), `SELECT replace(string_agg(line, E'\n' ORDER BY line), $1::text || '.', '') FROM (
		SELECT format('%s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated) AS line
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped
		UNION ALL SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = $1::text::regnamespace
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = $1::text
		UNION ALL SELECT viewname || ' ' || definition FROM pg_views WHERE schemaname = $1::text) x`, name).Scan(&text)
	streamtest.Must(t, err)
	return text
}

// Tables made elsewhere are what Ensure makes, take the place of those, and look at themselves under every name.
func TestCreateElsewhereAndRename(t *testing.T) {
	p := pool(t)
	ensured(t, p)
	exec(t, p, "INSERT INTO scrip.refusal_stats VALUES ('2026-01-01Z', 1, 0, 'c', 'sold_out')")
	ensured(t, p) // which leaves the row
	in := func(f func(tx pgx.Tx) error) {
		t.Helper()
		streamtest.Must(t, pgx.BeginFunc(t.Context(), p, f))
	}
	in(func(tx pgx.Tx) error { return Create(t.Context(), tx, "other") })
	if a, b := shape(t, p, "other"), shape(t, p, Name); a != b || a == "" {
		t.Errorf("made elsewhere:\n%s\nensured:\n%s", a, b)
	}
	if made := query(t, p, "SELECT proname::text FROM pg_proc WHERE pronamespace = 'scrip'::regnamespace ORDER BY 1"); !slices.Equal(made, functions) {
		t.Errorf("the tables come with functions %v, those known are %v", made, functions)
	}
	refusals := func(schema string) (n int) {
		t.Helper()
		if err := p.QueryRow(t.Context(), fmt.Sprintf("SELECT row_count FROM %s.digest() WHERE relation = 'refusal_stats'", schema)).Scan(&n); err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		return n
	}
	if a, b := refusals("other"), refusals(Name); a != 0 || b != 1 {
		t.Errorf("the digests count %d and %d rows, want 0 and 1", a, b)
	}
	in(func(tx pgx.Tx) error {
		if err := Rename(t.Context(), tx, Name, "aside"); err != nil {
			return err
		}
		return Rename(t.Context(), tx, "other", Name)
	})
	if a, b := refusals("aside"), refusals(Name); a != 1 || b != 0 {
		t.Errorf("renamed, the digests count %d and %d rows, want 1 and 0", a, b)
	}
	if ensured(t, p) {
		t.Error("the exchanged tables were not taken for those of Ensure")
	}
}
