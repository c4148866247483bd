package readmodel

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/service"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// events is the log of some coupons and their customers, @n is a minute. A message per line; " + " joins lines.
const events = `
{"type":"campaign.created","campaign":"c","at":"@1","number":1,"codes":9,"expires_at":"@60","max_redemptions":1}
{"type":"campaign.created","campaign":"d","at":"@1","number":2,"codes":9,"opens_at":"@30","max_redemptions":1}
{"type":"coupon.claimed","campaign":"c","at":"@2","id":"i1","n":1,"code":"AAAA","customer_id":"ann","attributes":{"shop":"bonn"}} + {"type":"coupon.claimed","campaign":"c","at":"@2","id":"i2","n":2,"code":"BBBB","customer_id":"bob"}
{"type":"reminder.set","campaign":"c","at":"@3","id":"i3","r":1,"customer_id":"ann","kind":"expires","before":"10m","due_at":"@50","n":1}
{"type":"reminder.set","campaign":"d","at":"@4","id":"i4","r":1,"customer_id":"ann","kind":"opens","before":"10m","due_at":"@20"}
{"type":"coupon.redeemed","campaign":"c","at":"@5","id":"i5","n":1,"code":"AAAA","order_id":"o1","redeemed_count":1} + {"type":"reminder.cancelled","campaign":"c","at":"@5","id":"i5","r":1}
{"type":"coupon.rolled_back","campaign":"c","at":"@6","id":"i6","n":1,"code":"AAAA","order_id":"o1","redeemed_count":0,"status":"claimed"}
{"type":"coupon.voided","campaign":"c","at":"@7","id":"i7","n":2,"code":"BBBB","reason":"fraud","status":"voided"}
{"type":"coupon.claimed","campaign":"c","at":"@8","id":"i8","n":3,"code":"CCCC","customer_id":"cem","expires_at":"@15"}
{"type":"coupon.claimed","campaign":"c","at":"@9","id":"i9","n":4,"code":"DDDD","customer_id":"dee"} + {"type":"coupon.redeemed","campaign":"c","at":"@9","id":"ia","n":4,"code":"DDDD","order_id":"o4","redeemed_count":1} + {"type":"coupon.claimed","campaign":"c","at":"@9","id":"ie","n":5,"replaces":2,"code":"EEEE","customer_id":"bob","expires_at":"@99"}
{"type":"coupons.expired","campaign":"c","at":"@15","through":"@15","count":1}
{"type":"coupon.extended","campaign":"c","at":"@16","id":"ib","n":3,"code":"CCCC","expires_at":"@25","status":"claimed"}
{"type":"reminders.due","campaign":"d","at":"@20","kind":"opens","due_at":"@20","from_r":1,"through_r":1,"fired":1,"dropped":0}
{"type":"coupon.extended","campaign":"c","at":"@21","id":"ic","n":3,"code":"CCCC","expires_at":"@35","status":"claimed"}
{"type":"coupons.expired","campaign":"c","at":"@40","through":"@40","count":1}
{"type":"coupons.expired","campaign":"c","at":"@61","through":"@61","count":1}
{"type":"campaign.updated","campaign":"c","at":"@62","number":1,"codes":9,"expires_at":"@90","max_redemptions":1}
{"type":"coupon.extended","campaign":"c","at":"@63","id":"id","n":1,"code":"AAAA","expires_at":"@70","status":"claimed"}
{"type":"coupons.expired","campaign":"c","at":"@71","through":"@71","count":1}
{"type":"coupons.expired","campaign":"c","at":"@91","through":"@91","count":0}
{"type":"campaign.created","campaign":"p","at":"@91","number":3,"codes":9,"max_redemptions":1} + {"type":"coupons.allotted","campaign":"p","at":"@91","id":"p1","from_n":1,"through_n":3,"batch":"flyer","expires_at":"@93"}
{"type":"coupon.redeemed","campaign":"p","at":"@92","id":"p2","n":2,"code":"PPPP","order_id":"o1","redeemed_count":1,"customer_id":"zoe"} + {"type":"coupons.expired","campaign":"p","at":"@93","through":"@93","count":2}
{"type":"campaign.created","campaign":"m","at":"@94","number":4,"codes":9,"max_redemptions":2} + {"type":"coupon.claimed","campaign":"m","at":"@94","n":1,"code":"M1","customer_id":"mia","expires_at":"@96"} + {"type":"coupon.claimed","campaign":"m","at":"@94","n":2,"code":"M2","customer_id":"mia","expires_at":"@96"} + {"type":"coupon.claimed","campaign":"m","at":"@94","n":3,"code":"M3","customer_id":"mia","expires_at":"@96"}
{"type":"coupon.redeemed","campaign":"m","at":"@95","n":1,"code":"M1","order_id":"a","redeemed_count":1} + {"type":"coupon.redeemed","campaign":"m","at":"@95","n":1,"code":"M1","order_id":"b","redeemed_count":2}
{"type":"coupon.redeemed","campaign":"m","at":"@95","n":2,"code":"M2","order_id":"a","redeemed_count":1} + {"type":"coupon.redeemed","campaign":"m","at":"@95","n":2,"code":"M2","order_id":"b","redeemed_count":2} + {"type":"coupon.rolled_back","campaign":"m","at":"@95","n":2,"code":"M2","order_id":"a","redeemed_count":1,"status":"claimed"}
{"type":"coupon.redeemed","campaign":"m","at":"@95","n":3,"code":"M3","order_id":"a","redeemed_count":1} + {"type":"coupons.expired","campaign":"m","at":"@96","through":"@96","count":2} + {"type":"coupon.rolled_back","campaign":"m","at":"@96","n":1,"code":"M1","order_id":"a","redeemed_count":1,"status":"claimed"}`

// fakeLog are the messages of events.
type fakeLog map[uint64][]byte

func (l fakeLog) get(_ context.Context, lane int, sequences []uint64, each func(uint64, eventlog.Raw, error)) {
	for _, sequence := range sequences {
		if data := l[sequence]; lane == 0 && data != nil {
			each(sequence, eventlog.Raw{Data: data, Sequence: sequence}, nil)
		} else {
			each(sequence, eventlog.Raw{}, eventlog.ErrLostTail)
		}
	}
}

func store(t *testing.T) (*History, fakeLog) {
	t.Helper()
	ctx := t.Context()
	pool := database(t)
	batch := &tables.Batch{Schema: "scrip_1", To: wire.At(minute(96))}
	log := fakeLog{}
	text := regexp.MustCompile(`@\d+`).ReplaceAllStringFunc(strings.TrimSpace(events), func(m string) string {
		n, _ := strconv.Atoi(m[1:])
		return minute(n).Format(time.RFC3339)
	})
	for i, message := range strings.Split(text, "\n") {
		sequence := uint64(i) + 1
		log[sequence] = []byte(strings.ReplaceAll(message, " + ", "\n") + "\n")
		for n, line := range eventlog.Lines(log[sequence]) {
			var l tables.Line
			l.Read(sequence, uint32(n)+1, line, batch.To)
			batch.Lines = append(batch.Lines, l)
		}
	}
	tx, err := tables.Begin(ctx, pool)
	streamtest.Must(t, err)
	if parked, err := tables.Apply(ctx, tx, batch); err != nil || len(parked) > 0 {
		t.Fatal(parked, err)
	}
	streamtest.Must(t, tx.Commit(ctx))
	return NewHistory(pool, log.get), log
}

func minuteOf(t time.Time) int { return int(t.Sub(minute(0)).Minutes()) }

// lines shows entries, one per line.
func lines(list []Entry) string {
	var out strings.Builder
	for _, e := range list {
		fmt.Fprintf(&out, "%d %s %d/%d/%d %s", minuteOf(e.At), e.What, e.Lane, e.Sequence, e.Line, e.Campaign)
		if e.N != 0 {
			fmt.Fprintf(&out, "#%d", e.N)
		}
		for _, s := range []string{e.ID, e.OrderID, e.Reason, e.Kind, string(e.Attributes)} {
			if s != "" {
				out.WriteString(" " + s)
			}
		}
		if e.Replaces != 0 {
			fmt.Fprintf(&out, " replaces %d", e.Replaces)
		}
		if e.ExpiresAt != nil {
			fmt.Fprintf(&out, " expires %d", minuteOf(*e.ExpiresAt))
		}
		if e.DueAt != nil {
			fmt.Fprintf(&out, " due %d", minuteOf(*e.DueAt))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

const (
	annsCoupon = `71 expired 0/19/1 c#1 expires 70
63 extended 0/18/1 c#1 id expires 70
61 expired 0/16/1 c#1 expires 60
6 rolled_back 0/7/1 c#1 i6 o1
5 reminder_cancelled 0/6/2 c#1 i5 expires due 50
5 redeemed 0/6/1 c#1 i5 o1
3 reminder_set 0/4/1 c#1 i3 expires due 50
2 claimed 0/3/1 c#1 i1 {"shop":"bonn"}
`
	anns = `71 expired 0/19/1 c#1 expires 70
63 extended 0/18/1 c#1 id expires 70
61 expired 0/16/1 c#1 expires 60
20 reminder_fired 0/13/1 d opens due 20
6 rolled_back 0/7/1 c#1 i6 o1
5 reminder_cancelled 0/6/2 c#1 i5 expires due 50
5 redeemed 0/6/1 c#1 i5 o1
4 reminder_set 0/5/1 d i4 opens due 20
3 reminder_set 0/4/1 c#1 i3 expires due 50
2 claimed 0/3/1 c#1 i1 {"shop":"bonn"}
`
)

func TestCoupon(t *testing.T) {
	s, _ := store(t)
	for n, want := range map[uint32]string{
		1: annsCoupon,
		// Void before the campaign ended.
		2: "7 voided 0/8/1 c#2 i7 fraud\n2 claimed 0/3/2 c#2 i2\n",
		// Expired, lived again, extended once more in time, expired.
		3: "40 expired 0/15/1 c#3 expires 35\n21 extended 0/14/1 c#3 ic expires 35\n16 extended 0/12/1 c#3 ib expires 25\n" +
			"15 expired 0/11/1 c#3 expires 15\n8 claimed 0/9/1 c#3 i8\n",
		// Spent before the campaign ended.
		4: "9 redeemed 0/10/2 c#4 ia o4\n9 claimed 0/10/1 c#4 i9\n",
		5: "9 claimed 0/10/3 c#5 ie replaces 2\n",
		6: "",
	} {
		page, err := s.read(t.Context(), couponSQL, 0, "", "c", int64(n))
		if err != nil || page.note != "" || page.more {
			t.Fatal(page, err)
		}
		if got := lines(page.entries); got != want {
			t.Errorf("coupon %d:\n%swant\n%s", n, got, want)
		}
	}
}

// A printed coupon has its allotment as its beginning, also before anything happened to it, and then its customer's history.
func TestPrintedCoupons(t *testing.T) {
	s, _ := store(t)
	const redeemed = "92 redeemed 0/22/1 p#2 p2 o1\n91 allotted 0/21/2 p#2 p1\n"
	for _, c := range []struct {
		sql  string
		of   string
		more []any
		want string
	}{
		{couponSQL, "p", []any{int64(2)}, redeemed},
		{couponSQL, "p", []any{int64(3)}, "93 expired 0/22/2 p#3 expires 93\n91 allotted 0/21/2 p#3 p1\n"},
		{couponSQL, "p", []any{int64(4)}, ""},
		{customerSQL, "zoe", nil, redeemed},
	} {
		page, err := s.read(t.Context(), c.sql, 0, "", c.of, c.more...)
		if err != nil || page.note != "" || lines(page.entries) != c.want {
			t.Errorf("%s %v: %v %s\n%swant\n%s", c.of, c.more, err, page.note, lines(page.entries), c.want)
		}
	}
}

// A coupon expires unless it is used up by then: whatever is redeemed or rolled back before and after.
func TestCouponsOfSeveralUses(t *testing.T) {
	s, _ := store(t)
	for n, want := range []string{
		"96 rolled_back 0/26/3 m#1 a\n95 redeemed 0/24/2 m#1 b\n95 redeemed 0/24/1 m#1 a\n94 claimed 0/23/2 m#1\n",
		"96 expired 0/26/2 m#2 expires 96\n95 rolled_back 0/25/3 m#2 a\n95 redeemed 0/25/2 m#2 b\n95 redeemed 0/25/1 m#2 a\n94 claimed 0/23/3 m#2\n",
		"96 expired 0/26/2 m#3 expires 96\n95 redeemed 0/26/1 m#3 a\n94 claimed 0/23/4 m#3\n",
	} {
		page, err := s.read(t.Context(), couponSQL, 0, "", "m", n+1)
		if got := lines(page.entries); err != nil || page.note != "" || got != want {
			t.Errorf("coupon %d: %v %s\n%swant\n%s", n+1, err, page.note, got, want)
		}
	}
}

func TestCustomerInPages(t *testing.T) {
	s, _ := store(t)
	for _, limit := range []int{0, 1, 3, 10, MostEntries} {
		var all []Entry
		before, pages := "", 0
		for {
			page, err := s.read(t.Context(), customerSQL, limit, before, "ann")
			streamtest.Must(t, err)
			if limit > 0 && len(page.entries) > limit || len(page.entries) == 0 {
				t.Errorf("a page of %d has %d entries", limit, len(page.entries))
			}
			all = append(all, page.entries...)
			if pages++; !page.more || pages > 20 {
				break
			}
			before = all[len(all)-1].cursor()
		}
		if got := lines(all); got != anns {
			t.Errorf("pages of %d:\n%swant\n%s", limit, got, anns)
		}
	}
}

// A page notes what the log does not have; it has all that is in the tables.
func TestLogWithout(t *testing.T) {
	s, log := store(t)
	whole := log[3]
	for name, c := range map[string]struct {
		log  Messages
		with []byte
		note string
	}{
		"no log":           {nil, whole, "no connection to the log"},
		"message gone":     {log.get, nil, "ends before this position"},
		"line gone":        {log.get, []byte("\n\n"), "another event"},
		"another event":    {log.get, []byte(`{"type":"coupon.claimed","campaign":"c","at":"2026-01-01T00:02:00Z","n":9}`), "scrip verify"},
		"an unknown event": {log.get, []byte(`{"type":"coupon.eaten"}`), "not known to this version"},
	} {
		log[3] = c.with
		page, err := NewHistory(s.db, c.log).read(t.Context(), couponSQL, 0, "", "c", 1)
		if err != nil || len(page.entries) != 8 || page.entries[7].ID != "" || page.entries[7].Sequence != 3 || !strings.Contains(page.note, c.note) {
			t.Errorf("%s: %+v, %v", name, page, err)
		}
	}
}

func TestServiceReplies(t *testing.T) {
	s, _ := store(t)
	var page service.HistoryPage
	for _, want := range []string{
		`{"at":"2026-01-01T00:09:00Z","what":"claimed","lane":0,"sequence":10,"line":3,"id":"ie","campaign":"c","n":5,"replaces":2,"code":"EEEE","customer_id":"bob"}`,
		`{"at":"2026-01-01T00:07:00Z","what":"voided","lane":0,"sequence":8,"line":1,"id":"i7","campaign":"c","n":2,"code":"BBBB","customer_id":"bob","reason":"fraud"}`,
	} {
		var before string
		if len(page.Entries) > 0 {
			before = page.Entries[0].Before
		}
		var err error
		if page, err = s.Customer(t.Context(), "bob", 1, before); err != nil || !page.More || len(page.Entries) != 1 {
			t.Fatal(page, err)
		}
		if got := string(page.Entries[0].JSON); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	page, err := s.Coupon(t.Context(), "c", 2, 1, page.Entries[0].Before)
	if err != nil || page.More || len(page.Entries) != 1 {
		t.Fatal(page, err)
	}
	var e Entry
	if err := json.Unmarshal(page.Entries[0].JSON, &e); err != nil || e.What != "claimed" || e.ID != "i2" {
		t.Errorf("the older one: %+v, %v", e, err)
	}
}

func TestBadInput(t *testing.T) {
	s, _ := store(t)
	for _, limit := range []int{-1, MostEntries + 1} {
		if _, err := s.read(t.Context(), customerSQL, limit, "", "ann"); err == nil || !strings.Contains(err.Error(), "give 1 to 1000") {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	for _, before := range []string{"yesterday", "1.2.3.4", "1.2.x.4.5", "1.2.-3.4.5", "99999999999999999999.1.1.1.1", "9000000000000000000.0.0.0.0", "1.2.3.4.5.6"} {
		if _, err := s.read(t.Context(), customerSQL, 1, before, "ann"); err == nil || !strings.Contains(err.Error(), "no place in a history") {
			t.Errorf("before %q: %v", before, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Coupon(ctx, "c", 1, 1, ""); err == nil {
		t.Error("a cancelled read gave no error")
	}
}

// TestManyCoupons: a customer with 5,000 coupons among those of others, by plans that were made while the tables were empty, without
// statistics and with. No table is read from end to end, and pages together give each entry once.
func TestManyCoupons(t *testing.T) {
	pool := database(t)
	ctx := t.Context()
	plans := func(conn *pgxpool.Conn) {
		t.Helper()
		plan(t, conn, customerSQL, "agency", 101, "infinity", 0, 0, 0, 0)
		plan(t, conn, couponSQL, "c1", 101, "infinity", 0, 0, 0, 0, 7)
		plan(t, conn, oneSQL, "c1", 7)
	}
	early := session(t, pool)
	plans(early)
	for _, sql := range []string{
		`INSERT INTO scrip_tables.campaign (campaign, status, claimed, redeemed, voided, opens_at, created_at, lane, number, per_customer,
			max_redemptions, generated_codes, imported_codes, inheriting_live, inheriting_redeemed, expired_through)
			SELECT 'c' || i, 'active', 1000, 0, 0, 'epoch', 'epoch', i % 4, i, 0, 1, 1000, 0, 0, 0, '2026-02-01Z' FROM generate_series(0, 39) i`,
		`INSERT INTO scrip_1.coupon_claim (n, claimed_at, claimed_place, segment, campaign, code, customer_id)
			SELECT i / 40 + 1, '2026-01-01Z'::timestamptz + i * interval '1 ms', i::bigint * 1048576 + 1, 0, 'c' || i % 40, 'code-' || i,
				CASE WHEN i % 8 = 0 THEN 'agency' ELSE 'customer-' || i END FROM generate_series(0, 39999) i`,
		`INSERT INTO scrip_tables.redemption_row (n, redeemed_at, sequence, line, campaign, code, customer_id, order_id)
			SELECT n, claimed_at + interval '1 hour', claimed_place / 1048576 + 40000, 1, campaign, code, customer_id, 'o' || n FROM scrip_tables.coupon_row WHERE n % 7 = 0`,
		`INSERT INTO scrip_tables.coupon_event (n, place, at, expires_at, campaign, what)
			SELECT n, claimed_place + 50000 * 1048576::bigint, claimed_at + interval '2 hours', '2026-01-10Z', campaign, 'extended' FROM scrip_tables.coupon_row WHERE n % 11 = 0`,
		`INSERT INTO scrip_1.coupon_state (campaign, n, redeemed_count, expires_at) SELECT campaign, n, 0, '2026-01-10Z' FROM scrip_tables.coupon_row WHERE n % 11 = 0`,
		`INSERT INTO scrip_tables.expiry_event (through, at, place, campaign)
			SELECT '2026-01-01Z'::timestamptz + h * interval '12 hours', '2026-01-01Z'::timestamptz + h * interval '12 hours', (200000 + h) * 1048576::bigint, 'c' || i
			FROM generate_series(0, 39) i, generate_series(1, 60) h`,
		`INSERT INTO scrip_1.reminder (r, n, before_us, set_at, set_place, campaign, customer_id, kind, state)
			SELECT n, n, 1, claimed_at, claimed_place + 1, campaign, customer_id, 'expires', 'pending' FROM scrip_tables.coupon_row WHERE n % 13 = 0`,
	} {
		exec(t, pool, sql)
	}
	s := NewHistory(pool, nil)
	plans(early)
	plans(session(t, pool))
	exec(t, pool, "ANALYZE")
	plans(early)
	var want, last int
	if err := pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE true) + count(*) FILTER (WHERE n % 7 = 0) + count(*) FILTER (WHERE n % 11 = 0)
		+ count(*) FILTER (WHERE n % 11 = 0 AND n % 7 <> 0) + count(*) FILTER (WHERE n % 13 = 0) FROM scrip_tables.coupon_row WHERE customer_id = 'agency'`).Scan(&want); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var newest time.Time
	for before, pages := "", 0; pages < 4; pages++ { // the newest 4,000
		page, err := s.read(ctx, customerSQL, MostEntries, before, "agency")
		if err != nil || len(page.entries) != MostEntries || !page.more {
			t.Fatalf("page %d: %d entries, %v", pages, len(page.entries), err)
		}
		for _, e := range page.entries {
			seen[fmt.Sprint(e.What, e.Campaign, e.N)] = true
			if !newest.IsZero() && e.At.After(newest) {
				t.Fatalf("%s after %s", e.At, newest)
			}
			newest = e.At
		}
		before, last = page.entries[MostEntries-1].cursor(), last+len(page.entries)
	}
	if len(seen) != last {
		t.Errorf("%d entries for %d events", last, len(seen))
	}
	var all int
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM ("+strings.Replace(customerSQL, "LIMIT $2", "LIMIT $2::bigint", 1)+") q", "agency", 1_000_000, "infinity", 0, 0, 0, 0).Scan(&all); err != nil || all != want {
		t.Errorf("%d entries in all, want %d (%v)", all, want, err)
	}
}

// plan looks at how PostgreSQL answers: each table by an index.
func plan(t *testing.T, conn *pgxpool.Conn, sql string, args ...any) {
	t.Helper()
	tx, end := begin(t, conn)
	defer end()
	execute, with := projtest.Execute(t, tx, sql, args...)
	rows, err := tx.Query(t.Context(), "EXPLAIN (COSTS off) "+execute, with...)
	streamtest.Must(t, err)
	var text []string
	for rows.Next() {
		var line string
		streamtest.Must(t, rows.Scan(&line))
		text = append(text, line)
	}
	streamtest.Must(t, rows.Err())
	for i, line := range text {
		// An index that is read without a condition is read from end to end as well.
		whole := strings.Contains(line, "Index Scan") && !strings.Contains(line, "Bitmap Index") &&
			(i+1 == len(text) || !strings.Contains(text[i+1], "Index Cond"))
		// Of segments there are some dozen. Of removals there were none or few when the plan was made, and PostgreSQL drops it when it
		// has counted fifty more.
		few := strings.Contains(line, "on segment") || strings.Contains(line, "on removal")
		if (strings.Contains(line, "Seq Scan") || whole) && !few {
			t.Errorf("reads a table from end to end (%s):\n%s", strings.TrimSpace(line), strings.Join(text, "\n"))
		}
	}
	if !slices.ContainsFunc(text, func(l string) bool { return strings.Contains(l, "coupon_claim_0_") }) {
		t.Errorf("does not find coupons by an index:\n%s", strings.Join(text, "\n"))
	}
}

// TestEveryChangeIsShown: what the table of events names as a change has a place in the statements: by its own name,
// from coupon_event, or as the end of a reminder.
func TestEveryChangeIsShown(t *testing.T) {
	for e := range wire.Events() {
		spec := e.Spec()
		if spec.Change == "-" {
			continue
		}
		_, reminder := strings.CutPrefix(spec.Change, "reminder_")
		if !strings.Contains(historySQL, "'"+spec.Change+"'") && !e.ChangesCoupon() && !reminder {
			t.Errorf("%s is in no history", e)
		}
		entry := Entry{What: spec.Change, Campaign: "c", N: 3, r: 4}
		if ev := (wire.Event{Type: e, Campaign: "c", N: 3, R: 4, FromR: 4, ThroughR: 4}); !entry.matches(&ev) {
			t.Errorf("an entry does not recognise its %s", e)
		}
		if ev := (wire.Event{Type: e, Campaign: "d", N: 3, R: 4, FromR: 4, ThroughR: 4}); entry.matches(&ev) {
			t.Errorf("an entry takes another campaign's %s for its own", e)
		}
		if ev := (wire.Event{Type: e, Campaign: "c", N: 5, R: 6, FromR: 5, ThroughR: 6}); spec.About != wire.AboutCampaign && entry.matches(&ev) ||
			e == wire.RemindersDue && entry.matches(&ev) {
			t.Errorf("an entry takes the %s of another coupon and reminder for its own", e)
		}
	}
}
