package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// rowsOf reads table events of a schema as CSV would show it, in log order.
func rowsOf(t *testing.T, database, schema string) (rows []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	streamtest.Must(t, err)
	defer conn.Close(context.Background())
	var list []string
	for _, c := range Columns {
		if strings.HasPrefix(c.SQL, "timestamptz") {
			list = append(list, `rtrim(rtrim(to_char(`+c.Name+` AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '0'), '.') || 'Z'`)
		} else if c.Name != "raw" {
			list = append(list, c.Name+"::text")
		}
	}
	q, err := conn.Query(t.Context(), "SELECT concat_ws('|', coalesce("+strings.Join(list, ", ''), coalesce(")+", '')) FROM "+schema+".events ORDER BY lane, sequence, line")
	streamtest.Must(t, err)
	rows, err = pgx.CollectRows(q, pgx.RowTo[string])
	streamtest.Must(t, err)
	return rows
}

// rowsIn is how many rows table live.events has, "" when that cannot be read.
func rowsIn(database string) (n string) {
	conn, err := pgx.Connect(context.Background(), database)
	if err != nil {
		return ""
	}
	defer conn.Close(context.Background())
	_ = conn.QueryRow(context.Background(), "SELECT count(*)::text FROM live.events").Scan(&n) // the table may not be there yet
	return n
}

func (r *rig) sameRows(t *testing.T, database, schema string) {
	t.Helper()
	equalRows(t, "table events", rowsOf(t, database, schema), r.naiveRows())
}

// What JSON allows and PostgreSQL does not is changed as little as needed, not refused.
func TestTextThatPostgreSQLRejects(t *testing.T) {
	r := newRig(t)
	db := projtest.URL(t)
	for _, attributes := range []string{`{"a":"\u0000"}`, `{"a":"\ud800"}`, `{"a":"\udc00\ud83d\ude00"}`, `{"a":"\\u0000"}`, `{"c":1e3,"e9":"1e999999"}`,
		"{\"a\":\"\xff\"}", `{"a":"\ud800\u0041"}`, `{"a":"\"\\"}`} {
		r.Write(0, `{"type":"coupon.claimed","campaign":"c","at":"@","n":1,"code":"C","customer_id":"\u0000x","attributes":`+attributes+`}`)
	}
	sum := r.run(Postgres(db, Rows("odd"), false), Options{})
	if sum.Unreadable != 0 {
		t.Errorf("%+v", sum)
	}
	want := "{\"a\": \"\uFFFD\"} {\"a\": \"\uFFFD\"} {\"a\": \"\uFFFD😀\"} {\"a\": \"\\\\u0000\"} {\"c\": 1000, \"e9\": \"1e999999\"} {\"a\": \"\uFFFD\"} {\"a\": \"\uFFFDA\"} {\"a\": \"\\\"\\\\\"}"
	if got := query(t, db, `SELECT string_agg((raw->'attributes')::text, ' ' ORDER BY sequence) FROM odd.events`); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	streamtest.Equal(t, "customer", query(t, db, `SELECT DISTINCT customer_id FROM odd.events`), "\uFFFDx")
}

// Killed before or after the commit, and with the answer lost: the next run goes on exactly there.
func TestProjectionKilled(t *testing.T) {
	r := newRig(t)
	r.work()
	db := projtest.URL(t)
	for _, at := range []int{0, 2, 5} {
		for _, when := range []string{"before", "after"} {
			schema, n := fmt.Sprintf("%s_the_commit_%d", when, at), at
			d := Rows(schema)
			fold := d.Fold
			d.Fold = func(ctx context.Context, tx pgx.Tx, b *Batch) error {
				err := fold(ctx, tx, b)
				if n--; n < 0 && when == "before" {
					_ = tx.Conn().PgConn().Conn().Close() // as a kill does: no goodbye
				}
				return err
			}
			var batch *BatchError
			sink := Postgres(db, d, false)
			_, err := r.try(after{sink, func() error {
				if n < 0 {
					return errors.New("killed") // the answer is lost
				}
				return nil
			}}, Options{Limits: fill.Limits{Lines: 2}})
			if err == nil || when == "before" && (!errors.As(err, &batch) || batch.First == 0 || batch.Last < batch.First) {
				t.Fatalf("%s %d: %v", when, at, err)
			}
			r.run(Postgres(db, Rows(schema), false), Options{Limits: fill.Limits{Lines: 3}})
			r.sameRows(t, db, schema)
		}
	}
}

// A second projection of the same name is fenced and changes nothing.
func TestSecondProjectionIsFenced(t *testing.T) {
	r := newRig(t)
	db := projtest.URL(t)
	r.work()
	other := Postgres(db, Rows("live"), false)
	if _, err := other.Begin(t.Context(), r.Log, &Filter{}); err != nil {
		t.Fatal(err)
	}
	defer other.End(context.Background(), nil) //nolint:errcheck // disconnects
	r.run(Postgres(db, Rows("live"), false), Options{})
	err := other.Write(t.Context(), &Batch{Lane: 0, First: 1, Last: 1, To: eventlog.Position{Log: r.Log.UUID, Sequence: 1, Digest: "d"}, Events: []Event{{Position: Position{0, 1, 99}, Event: wire.Event{Type: wire.CampaignResumed, At: 1}, Raw: []byte("{}")}}})
	if !errors.Is(err, errFenced) || !strings.Contains(err.Error(), "stop one of them") {
		t.Errorf("the second one: %v", err)
	}
	r.sameRows(t, db, "live")
}

// TestManyStartAtOnce: of replays of one name that start, or reset, at the same time one makes the tables, and all find them. No lock
// is needed which another session could hold.
func TestManyStartAtOnce(t *testing.T) {
	r := newRig(t)
	db := projtest.URL(t)
	projtest.SessionLocks(t, db)
	for _, reset := range []bool{false, true, true} {
		var all sync.WaitGroup
		errs := make([]error, 5)
		for i := range errs {
			all.Go(func() {
				sink := Postgres(db, Rows("together"), reset)
				_, errs[i] = sink.Begin(t.Context(), r.Log, &Filter{})
				if errs[i] == nil {
					errs[i] = sink.End(t.Context(), nil)
				}
			})
		}
		all.Wait()
		streamtest.Must(t, errors.Join(errs...))
	}
	streamtest.Equal(t, "lanes", query(t, db, "SELECT count(*)::text FROM together.scrip_checkpoint"), fmt.Sprint(projtest.Lanes))
}

func TestProjectionWaitsForTheDatabase(t *testing.T) {
	r := newRig(t)
	cluster := projtest.Cluster(t)
	db := cluster.URL()
	f := r.follow(Postgres(db, Rows("live"), false), Options{})
	r.claimOnce(1)
	want := fmt.Sprint(len(r.naiveRows()))
	f.until(func() bool { return rowsIn(db) == want })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	streamtest.Must(t, cluster.Stop(ctx))
	r.claimOnce(2)
	f.until(func() bool { return strings.Contains(f.logged.String(), "the database is unavailable") })
	again, err := cluster.Start(ctx)
	streamtest.Must(t, err)
	if again != db {
		t.Fatalf("the cluster moved from %s to %s", db, again)
	}
	want = fmt.Sprint(len(r.naiveRows()))
	f.until(func() bool { return rowsIn(db) == want })
	f.stop()
	streamtest.Equal(t, "outages logged", strings.Count(f.logged.String(), "is unavailable"), 1)
	r.sameRows(t, db, "live")
	// Without Follow, it is an error with the position.
	streamtest.Must(t, cluster.Stop(ctx))
	if _, err := r.try(Postgres(db, Rows("live"), false), Options{}); err == nil || !isUnavailable(err) {
		t.Errorf("no database: %v", err)
	}
}

// role makes a role that may do nothing but log in, and returns the database's URL for it.
func role(t *testing.T, db, name string) string {
	t.Helper()
	execute(t, db, "REVOKE TEMPORARY ON DATABASE "+query(t, db, "SELECT current_database()")+" FROM PUBLIC")
	return projtest.Role(t, db, name)
}

// A role without rights gets errors that name the missing GRANTs, one after the other, until it works.
func TestGrants(t *testing.T) {
	r := newRig(t)
	r.work()
	db := projtest.URL(t)
	as := role(t, db, "analyst_a")
	execute(t, db, "CREATE SCHEMA shop; CREATE TABLE shop.customer (customer_id text, country text)")
	file, err := ParseSQL("abroad.sql", []byte("-- scrip: create\nCREATE TABLE c (n bigint);\n-- scrip: fold\nINSERT INTO c SELECT count(*) FROM events JOIN shop.customer USING (customer_id);\n"))
	streamtest.Must(t, err)
	for _, want := range []string{"GRANT TEMPORARY ON DATABASE test_", "GRANT CREATE ON DATABASE test_", "GRANT USAGE ON SCHEMA shop TO analyst_a", "GRANT SELECT ON TABLE customer TO analyst_a"} {
		_, err := r.try(Postgres(as, file.Definition(), false), Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("got %v, want %s", err, want)
		}
		_, grant, _ := strings.Cut(err.Error(), "run: ")
		grant, _, _ = strings.Cut(grant, ";")
		execute(t, db, strings.Replace(grant, "TABLE customer", "TABLE shop.customer", 1))
	}
	r.run(Postgres(as, file.Definition(), false), Options{})
	// Another role may not go on with it.
	other := role(t, db, "analyst_b")
	execute(t, db, "GRANT TEMPORARY, CREATE ON DATABASE "+query(t, db, "SELECT current_database()")+" TO analyst_b")
	if _, err := r.try(Postgres(other, file.Definition(), false), Options{}); err == nil || !strings.Contains(err.Error(), "run: GRANT analyst_a TO analyst_b") {
		t.Errorf("another role: %v", err)
	}
	execute(t, projtest.Admin(t, db), "GRANT analyst_a TO analyst_b")
	r.run(Postgres(other, file.Definition(), false), Options{})
}

// What a projection cannot go on with is refused with what to do, and nothing changes; --reset starts again.
func TestProjectionRefuses(t *testing.T) {
	r := newRig(t)
	r.work()
	db := projtest.URL(t)
	execute(t, db, "CREATE SCHEMA taken; CREATE TABLE taken.t (n int)")
	for name, want := range map[string]string{"scrip": "is reserved", "scrip_meta": "is reserved", "public": "is reserved", "pg_x": "is reserved",
		"Shop": "a-z", "taken": "no replay made it", "": "a-z"} {
		for _, reset := range []bool{false, true} {
			_, err := r.try(Postgres(db, Rows(name), reset), Options{})
			var wrong *InvalidError
			if !errors.As(err, &wrong) || wrong.Field != "name" || !strings.Contains(err.Error(), want) {
				t.Errorf("schema %q, reset %v: %v", name, reset, err)
			}
		}
	}
	streamtest.Equal(t, "the taken schema", query(t, db, "SELECT count(*)::text FROM taken.t"), "0")

	// Other filters, or other tables, are not mixed with what is there.
	f := Filter{Types: []wire.EventType{wire.CouponClaimed}}
	r.run(Postgres(db, Rows("claims"), false), Options{Filter: f})
	if _, err := r.try(Postgres(db, Rows("claims"), false), Options{}); err == nil || !strings.Contains(err.Error(), "started with --type coupon.claimed, not with no filter") {
		t.Errorf("another filter: %v", err)
	}
	other := Rows("claims")
	other.Version = "rows 2"
	if _, err := r.try(Postgres(db, other, false), Options{Filter: f}); err == nil || !strings.Contains(err.Error(), "--reset") {
		t.Errorf("another version: %v", err)
	}
	equalRows(t, "claims", rowsOf(t, db, "claims"), slices.DeleteFunc(r.naiveRows(), func(row string) bool { return !strings.Contains(row, "|coupon.claimed|") }))

	// A checkpoint that the log does not have.
	execute(t, db, "UPDATE claims.scrip_checkpoint SET digest = repeat('0', 32)")
	if _, err := r.try(Postgres(db, Rows("claims"), false), Options{Filter: f}); err == nil || !strings.Contains(err.Error(), "restore that log, or start again with --reset") {
		t.Errorf("diverged: %v", err)
	}
}
