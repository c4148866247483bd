package readmodel

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) { os.Exit(projtest.Main(m)) }

// database is a new one with empty read tables.
func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	url := projtest.URL(t)
	projtest.SessionLocks(t, url)
	pool := projtest.Pool(t, url)
	ensure(t, pool)
	return pool
}

func ensure(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := schema.Ensure(t.Context(), pool, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql)
	streamtest.Must(t, err)
}

func minute(n int) time.Time { return time.Date(2026, 1, 1, 0, n, 0, 0, time.UTC) }

// inUse is the schema of the tables.
func inUse(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	now, err := schema.Current(t.Context(), pool)
	streamtest.Must(t, err)
	return now.Live
}
