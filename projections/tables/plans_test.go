package tables

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// everything that happens in campaigns, one % each; minute 40 is after the last of it.
const everything = `
{"type":"campaign.created","campaign":"%","at":"@1","number":1,"codes":10,"opens_at":"@20","expires_at":"@60","max_redemptions":1}
{"type":"reminder.set","campaign":"%","at":"@1","r":1,"customer_id":"ann","kind":"opens","before":"5m","due_at":"@15"}
{"type":"campaign.updated","campaign":"%","at":"@2","number":1,"codes":10,"opens_at":"@10","expires_at":"@70","max_redemptions":1}
{"type":"reminders.due","campaign":"%","at":"@5","kind":"opens","due_at":"@5","from_r":1,"through_r":1,"fired":1,"dropped":0}
{"type":"coupon.claimed","campaign":"%","at":"@11","n":1,"code":"%-1","customer_id":"ann","attributes":{"shop":"bonn"}}
{"type":"coupon.claimed","campaign":"%","at":"@11","n":2,"code":"%-2","customer_id":"bob"}
{"type":"coupon.claimed","campaign":"%","at":"@11","n":3,"code":"%-3","customer_id":"cid","expires_at":"@30"}
{"type":"commands.refused","campaign":"%","at":"@11","counts":{"sold_out":3}}
{"type":"reminder.set","campaign":"%","at":"@12","r":2,"customer_id":"ann","kind":"expires","before":"10m","due_at":"@60","n":1}
{"type":"reminder.set","campaign":"%","at":"@12","r":3,"customer_id":"bob","kind":"expires","before":"10m","due_at":"@60","n":2}
{"type":"coupon.redeemed","campaign":"%","at":"@13","n":1,"code":"%-1","order_id":"o1","redeemed_count":1}
{"type":"coupon.rolled_back","campaign":"%","at":"@14","n":1,"code":"%-1","order_id":"o1","status":"claimed"}
{"type":"campaign.updated","campaign":"%","at":"@15","number":1,"codes":10,"opens_at":"@10","expires_at":"@70","max_redemptions":2}
{"type":"coupon.redeemed","campaign":"%","at":"@16","n":1,"code":"%-1","order_id":"o2","redeemed_count":1} + {"type":"coupon.redeemed","campaign":"%","at":"@16","n":1,"code":"%-1","order_id":"o3","redeemed_count":2}
{"type":"coupon.rolled_back","campaign":"%","at":"@17","n":1,"code":"%-1","order_id":"o2","redeemed_count":1,"status":"claimed"}
{"type":"coupon.extended","campaign":"%","at":"@18","n":2,"code":"%-2","expires_at":"@90","status":"claimed"}
{"type":"reminder.cancelled","campaign":"%","at":"@19","r":3}
{"type":"coupon.voided","campaign":"%","at":"@20","n":2,"code":"%-2","reason":"because","status":"voided"}
{"type":"coupons.expired","campaign":"%","at":"@40","through":"@40","count":1}`

// A batch costs the same however much else is in the tables: no statement reads more of them than it names, neither
// those planned while the tables were small nor later ones.
func TestBatchesReadOnlyTheirRows(t *testing.T) {
	pool := open(t)
	conn, err := pool.Acquire(context.Background())
	streamtest.Must(t, err)
	defer conn.Release()
	read := func() int { return entriesRead(t, conn) }
	// A step reads some dozen entries; if it reads all campaigns, or all of anything they have, it is above the limit.
	const campaigns, limit = 300, 100
	r := new(reader)
	story := func(name string) {
		for i, m := range script(strings.ReplaceAll(everything, "%", name)) {
			before := read()
			if parked := commit(t, conn, r.batch([]message{m})); len(parked) > 0 {
				t.Fatalf("parked %+v", parked)
			}
			if n := read() - before; n > limit {
				t.Errorf("%s: step %d read %d rows", name, i+1, n)
			}
		}
	}
	// PostgreSQL would keep plans from the sixth execution on, with one row in a table or few.
	for i := range 8 {
		story(fmt.Sprint("first", i))
		if i == 0 {
			analyze(t, conn)
		}
	}
	// Many at once, with as many coupons, tasks, totals, reminders and redemptions.
	for _, m := range script(everything) {
		var lines []byte
		for _, line := range bytes.SplitAfter(bytes.TrimSuffix(m.lines, []byte("\n")), []byte("\n")) {
			for i := range campaigns {
				lines = append(lines, bytes.ReplaceAll(bytes.TrimSuffix(line, []byte("\n")), []byte("%"), fmt.Append(nil, "many", i))...)
				lines = append(lines, '\n')
			}
		}
		if parked := commit(t, conn, r.batch([]message{{at: m.at, lines: lines}})); len(parked) > 0 {
			t.Fatalf("parked %+v", parked[0])
		}
	}
	story("last")
	analyze(t, conn)
	story("analyzed")
	streamtest.Equal(t, "campaigns", rows(t, pool, "SELECT count(*) FROM scrip.campaign"), fmt.Sprint(campaigns+10))
}

// entriesRead returns how many entries of tables and indexes a connection, alone in its database, has read so far.
func entriesRead(t *testing.T, conn *pgxpool.Conn) (n int) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), "SELECT pg_stat_force_next_flush()"); err != nil {
		t.Fatal(err)
	}
	err := conn.QueryRow(context.Background(), `SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = 'scrip_1')
		+ (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = 'scrip_1')`).Scan(&n)
	streamtest.Must(t, err)
	return n
}

// All reminders of an instant fire by one statement, and none of them moves in an index.
func TestFiringChangesNoIndex(t *testing.T) {
	pool := open(t)
	conn, err := pool.Acquire(context.Background())
	streamtest.Must(t, err)
	defer conn.Release()
	r := new(reader)
	const reminders = 3000
	lines := []byte(stamped(`{"type":"campaign.created","campaign":"c","at":"@1","number":1,"codes":10,"opens_at":"@20","max_redemptions":1}` + "\n"))
	for n := range reminders {
		lines = append(lines, stamped(fmt.Sprintf(`{"type":"reminder.set","campaign":"c","at":"@1","r":%d,"customer_id":"customer-%d","kind":"opens","before":"5m","due_at":"@15"}`, n+1, n))...)
		lines = append(lines, '\n')
	}
	commit(t, conn, r.batch([]message{{at: minute(1), lines: lines}}))
	commit(t, conn, r.batch(script(fmt.Sprintf(`{"type":"reminders.due","campaign":"c","at":"@15","kind":"opens","due_at":"@15","from_r":1,"through_r":%d,"fired":%d,"dropped":0}`, reminders, reminders))))
	if got, want := rows(t, pool, "SELECT state, count(*) FROM scrip.reminder GROUP BY 1"), fmt.Sprint("fired ", reminders); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := conn.Exec(context.Background(), "SELECT pg_stat_force_next_flush()"); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, pool, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'reminder'"); got != fmt.Sprint(reminders, " ", reminders) {
		t.Errorf("updates, and whether they were within their pages: %s", got)
	}
}

// Statements about segments have their numbers, and there is no end of those: no text may be kept once it was used.
func TestStatementsAreNotKept(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const segments = 10_000
	before, size := heap(), 0
	for n := range segments {
		size += len(In("scrip_1", fmt.Sprintf("CREATE TABLE scrip.%s (%s)", SegmentTable(int32(-n)), strings.Repeat(" ", 1000))))
	}
	if kept := (int(heap()) - int(before)) / segments; kept > 100 {
		t.Errorf("of %d bytes for each segment, %d are kept", size/segments, kept)
	}
}

func analyze(t *testing.T, conn *pgxpool.Conn) {
	t.Helper()
	_, err := conn.Exec(context.Background(), "VACUUM ANALYZE scrip_1.campaign, scrip_1.coupon_claim, scrip_1.coupon_state, scrip_1.redemption_row, scrip_1.expiry_own, scrip_1.reminder, scrip_1.day_stats")
	streamtest.Must(t, err)
}
