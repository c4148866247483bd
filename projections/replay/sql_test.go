package replay

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func parse(t *testing.T, file, text string) *SQLFile {
	t.Helper()
	f, err := ParseSQL(file, []byte(text))
	streamtest.Must(t, err)
	return f
}

// Files that use column raw get the line itself; it costs most.
func TestSQLRaw(t *testing.T) {
	r := newRig(t)
	r.work()
	db := projtest.URL(t)
	for name, c := range map[string]struct{ column, want string }{
		"with_it": {"raw->'attributes'->>'channel'", "app app"}, "without_it": {"to_jsonb(events)->>('r' || 'aw')", "NULL"},
	} {
		f := parse(t, name+".sql", "-- scrip: create\nCREATE TABLE t (v text);\n-- scrip: fold\nINSERT INTO t SELECT "+c.column+" FROM events WHERE type = 'coupon.claimed';\n")
		r.run(Postgres(db, f.Definition(), false), Options{})
		if got := query(t, db, "SELECT string_agg(v, ' ') FROM "+name+".t"); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A mistake in the file is reported with its line and PostgreSQL's message, before anything is created.
func TestSQLSyntaxErrors(t *testing.T) {
	r := newRig(t)
	r.work()
	db := projtest.URL(t)
	for _, c := range []struct {
		text string
		line int
		want string
	}{
		{"-- scrip: create\nCREATE TABLE t (n int);\n-- scrip: fold\nINSERT INTO t\nSELEKT 1\nFROM events;\n", 5, `syntax error at or near "SELEKT"`},
		{"-- scrip: create\nCREATE TABLE a (n int);\n\n-- a comment; with a semicolon\nCREATE TABEL t (n int);\n-- scrip: fold\nSELECT 1;\n", 5, `syntax error at or near "TABEL"`},
		{"-- scrip: fold\nINSERT INTO t VALUES ('ä', 'it''s; fine', $$;$$, E'\\';' /* ; /* ; */ ; */\n, ,);\n", 3, "syntax error"},
		{"-- scrip: fold\nINSERT INTO missing SELECT 1\nFROM events;\n", 2, `relation "missing" does not exist`},
		{"-- scrip: create\nCREATE TABLE t (n int);\n-- scrip: fold\nINSERT INTO t SELECT\n  colour FROM events", 5, `column "colour" does not exist`},
		{"-- scrip: create\nCREATE TABLE t (n int);\n-- scrip: fold\nINSERT INTO t SELECT 1 FROM events; SELECT 1 / 0 ;", 4, "division by zero (SQLSTATE 22012)"},
		{"-- scrip: create\nCREATE TABLE t (n int);\n-- scrip: fold\nINSERT INTO t SELECT 1 FROM events;\n\nDO $x$ BEGIN\n  COMMIT; END $x$", 6, "invalid transaction termination"},
		{"-- scrip: create\nCREATE TABLE events (n int);\n-- scrip: fold\nSELECT 1", 2, "give it another name"},
		// Found without a database.
		{"SELECT 1;\n", 1, "start with `-- scrip: create`"},
		{"-- scrip: create\nCREATE TABLE t (n int);\n", 1, "add `-- scrip: fold`"},
		{"-- scrip: fold\n-- nothing\n", 1, "add `-- scrip: fold`"},
		{"-- scrip: fold\nSELECT 1;\nCOMMIT;\n", 3, "COMMIT is not allowed"},
		{"-- scrip: fold\nSELECT 1;\n /* so */ rollback;\n", 3, "ROLLBACK is not allowed"},
		{"-- scrip: fold\nCOPY t FROM STDIN;", 2, "COPY is not allowed"},
		{"-- scrip: name a\n-- scrip: name b\n-- scrip: fold\nSELECT 1", 2, "is repeated from line 1"},
		{"\n-- scrip: name Daily Claims\n-- scrip: fold\nSELECT 1", 2, "must start with a-z"},
		{"-- scrip: types coupon.gilded\n-- scrip: fold\nSELECT 1", 1, `unknown event type "coupon.gilded"`},
		{"-- scrip: foldd\nSELECT 1", 1, "give name, types, readers, create or fold"},
		{"-- scrip: readers analysts\n-- scrip: fold\nSELECT 1", 1, `readers: unknown reader "analysts"; give analyst, for every analyst, or codes`},
		{"-- scrip: readers\n-- scrip: fold\nSELECT 1", 1, "readers: there is no reader; give analyst or codes, or remove the line"},
	} {
		f, err := ParseSQL("dir/bad.sql", []byte(c.text))
		if err == nil {
			execute(t, db, "DROP SCHEMA IF EXISTS bad CASCADE")
			_, err = r.try(Postgres(db, f.Definition(), false), Options{})
		}
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Line != c.line || !strings.Contains(err.Error(), fmt.Sprintf("dir/bad.sql:%d: ", c.line)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\n got %v\nwant line %d: %s", c.text, err, c.line, c.want)
		}
		if f != nil && (strings.Contains(c.want, "syntax") || strings.Contains(c.want, "another name")) && query(t, db, "SELECT count(*)::text FROM pg_namespace WHERE nspname = 'bad'") != "0" {
			t.Errorf("%q: a schema was made", c.text)
		}
	}
}

// Failing late: the positions are named, the batch is rolled back, what came before it stays; mended, it goes on there.
func TestSQLFailsLate(t *testing.T) {
	r := newRig(t)
	r.work()
	bad := r.Write(1, `{"type":"campaign.paused","campaign":"poison","at":"@"}`)
	r.claim(campaigns[1], "after")
	total := 0
	r.naive(func(Position, map[string]any) bool { total++; return false })
	db := projtest.URL(t)
	text := "-- scrip: create\nCREATE TABLE seen (lane int, sequence bigint, line int, PRIMARY KEY (lane, sequence, line));\n-- scrip: fold\n" +
		"INSERT INTO seen SELECT lane, sequence, line FROM events\nWHERE 1 / (campaign <> 'poison')::int = 1;\n"
	_, err := r.try(Postgres(db, parse(t, "late.sql", text).Definition(), false), Options{Limits: fill.Limits{Lines: 1}})
	var batch *BatchError
	var pg *pgconn.PgError // errors.As finds PostgreSQL's
	if !errors.As(err, &pg) || pg.Code != "22012" || !errors.As(err, &batch) || batch.Lane != 1 || batch.First > bad || batch.Last < bad {
		t.Fatalf("error %v, want lane 1 around %d", err, bad)
	}
	for _, want := range []string{fmt.Sprintf("messages %d to %d of lane 1", batch.First, batch.Last), "late.sql:4: division by zero", "rolled back", "it continues there"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %q", err, want)
		}
	}
	streamtest.Equal(t, "kept up to", query(t, db, "SELECT max(sequence)::text FROM late.seen WHERE lane = 1"), fmt.Sprint(batch.First-1))
	if got := query(t, db, "SELECT sequence::text FROM late.scrip_checkpoint WHERE lane = 1"); got != fmt.Sprint(batch.First-1) {
		t.Errorf("checkpoint %s", got)
	}
	// The same again fails there again; mended it goes on.
	if _, again := r.try(Postgres(db, parse(t, "late.sql", text).Definition(), false), Options{Limits: fill.Limits{Lines: 1}}); again == nil || again.Error() != err.Error() {
		t.Errorf("again: %v", again)
	}
	r.run(Postgres(db, parse(t, "late.sql", strings.Replace(text, "1 / (campaign <> 'poison')::int = 1", "true", 1)).Definition(), false), Options{})
	if got := query(t, db, "SELECT count(*)::text FROM late.seen"); got != fmt.Sprint(total) {
		t.Errorf("%s rows, want %d", got, total)
	}
	// Other tables are another projection.
	_, err = r.try(Postgres(db, parse(t, "late.sql", strings.Replace(text, "lane int,", "lane bigint,", 1)).Definition(), false), Options{})
	if err == nil || !strings.Contains(err.Error(), "--reset") {
		t.Errorf("other tables: %v", err)
	}
}

// Whatever it changes outside its schema, PostgreSQL refuses it, and nothing of the batch is there.
func TestSQLWritesOutside(t *testing.T) {
	r := newRig(t)
	r.work()
	db := projtest.URL(t)
	execute(t, db, "CREATE SCHEMA spare; CREATE SCHEMA shop; CREATE TABLE shop.t (n int PRIMARY KEY); INSERT INTO shop.t VALUES (1); CREATE SEQUENCE shop.s; CREATE FUNCTION shop.f() RETURNS int LANGUAGE sql AS 'SELECT 1'; "+
		"GRANT USAGE ON SCHEMA shop, spare TO PUBLIC; GRANT SELECT ON shop.t TO PUBLIC")
	for name, c := range map[string]struct{ create, fold, want string }{
		"insert":           {"", "INSERT INTO shop.t SELECT 1", "denied for table t"},
		"update nothing":   {"", "UPDATE shop.t SET n = 2 WHERE false", "denied for table t"},
		"delete":           {"", "DELETE FROM shop.t", "denied for table t"},
		"truncate":         {"", "TRUNCATE shop.t", "denied for table t"},
		"by way of with":   {"", "WITH gone AS (DELETE FROM shop.t RETURNING n) INSERT INTO mine SELECT n FROM gone", "denied for table t"},
		"by a block":       {"", "DO $$ BEGIN INSERT INTO shop.t VALUES (3); EXCEPTION WHEN division_by_zero THEN NULL; END $$", "denied for table t"},
		"by a trigger":     {"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO shop.t VALUES (1); RETURN NEW; END'; CREATE TRIGGER x BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION f()", "INSERT INTO mine SELECT 1", "denied for table t"},
		"drop":             {"", "DROP TABLE shop.t", "must be owner of table t"},
		"alter":            {"", "ALTER TABLE shop.t ADD COLUMN m int", "must be owner of table t"},
		"row lock":         {"", "SELECT * FROM shop.t FOR UPDATE", "denied for table t"},
		"sequence":         {"", "SELECT nextval('shop.s')", "denied for sequence s"},
		"create":           {"", "CREATE TABLE shop.u (n int)", "denied for schema shop"},
		"create in create": {"CREATE TABLE public.u (n int)", "SELECT 1", "denied for schema public"},
		"public function":  {"CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "SELECT 1", "denied for schema public"},
		"schema":           {"CREATE SCHEMA another", "SELECT 1", "denied for database"},
		"search path":      {"", "SET LOCAL search_path = shop; INSERT INTO t VALUES (1)", "denied for table t"},
		"foreign key":      {"CREATE TABLE k (n int REFERENCES shop.t)", "SELECT 1", "denied for table t"},
		"drop function":    {"", "DROP FUNCTION shop.f()", "must be owner of function"},
		"drop schema":      {"", "DROP SCHEMA spare", "must be owner of schema spare"},
		"role":             {"", "CREATE ROLE forbidden", "permission denied to create role"},
		"catalog":          {"", "UPDATE pg_class SET relnatts = relnatts WHERE relname = 't'", "denied for table pg_class"},
		"program":          {"", "DO $$ BEGIN COPY mine TO PROGRAM 'cat'; END $$", "external program"},
		"file":             {"", "SELECT pg_read_file('/etc/passwd')", "denied for function pg_read_file"},
		"back":             {"", "DO $$ BEGIN RESET ROLE; RESET SESSION AUTHORIZATION; DELETE FROM shop.t; END $$", "denied for table t"},
		"owner":            {"", "DO $$ BEGIN EXECUTE format('SET ROLE %I', (SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database())); END $$", "denied to set role"},
	} {
		t.Run(name, func(t *testing.T) {
			execute(t, db, "DROP SCHEMA IF EXISTS outside CASCADE")
			f := parse(t, "outside.sql", "-- scrip: create\nCREATE TABLE mine (n int);\n"+c.create+";\n-- scrip: fold\nINSERT INTO mine SELECT n FROM shop.t;\n"+c.fold)
			_, err := r.try(Postgres(db, f.Definition(), false), Options{})
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "42501" || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "writes to its own schema outside only") {
				t.Fatalf("error %v, want %s", err, c.want)
			}
			streamtest.Equal(t, "shop.t holds", query(t, db, "SELECT string_agg(n::text, ' ') FROM shop.t"), "1")
			if c.create == "" || strings.Contains(c.create, "TRIGGER") {
				if got := query(t, db, "SELECT count(*) || ' ' || (SELECT max(sequence) FROM outside.scrip_checkpoint) FROM outside.mine"); got != "0 0" {
					t.Errorf("the projection holds %s", got)
				}
			} else if got := query(t, db, "SELECT count(*)::text FROM pg_namespace WHERE nspname IN ('outside', 'another')"); got != "0" {
				t.Errorf("%s schemas were left", got)
			}
		})
	}
}

// What stays inside is not refused: scratch tables, functions, dropping its own, reading what may be read.
func TestSQLStaysInside(t *testing.T) {
	r := newRig(t)
	r.work()
	db := projtest.URL(t)
	execute(t, db, "CREATE SCHEMA scrip; CREATE TABLE scrip.t (n int PRIMARY KEY); INSERT INTO scrip.t VALUES (1)")
	f := parse(t, "inside.sql", `-- scrip: create
CREATE TYPE mood AS ENUM ('good');
CREATE TABLE mine (id serial, n bigint, m mood, big text);
CREATE INDEX ON mine (n);
CREATE FUNCTION add() RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO mine (n, m, big) SELECT 1, 'good', repeat('x', 100000) FROM events; END $$;
-- scrip: fold
CREATE TEMPORARY TABLE scratch AS SELECT n FROM scrip.t;
CREATE TABLE own_scratch AS SELECT * FROM scratch;
SELECT add();
DROP TABLE own_scratch;
DROP TABLE scratch;
`)
	for _, reset := range []bool{false, true} { // with reset, all of this is dropped
		r.run(Postgres(db, f.Definition(), reset), Options{Limits: fill.Limits{Lines: 2}})
		want := len(r.naiveRows())
		if got := query(t, db, "SELECT count(*)::text FROM inside.mine"); got != fmt.Sprint(want) {
			t.Errorf("reset %v: %s rows, want %d", reset, got, want)
		}
	}
}

func TestSplit(t *testing.T) {
	text := "SELECT 'a;''b', \"c;\"\"d\", E'\\';', $1, $$;$$, $t$;$$;$t$ -- ;\n;;\n/* ; /* ; */ ; */\nSELECT é;\n\n  SELECT a$b$c;SELECT 3"
	var got []string
	for _, s := range split(text, 10) {
		got = append(got, fmt.Sprintf("%d:%s", s.line, strings.ReplaceAll(s.sql, "\n", "~")))
	}
	want := []string{"10:SELECT 'a;''b', \"c;\"\"d\", E'\\';', $1, $$;$$, $t$;$$;$t$ -- ;~", "13:SELECT é", "15:SELECT a$b$c", "15:SELECT 3"}
	want[0] = strings.TrimSuffix(want[0], "~")
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, open := range []string{"'", `"`, "$$", "/*", "--", "E'\\", "$a"} {
		if list := split("SELECT "+open+" ; x", 1); len(list) > 2 {
			t.Errorf("%q: %v", open, list)
		}
	}
}
