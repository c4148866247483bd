package schema

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

var update = flag.Bool("update", false, "write comments.sql")

// types of columns that outside queries may meet.
var types = []uint32{pgtype.TextOID, pgtype.Int8OID, pgtype.TimestamptzOID, pgtype.IntervalOID, pgtype.Float8OID}

// promise is what CONTRACT.md has of a relation or a function.
type promise struct {
	name    string // with the schema
	columns []string
	about   string
}

// promises are those of the SQL part of CONTRACT.md, and the meanings of columns, by column or relation.column.
func promises(t *testing.T) (all []promise, meanings map[string]string) {
	t.Helper()
	raw, err := os.ReadFile("../../domain/CONTRACT.md")
	streamtest.Must(t, err)
	_, text, _ := strings.Cut(string(raw), "\n## SQL\n")
	text, _, _ = strings.Cut(text, "\n## ")
	plain := strings.NewReplacer("`", "").Replace
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.()]+)` \\| `([a-z_ ]+)` \\| (.+) \\|$").FindAllStringSubmatch(text, -1) {
		name := row[1]
		if !strings.Contains(name, ".") {
			name = Name + "." + name
		}
		all = append(all, promise{name, strings.Fields(row[2]), plain(row[3])})
	}
	meanings = map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| ([^`|].*) \\|$").FindAllStringSubmatch(text, -1) {
		meanings[row[1]] = plain(row[2])
	}
	if len(all) < 15 || len(meanings) < 60 {
		t.Fatalf("CONTRACT.md has %d relations and functions, and %d columns", len(all), len(meanings))
	}
	return all, meanings
}

// TestTheContractHasColumns: relations show the columns that the SQL part of the page has and no others, of few types; and of no
// view that an exchange replaces another one is made, so that no statement waits for it with a lock on another.
func TestTheContractHasColumns(t *testing.T) {
	p := pool(t)
	ensured(t, p)
	var names []string
	all, _ := promises(t)
	for _, of := range all {
		rows, err := p.Query(t.Context(), "SELECT * FROM "+of.name+" LIMIT 0")
		if err != nil {
			t.Fatalf("%s: %v", of.name, err)
		}
		var columns []string
		for _, column := range rows.FieldDescriptions() {
			columns = append(columns, column.Name)
			if !slices.Contains(types, column.DataTypeOID) {
				t.Errorf("%s.%s has type %d", of.name, column.Name, column.DataTypeOID)
			}
		}
		rows.Close()
		streamtest.Must(t, rows.Err())
		slices.Sort(columns)
		slices.Sort(of.columns)
		streamtest.Equal(t, of.name, strings.Join(columns, " "), strings.Join(of.columns, " "))
		if name, is := strings.CutPrefix(of.name, Name+"."); is && !strings.HasSuffix(name, "()") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	there := query(t, p, "SELECT relname::text FROM pg_class WHERE relnamespace = 'scrip'::regnamespace AND relkind = 'v' ORDER BY relname COLLATE \"C\"")
	streamtest.Equal(t, "views of schema scrip", strings.Join(there, " "), strings.Join(names, " "))
	made, err := Collect(t.Context(), p, pgx.RowTo[string], `SELECT format('%s of %s', r.ev_class::regclass, d.refobjid::regclass) FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
		WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid <> r.ev_class AND d.refobjid = ANY($1::text[]::regclass[]) AND r.ev_class = ANY($1::text[]::regclass[])`, views())
	streamtest.Must(t, err)
	streamtest.Equal(t, "views of views", strings.Join(made, ", "), "")
}

// TestComments: everything in schema scrip, also of a copy, has a comment in PostgreSQL: the text of CONTRACT.md.
func TestComments(t *testing.T) {
	all, meanings := promises(t)
	text := "-- Made from CONTRACT.md: go test ./projections/schema -run TestComments -update\n"
	used := map[string]bool{}
	for _, of := range all {
		kind := "VIEW"
		switch {
		case strings.HasSuffix(of.name, "()"):
			kind = "FUNCTION"
		case strings.HasPrefix(of.name, "scrip_meta.") && of.name != "scrip_meta.push_dead_letter":
			kind = "TABLE"
		}
		text += comment(kind, of.name, of.about)
		_, relation, _ := strings.Cut(of.name, ".")
		for _, column := range of.columns {
			if kind == "FUNCTION" {
				break
			}
			key := relation + "." + column
			if meanings[key] == "" {
				key = column
			}
			if used[key] = true; meanings[key] == "" {
				t.Errorf("CONTRACT.md has no meaning of %s.%s", of.name, column)
			}
			text += comment("COLUMN", of.name+"."+column, meanings[key])
		}
	}
	for name := range meanings {
		if !used[name] {
			t.Errorf("CONTRACT.md has a meaning of %s, which no relation has", name)
		}
	}
	if *update {
		streamtest.Must(t, os.WriteFile("comments.sql", []byte(text), 0o644))
	} else if text != commentsSQL {
		t.Error("comments.sql differs from CONTRACT.md; run: go test ./projections/schema -run TestComments -update")
	}
	p := pool(t)
	ensured(t, p)
	streamtest.Must(t, pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "CREATE SCHEMA friday")
		if err != nil {
			return err
		}
		return Show(t.Context(), tx, "friday", "scrip_1")
	}))
	const withoutSQL = `SELECT c.oid::regclass || coalesce('.' || a.attname, '') FROM pg_class c
		LEFT JOIN LATERAL (SELECT NULL AS attname, 0 AS attnum UNION ALL SELECT attname, attnum FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0) a ON true
		WHERE c.relkind = 'v' AND c.relnamespace::regnamespace::text IN ('scrip', 'friday') AND col_description(c.oid, a.attnum) IS NULL
		UNION ALL SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace::regnamespace::text IN ('scrip', 'friday') AND obj_description(oid) IS NULL`
	streamtest.Equal(t, "without a comment", strings.Join(query(t, p, withoutSQL), ", "), "")
	streamtest.Equal(t, "a comment", query(t, p, "SELECT col_description('friday.campaign_stats'::regclass, 6)")[0], meanings["campaign_stats.redeemed"])
}

func comment(kind, name, text string) string {
	return fmt.Sprintf("COMMENT ON %s %s IS '%s';\n", kind, name, strings.ReplaceAll(text, "'", "''"))
}
