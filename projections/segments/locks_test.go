package segments

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestReaderLocks: a transaction that reads all of schema scrip has no more locks than the settings of PostgreSQL are
// judged by, whatever the number of segments, and hardly fewer.
func TestReaderLocks(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 100})
	r.run(s)
	for range 7 { // fewer than are merged
		r.claim(s, 0, 90)
	}
	streamtest.Must(t, s.Finish(t.Context()))
	names, err := schema.Collect(t.Context(), r.pool, pgx.RowTo[string],
		"SELECT relname::text FROM pg_class WHERE relnamespace = 'scrip'::regnamespace AND relkind = 'v'")
	streamtest.Must(t, err)
	tx, err := r.pool.Begin(t.Context())
	streamtest.Must(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck
	locks := func(sql string) (of, others int) {
		t.Helper()
		_, err := tx.Exec(t.Context(), sql)
		streamtest.Must(t, err)
		streamtest.Must(t, tx.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE of), count(*) FILTER (WHERE NOT of)
			FROM (SELECT coalesce(c.relname ~ '^coupon_claim_[0-9]', false) AS of FROM pg_locks l
				LEFT JOIN pg_class c ON c.oid = l.relation WHERE l.pid = pg_backend_pid()) x`).Scan(&of, &others))
		return of, others
	}
	of, _ := locks("SELECT * FROM scrip.coupon WHERE code = 'x'")
	streamtest.Equal(t, "locks on 7 segments and segment 0", of, 8*segmentLocks)
	_, others := locks("SELECT count(*) FROM scrip." + strings.Join(names, "; SELECT count(*) FROM scrip."))
	if others > otherLocks || others < otherLocks*2/3 {
		t.Errorf("%d locks on what is no segment, and %d are reckoned with", others, otherLocks)
	}
}

// TestBounds: the private PostgreSQL has room for the locks of as many readers as it admits, and for more segments than
// there are in a rush; and is found loose where a role has another limit.
func TestBounds(t *testing.T) {
	t.Parallel()
	database := projtest.URL(t)
	db, err := pgx.Connect(t.Context(), database)
	streamtest.Must(t, err)
	defer db.Close(t.Context()) //nolint:errcheck
	all, err := Bounds(t.Context(), db)
	streamtest.Must(t, err)
	if len(all) > 0 {
		t.Errorf("the private PostgreSQL: %+v", all)
	}
	// As many locks as all of its connections have: any kind of lock takes the room of one of a table.
	var taken int
	streamtest.Must(t, db.QueryRow(t.Context(), `SELECT count(pg_try_advisory_xact_lock(g))
		FROM generate_series(1, $1::int * current_setting('max_connections')::int) g`, readerLocks).Scan(&taken))
	for _, c := range []struct{ value, what, fix string }{
		{"0", "is 0, which is no limit", "idle_in_transaction_session_timeout = '5min'"},
		{"1h", "is 1h0m0s", "reload PostgreSQL"},
		{"5min", "", ""},
	} {
		_, err := db.Exec(t.Context(), "SET idle_in_transaction_session_timeout = '"+c.value+"'")
		streamtest.Must(t, err)
		all, err := Bounds(t.Context(), db)
		streamtest.Must(t, err)
		found := len(all) == 1 && strings.Contains(all[0].What, c.what) && strings.Contains(all[0].Fix, c.fix)
		if c.what == "" && len(all) > 0 || c.what != "" && !found {
			t.Errorf("%s: %+v", c.value, all)
		}
	}
}

// TestLeastLocks: whatever PostgreSQL admits, the value that is named is enough, and half of it is not.
func TestLeastLocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ connections, prepared int64 }{{100, 0}, {300, 300}, {1000, 10}, {1, 100_000}} {
		least := leastLocks(c.connections, c.prepared)
		room, need := least*(c.connections+c.prepared), readerLocks*c.connections
		if room < need || least > 64 && room/2 >= need {
			t.Errorf("%+v: %d", c, least)
		}
	}
}
