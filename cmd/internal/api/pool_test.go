package api_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestNoReadWaitsBeforeTheProjector: while more requests than there are connections wait in PostgreSQL, rows of claims reach the tables.
func TestNoReadWaitsBeforeTheProjector(t *testing.T) {
	r := apitest.Serve(t)
	c := r.Campaign(t, map[string]any{"codes": 100})
	connect := func() *pgx.Conn {
		db, err := pgx.Connect(t.Context(), r.Postgres)
		streamtest.Must(t, err)
		t.Cleanup(func() { _ = db.Close(t.Context()) })
		return db
	}
	db, locker := connect(), connect()
	count := func(sql string, want int) func() bool {
		return func() bool {
			var n int
			streamtest.Must(t, db.QueryRow(t.Context(), sql).Scan(&n))
			return n >= want
		}
	}
	r.Claim(t, c, "first")
	apitest.Until(t, "the tables have the first claim", count("SELECT count(*) FROM scrip.coupon", 1))
	var tables string
	streamtest.Must(t, db.QueryRow(t.Context(), "SELECT live::text FROM scrip_meta.format").Scan(&tables))
	tx, err := locker.Begin(t.Context())
	streamtest.Must(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE "+tables+".redemption_row IN ACCESS EXCLUSIVE MODE")
	streamtest.Must(t, err)

	var all sync.WaitGroup
	var answered atomic.Int64
	for range 40 {
		req := r.Request(t, "", "GET", "/v1/coupons?order_id=none", nil)
		all.Go(func() {
			resp, err := http.DefaultClient.Do(req)
			if answered.Add(1); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	apitest.Until(t, "requests wait", count("SELECT count(*) FROM pg_locks WHERE NOT granted", 5)) // more than the projector leaves, if they share its connections
	r.Claim(t, c, "second")
	apitest.Until(t, "the tables have the second claim", count("SELECT count(*) FROM scrip.coupon", 2))
	if n := answered.Load(); n > 0 {
		t.Errorf("the row came after %d answers", n)
	}
	streamtest.Must(t, tx.Rollback(t.Context()))
	all.Wait()
}
