package schema

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// back undoes the migrations from one on, newest first, by their Down parts.
func back(t *testing.T, p *pgxpool.Pool, from int) {
	t.Helper()
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(files)
	for _, name := range files {
		if name < fmt.Sprintf("migrations/%05d", from) {
			break
		}
		file, err := fs.ReadFile(migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		_, down, _ := strings.Cut(string(file), "-- +goose Down")
		exec(t, p, down)
	}
	exec(t, p, fmt.Sprintf("DELETE FROM %s WHERE version_id >= %d", stateTable, from))
}

// A crash of PostgreSQL can set the sequence of the state's ids back, see passSQL; RESTART is that crash. Later migrations are
// recorded all the same, by Migrate and by Stamp.
func TestIDsThatACrashSetBack(t *testing.T) {
	p := pool(t)
	for what, record := range map[string]func(){
		"Migrate": func() { migrate(t, p) },
		"Stamp": func() {
			if err := pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error { return Stamp(t.Context(), tx) }); err != nil {
				t.Error(err)
			}
		},
	} {
		migrate(t, p)
		back(t, p, 7)
		exec(t, p, "ALTER SEQUENCE scrip_meta.migration_id_seq RESTART")
		record()
		if version, err := Applied(t.Context(), p); version != Version() || err != nil {
			t.Fatalf("after %s: migration %d (%v), want %d", what, version, err, Version())
		}
		exec(t, p, "DROP SCHEMA scrip CASCADE")
	}
}

// Tables from before migration 7 do not have the positions of events: they are emptied with their checkpoints, and filled
// again from the log.
func TestPositionsComeFromTheLog(t *testing.T) {
	p := pool(t)
	migrate(t, p)
	back(t, p, 7)
	exec(t, p, "INSERT INTO scrip.coupon_row (n, claimed_at, redeemed_count, campaign, code, customer_id) VALUES (1, 'epoch', 0, 'c', 'x', 'y')")
	exec(t, p, "INSERT INTO scrip.checkpoint VALUES ('tables', 0, 5, now(), 'log', 'd')")
	exec(t, p, "INSERT INTO scrip_meta.dead_letter VALUES ('log', 0, 3, 1, 'epoch', 'epoch', 'discarded', '')")
	if migrate(t, p) {
		t.Error("migrated tables were reported as fresh")
	}
	for table, want := range map[string]int{"scrip.coupon_row": 0, "scrip.checkpoint": 0, "scrip.coupon_event": 0, "scrip_meta.dead_letter": 1} {
		var n int
		if err := p.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != want {
			t.Errorf("%s has %d rows (%v), want %d", table, n, err, want)
		}
	}
}

func TestOldReasonsLoseTheirText(t *testing.T) {
	p := pool(t)
	migrate(t, p)
	back(t, p, 9)
	exec(t, p, `INSERT INTO scrip.dead_letter (lane, sequence, line, event_sequence, event_line, at, stream, reason, payload)
		VALUES (0, 1, 1, 1, 1, 'epoch', 'SCRIP_EVT_0', 'PostgreSQL refuses it: index row size 5112 exceeds (2704) (SQLSTATE 54000)', 'p'), (0, 1, 2, 1, 2, 'epoch', 'SCRIP_EVT_0', 'not JSON', 'p')`)
	migrate(t, p)
	got := strings.Join(query(t, p, "SELECT reason FROM scrip.dead_letter ORDER BY event_line"), "; ")
	if want := "PostgreSQL refuses it (SQLSTATE 54000); not JSON"; got != want {
		t.Errorf("reasons %q, want %q", got, want)
	}
}

// Tables that hold more values of an attribute than have rows of their own, or more attributes than count, are filled
// again from the log: they do not show which came first. Others stay.
func TestTablesWithTooManyValuesAreFilledAgain(t *testing.T) {
	p := pool(t)
	migrate(t, p)
	for name, c := range map[string]struct {
		version int // of the tables before
		rows    string
		left    int
	}{
		"within bounds":                {9, "SELECT 'd', 'v' || v FROM generate_series(1, 1000) v", 1},
		"too many values":              {9, "SELECT 'd', 'v' || v FROM generate_series(1, 1001) v", 0},
		"too many of a claim":          {9, "SELECT 'a' || v, 'v' FROM generate_series(1, 9) v", 0},
		"as many as a day has":         {10, "SELECT 'a' || v, 'v' FROM generate_series(1, 64) v", 1},
		"too many of a day":            {10, "SELECT 'a' || v, 'v' FROM generate_series(1, 65) v", 0},
		"the name of the others":       {10, "SELECT '…', 'v'", 0},
		"further values of the others": {10, "SELECT 'a' || v, '…' FROM generate_series(1, 64) v", 1},
	} {
		exec(t, p, "TRUNCATE scrip.campaign_stats, scrip.checkpoint")
		back(t, p, c.version+1)
		exec(t, p, "INSERT INTO scrip.checkpoint VALUES ('tables', 0, 5, now(), 'log', 'd')")
		exec(t, p, "INSERT INTO scrip.campaign_stats SELECT 'epoch', 1, 0, 0, 0, 'c', x.* FROM ("+c.rows+") x")
		migrate(t, p)
		var n int
		if err := p.QueryRow(t.Context(), "SELECT count(*) FROM scrip.checkpoint").Scan(&n); err != nil || n != c.left {
			t.Errorf("%s: %d checkpoints (%v), want %d", name, n, err, c.left)
		}
	}
}
