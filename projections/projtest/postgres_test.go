package projtest

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestMain does without Main: these tests look at the end of the shared cluster themselves.
func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	dir := ""
	t.Run("users", func(t *testing.T) {
		one, two := connect(t, URL(t)), connect(t, URL(t))
		if _, err := one.Exec(t.Context(), "CREATE SCHEMA scrip CREATE TABLE scrip.coupon (n int)"); err != nil {
			t.Fatal(err)
		}
		var there bool
		if err := two.QueryRow(t.Context(), "SELECT to_regclass('scrip.coupon') IS NOT NULL").Scan(&there); err != nil {
			t.Fatal(err)
		}
		if there {
			t.Error("a table made in one database is seen in the other")
		}
		common.mu.Lock()
		dir = common.dir
		common.mu.Unlock()
	})
	// The last user is gone, and connections left open did not keep the databases.
	if _, err := os.Stat(dir); dir == "" || !os.IsNotExist(err) {
		t.Errorf("directory %q of the shared cluster is left: %v", dir, err)
	}
	common.mu.Lock()
	defer common.mu.Unlock()
	if common.cluster != nil || common.users != 0 {
		t.Errorf("shared cluster still runs with %d users", common.users)
	}
}

func TestPinnedClusterOutlivesItsUsers(t *testing.T) {
	common.mu.Lock()
	common.pinned = true
	common.mu.Unlock()
	bases := []string{}
	for range 2 {
		t.Run("user", func(t *testing.T) {
			connect(t, URL(t))
			common.mu.Lock()
			defer common.mu.Unlock()
			bases = append(bases, common.url)
		})
	}
	common.mu.Lock()
	defer common.mu.Unlock()
	common.pinned = false
	if len(bases) != 2 || bases[0] != bases[1] {
		t.Errorf("two tests one after the other did not share a cluster: %d clusters", len(bases))
	}
	if err := common.stopLocked(); err != nil {
		t.Error(err)
	}
}
