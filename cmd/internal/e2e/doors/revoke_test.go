package doors

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// revoke revokes the analyst's key while sessions of it read in every way: a bit later none of them reads anything.
func (r *running) revoke(t *testing.T) {
	t.Helper()
	connect := func() *pgx.Conn {
		db, err := pgx.Connect(t.Context(), r.Postgres)
		streamtest.Must(t, err)
		return db
	}
	const one = "SELECT count(*) FROM scrip.campaign"
	var mu sync.Mutex
	last := map[string]time.Time{} // when each way has read something
	reads := func(way string) {
		mu.Lock()
		defer mu.Unlock()
		last[way] = time.Now()
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	ready := make(chan struct{}, 10)
	way := func(name string, prepare string, read func(*pgx.Conn) error) {
		all.Go(func() {
			db := connect()
			defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was ended
			if prepare != "" {
				_, _ = db.Exec(ctx, prepare) // what it may not hold, it does not hold
			}
			ready <- struct{}{}
			for ctx.Err() == nil && !db.IsClosed() {
				if err := read(db); err == nil {
					reads(name)
				}
				_ = sleep(ctx, failedPause)
			}
		})
	}
	exec := func(statement string) func(*pgx.Conn) error {
		return func(db *pgx.Conn) error {
			_, err := db.Exec(ctx, statement)
			return err
		}
	}
	way("one statement after the other", "", exec(one))
	way("in a transaction", "BEGIN; "+one, exec(one))
	way("with an advisory lock", "SELECT pg_advisory_lock(hashtextextended('scrip analysts', 0))", exec(one))
	way("with a cursor", "BEGIN; DECLARE c CURSOR FOR SELECT g FROM generate_series(1, 1000000000) g", exec("FETCH 10 FROM c"))
	way("a statement that lasts", "", func(db *pgx.Conn) error {
		return db.QueryRow(ctx, "SELECT count(*) FROM generate_series(1, 1000000000000)").Scan(new(int64))
	})
	for range 5 {
		<-ready
	}
	all.Go(func() {
		for ctx.Err() == nil {
			if err := (&attack{site: r.site}).sql(ctx, exec(one)); err == nil {
				reads("a new session")
			}
			_ = sleep(ctx, failedPause)
		}
	})
	<-time.After(settles)
	r.ask(t, "DELETE", "/v1/keys/"+r.analyst, "", nil)
	revoked := time.Now()
	<-time.After(2 * revokedFor)
	left := sessions(t, r)
	stop()
	all.Wait()
	if len(last) < 3 {
		t.Errorf("before the key was revoked, it read by %v only", last)
	}
	for name, at := range last {
		if after := at.Sub(revoked); after > revokedFor {
			t.Errorf("%s, the revoked key read something after %s", name, after)
		}
	}
	if left != "" {
		t.Errorf("%s after its key was revoked, a session of the analyst is left: %s", 2*revokedFor, left)
	}
}

// sessions describes a session of the analyst that there is, "" = none.
func sessions(t *testing.T, r *running) (one string) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), r.server.Desc.PostgresURL)
	streamtest.Must(t, err)
	defer db.Close(context.Background()) //nolint:errcheck
	config, err := pgx.ParseConfig(r.Postgres)
	streamtest.Must(t, err)
	rows, err := db.Query(t.Context(), "SELECT pid, coalesce(state, ''), coalesce(query, '') FROM pg_stat_activity WHERE usename = $1", config.User)
	streamtest.Must(t, err)
	defer rows.Close()
	for rows.Next() {
		var pid int
		var state, query string
		streamtest.Must(t, rows.Scan(&pid, &state, &query))
		one = fmt.Sprint(pid, " ", state, " ", query)
	}
	return one
}
