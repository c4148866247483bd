package pgd

import (
	"errors"
	"runtime"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestMemoryOfOneStatement: one that takes too much fails alone.
func TestMemoryOfOneStatement(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("no program can set the limits of another one")
	}
	c := Open(testOptions(madeDir(t)))
	url := start(t, c)
	was, conn := c.PID(), connect(t, url)
	_, err := conn.Exec(t.Context(), "SELECT count(a) FROM (SELECT array_agg(repeat('x', 10000000)) a FROM generate_series(1, 300)) x")
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "53200" {
		t.Errorf("3 GB in one statement: %v", err)
	}
	var one int
	streamtest.Must(t, conn.QueryRow(t.Context(), "SELECT 1").Scan(&one)) // the session goes on
	streamtest.Equal(t, "the postmaster", c.PID(), was)
}

// TestBackendMemory on small and large machines.
func TestBackendMemory(t *testing.T) {
	for memory, want := range map[int64]int64{0: 384 * mebibyte, 2048 * mebibyte: 384 * mebibyte, 32768 * mebibyte: 1024 * mebibyte, 1 << 40: 2048 * mebibyte} {
		streamtest.Equal(t, strconv.FormatInt(memory, 10), backendMemory(memory), want)
	}
}
