package history

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/projections/pgtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// told is a life of a coupon and its customer, @n the minute of it.
const told = `
{"type":"campaign.created","campaign":"c","at":"@1","number":1,"codes":9,"expires_at":"@60","max_redemptions":1}
{"type":"campaign.created","campaign":"d","at":"@1","number":2,"codes":9,"opens_at":"@30","max_redemptions":1}
{"type":"coupon.claimed","campaign":"c","at":"@2","n":1,"code":"AAAA","customer_id":"ann","attributes":{"shop":"bonn"}}
{"type":"coupon.claimed","campaign":"c","at":"@2","n":2,"code":"BBBB","customer_id":"bob"}
{"type":"reminder.set","campaign":"c","at":"@3","r":1,"customer_id":"ann","kind":"expires","before":"10m0s","due_at":"@50","n":1}
{"type":"reminder.set","campaign":"d","at":"@4","r":1,"customer_id":"ann","kind":"opens","before":"10m0s","due_at":"@20"}
{"type":"coupon.redeemed","campaign":"c","at":"@5","n":1,"code":"AAAA","order_id":"o1","redeemed_count":1}
{"type":"reminder.cancelled","campaign":"c","at":"@5","r":1}
{"type":"coupon.rolled_back","campaign":"c","at":"@6","n":1,"code":"AAAA","order_id":"o1","redeemed_count":0,"status":"claimed"}
{"type":"reminders.due","campaign":"d","at":"@20","kind":"opens","due_at":"@20","from_r":1,"through_r":1,"fired":1,"dropped":0}
{"type":"coupon.voided","campaign":"c","at":"@7","n":2,"code":"BBBB","reason":"fraud","status":"voided"}
{"type":"coupons.expired","campaign":"c","at":"@61","through":"@61","count":1}`

func store(t *testing.T) *Store {
	t.Helper()
	ctx := t.Context()
	pool, err := pgxpool.New(context.Background(), pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := schema.Migrate(ctx, pool, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	batch := &tables.Batch{To: domain.At(minute(61))}
	for i, line := range strings.Split(strings.TrimSpace(told), "\n") {
		for m := 99; m > 0; m-- {
			line = strings.ReplaceAll(line, fmt.Sprintf(`"@%d"`, m), `"`+minute(m).Format(time.RFC3339)+`"`)
		}
		var l tables.Line
		l.Read(uint64(i)+1, 1, []byte(line), batch.To)
		batch.Lines = append(batch.Lines, l)
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if parked, err := tables.Apply(ctx, tx, batch); err != nil || len(parked) > 0 {
		t.Fatal(parked, err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	return New(pool)
}

func minute(n int) time.Time { return time.Date(2026, 1, 1, 0, n, 0, 0, time.UTC) }

// lines shows entries, one per line.
func lines(list []Entry) string {
	var out strings.Builder
	for _, e := range list {
		fmt.Fprintf(&out, "%d %s %s %d %s%s%s%s\n", int(e.At.Sub(minute(0)).Minutes()), e.What, e.Campaign, e.N, e.OrderID, e.Reason, e.Kind, e.Attributes)
	}
	return out.String()
}

const (
	annsCoupon = `2 claimed c 1 {"shop":"bonn"}
3 reminder_set c 1 expires
5 redeemed c 1 o1
5 reminder_cancelled c 1 expires
6 rolled_back c 1 o1
60 expired c 1 
`
	anns = `2 claimed c 1 {"shop":"bonn"}
3 reminder_set c 1 expires
4 reminder_set d 0 opens
5 redeemed c 1 o1
5 reminder_cancelled c 1 expires
6 rolled_back c 1 o1
20 reminder_fired d 0 opens
60 expired c 1 
`
)

func TestCoupon(t *testing.T) {
	s := store(t)
	for n, want := range map[uint32]string{1: annsCoupon, 2: "2 claimed c 2 \n7 voided c 2 fraud\n", 3: ""} {
		list, err := s.CouponEntries(t.Context(), "c", n)
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(list); got != want {
			t.Errorf("coupon %d:\n%swant\n%s", n, got, want)
		}
	}
}

func TestCustomerInPages(t *testing.T) {
	s := store(t)
	for _, limit := range []int{0, 1, 3, 8, MostEntries} {
		var all []Entry
		before, pages := "", 0
		for {
			list, earlier, err := s.CustomerEntries(t.Context(), "ann", limit, before)
			if err != nil {
				t.Fatal(err)
			}
			all = append(list, all...)
			if pages++; earlier == "" || pages > 20 {
				break
			}
			before = earlier
		}
		if got := lines(all); got != anns {
			t.Errorf("pages of %d:\n%swant\n%s", limit, got, anns)
		}
	}
}

func TestJSON(t *testing.T) {
	s := store(t)
	history, err := s.Customer(t.Context(), "bob")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(history)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"at":"2026-01-01T00:02:00Z","what":"claimed","campaign":"c","n":2,"code":"BBBB","customer_id":"bob"},` +
		`{"at":"2026-01-01T00:07:00Z","what":"voided","campaign":"c","n":2,"code":"BBBB","customer_id":"bob","reason":"fraud"}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBadInput(t *testing.T) {
	s := store(t)
	for _, c := range []struct {
		limit  int
		before string
	}{{-1, ""}, {MostEntries + 1, ""}, {1, "yesterday"}, {1, "1.2.x.4.c"}} {
		if _, _, err := s.CustomerEntries(t.Context(), "ann", c.limit, c.before); err == nil {
			t.Errorf("limit %d, before %q: accepted", c.limit, c.before)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Coupon(ctx, "c", 1); err == nil {
		t.Error("a cancelled read gave no error")
	}
}
