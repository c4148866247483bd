package schema

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// query collects the rows of a query, each as one line.
func query(t *testing.T, p *pgxpool.Pool, sql string) []string {
	t.Helper()
	rows, err := p.Query(t.Context(), sql)
	streamtest.Must(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	streamtest.Must(t, err)
	return lines
}

// withDue fills the tables with what was due, is due, and will be.
func withDue(t *testing.T) *pgxpool.Pool {
	t.Helper()
	p := pool(t)
	ensured(t, p)
	for i, c := range []struct{ name, priority string }{{"vip", "'high'"}, {"plain", "NULL"}} {
		exec(t, p, fmt.Sprintf(`INSERT INTO scrip_tables.campaign (campaign, priority, status, claimed, redeemed, voided, opens_at, created_at, lane, number,
			per_customer, max_redemptions, generated_codes, imported_codes, inheriting_live, inheriting_redeemed)
			VALUES ('%s', %s, 'active', 9, 0, 0, 'epoch', 'epoch', %d, %d, 1, 1, 0, 0, 0, 0)`, c.name, c.priority, i, i))
	}
	// One instant for all: rows of one due time are in one second, also if the clock's second ends here.
	now := fmt.Sprintf("timestamptz '%s'", query(t, p, "SELECT now()::text")[0])
	task := func(campaign, due string, live int, state string) {
		exec(t, p, fmt.Sprintf(`INSERT INTO scrip_1.expiry_own (campaign, due_at, live, redeemed, lane, processed_at)
			VALUES ('%s', %s + interval '%s', %d, 0, 0, CASE '%s' WHEN 'processed' THEN now() END)`, campaign, now, due, live, state))
	}
	task("vip", "-10 seconds", 7, "pending")
	task("vip", "-20 seconds", 9, "processed")
	task("vip", "-30 seconds", 0, "pending") // all of them redeemed
	task("plain", "-1 minute", 5, "pending")
	task("plain", "10 minutes", 3, "pending")
	// At the campaign's end.
	exec(t, p, fmt.Sprintf("UPDATE scrip_tables.campaign SET expires_at = %s - interval '40 seconds', inheriting_live = 4 WHERE campaign = 'plain'", now))
	task("plain", "61 minutes", 2, "pending")
	r := 0
	reminders := func(campaign, kind, due string, n int, state string) {
		for range n {
			r++
			exec(t, p, fmt.Sprintf(`INSERT INTO scrip_1.reminder (r, before_us, due_at, set_at, settled_at, campaign, customer_id, kind, state, set_place)
				VALUES (%d, 0, %s + interval '%s', 'epoch', CASE '%s' WHEN 'pending' THEN NULL ELSE now() END, '%s', 'c', '%s', '%[4]s', 1)`, r, now, due, state, campaign, kind))
		}
	}
	reminders("vip", "opens", "-5 seconds", 3, "pending")
	reminders("vip", "expires", "-8 seconds", 2, "pending")
	reminders("vip", "opens", "-50 seconds", 4, "fired")
	reminders("plain", "opens", "-50 seconds", 1, "cancelled")
	reminders("plain", "opens", "20 minutes", 6, "pending")
	reminders("plain", "expires", "2 hours", 1, "pending")
	exec(t, p, `INSERT INTO scrip_1.reminder (r, before_us, set_at, campaign, customer_id, kind, state, set_place) VALUES (1000, 0, 'epoch', 'plain', 'c', 'opens', 'pending', 1)`)
	return p
}

// The backlog is what is due and not done; what is due in the next hour is counted by the second. However many reminders there are,
// only those around now are read.
func TestBacklog(t *testing.T) {
	p := withDue(t)
	got := strings.Join(query(t, p, `SELECT format('%s %s %s %s', lane, priority, kind, due) FROM scrip.backlog() ORDER BY 1`), "\n")
	if want := "0 high expiry 7\n0 high reminder 5\n1 normal expiry 9"; got != want {
		t.Errorf("backlog:\n%s\nwant:\n%s", got, want)
	}
	for where, least := range map[string]float64{"priority = 'high' AND kind = 'reminder'": 8, "priority = 'normal'": 60} {
		var age float64
		var same bool
		err := p.QueryRow(t.Context(), "SELECT oldest_due_seconds, oldest_due_seconds = extract(epoch FROM now() - oldest_due_at) FROM scrip.backlog() WHERE "+where).Scan(&age, &same)
		if err != nil || age < least || !same {
			t.Errorf("%s: oldest is %v s old (%v), want at least %v and equal to oldest_due_at", where, age, err, least)
		}
	}
	got = strings.Join(query(t, p, `SELECT format('%s %s %s %s', priority, kind, due, second = date_trunc('second', second)) FROM scrip.due_next_hour() ORDER BY second`), "\n")
	if want := "normal expiry 3 t\nnormal reminder 6 t"; got != want {
		t.Errorf("due in the next hour:\n%s\nwant:\n%s", got, want)
	}
	exec(t, p, `INSERT INTO scrip_1.reminder (r, before_us, due_at, set_at, campaign, customer_id, kind, state, set_place)
		SELECT 10000 + i, 0, now() + interval '1 month' + i * interval '1 second', 'epoch', 'plain', 'c', 'opens', 'pending', 1 FROM generate_series(1, 20000) i`)
	exec(t, p, "ANALYZE scrip_1.reminder, scrip_1.campaign")
	for _, view := range []string{"backlog", "due_next_hour"} {
		body := query(t, p, "SELECT prosrc FROM pg_proc WHERE oid = 'scrip."+view+"'::regproc")[0]
		plan := strings.Join(query(t, p, "EXPLAIN (COSTS off) "+body), "\n")
		if !strings.Contains(plan, "reminder_due") || strings.Contains(plan, "Seq Scan on reminder") {
			t.Errorf("%s does not use the index:\n%s", view, plan)
		}
	}
}
