package readmodel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// recorder has the statements of a pool, with their arguments.
type recorder struct{ all []pgx.TraceQueryStartData }

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.all = append(r.all, data)
	return ctx
}

func (r *recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// reader reads parts of lists.
type reader struct {
	coupons *Coupons
	history *History
	letters *Letters
}

func (r *reader) couponsOf(q ops.ListCoupons) part {
	return func(ctx context.Context, p ops.Paging) (int, string, error) {
		q.Paging = p
		page, err := r.coupons.List(ctx, q, nil)
		return len(page.Items), page.Next, err
	}
}

func (r *reader) reminders(q ops.ListReminders) part {
	return func(ctx context.Context, p ops.Paging) (int, string, error) {
		q.Paging = p
		page, err := r.history.Reminders(ctx, q)
		return len(page.Items), page.Next, err
	}
}

func (r *reader) lettersOf(f LetterFilter) part {
	return func(ctx context.Context, p ops.Paging) (int, string, error) {
		f.Limit, f.Before = p.Limit, p.After
		list, older, _, err := r.letters.List(ctx, f)
		return len(list), older, err
	}
}

func (r *reader) groups(ctx context.Context, p ops.Paging) (n int, next string, err error) {
	page, err := r.letters.Groups(ctx, p.After)
	for i := range page.Items {
		n += int(page.Items[i].Count)
	}
	return n, page.Next, err
}

func (r *reader) changes(ctx context.Context, p ops.Paging) (int, string, error) {
	page, err := r.history.Changes(ctx, ops.ListChangesOf{Campaign: "a", Paging: p})
	return len(page.Items), page.Next, err
}

// nothing is a log that has no message.
func nothing(_ context.Context, _ int, sequences []uint64, each func(uint64, eventlog.Raw, error)) {
	for _, sequence := range sequences {
		each(sequence, eventlog.Raw{}, eventlog.ErrTrimmed)
	}
}

// part reads a part of a list, and returns how many entries it has and where the next one begins.
type part func(context.Context, ops.Paging) (n int, next string, err error)

const (
	rows  = 4000 // of each table
	every = 1000 // so many rows one is of a rare kind
)

// rare are the lists of package ops that read tables, by their filters, with how many entries they have.
func rare(r *reader) map[string]struct {
	part
	want int
} {
	lane := 0
	type list = struct {
		part
		want int
	}
	return map[string]list{
		"coupon.list campaign":              {r.couponsOf(ops.ListCoupons{Campaign: "a"}), rows},
		"coupon.list status":                {r.couponsOf(ops.ListCoupons{Campaign: "a", Status: "voided"}), rows / every},
		"coupon.list last_four":             {r.couponsOf(ops.ListCoupons{Campaign: "a", LastFour: "3711"}), 1},
		"coupon.list customer_id":           {r.couponsOf(ops.ListCoupons{CustomerID: "ann"}), 50},
		"coupon.list customer_id, many":     {r.couponsOf(ops.ListCoupons{CustomerID: "agency"}), rows / 2},
		"coupon.list customer_id, of one":   {r.couponsOf(ops.ListCoupons{CustomerID: "agency", Campaign: "b"}), 0},
		"coupon.list customer_id, status":   {r.couponsOf(ops.ListCoupons{CustomerID: "agency", Status: "voided"}), rows / every},
		"coupon.list order_id":              {r.couponsOf(ops.ListCoupons{OrderID: "o7"}), 1},
		"coupon.list order_id, many":        {r.couponsOf(ops.ListCoupons{OrderID: "test"}), rows / 2},
		"reminder.list campaign":            {r.reminders(ops.ListReminders{Campaign: "a"}), rows},
		"reminder.list state":               {r.reminders(ops.ListReminders{Campaign: "a", State: "fired"}), rows / every},
		"reminder.list customer_id":         {r.reminders(ops.ListReminders{Campaign: "a", CustomerID: "k8"}), 1},
		"reminder.list customer_id, many":   {r.reminders(ops.ListReminders{Campaign: "a", CustomerID: "agency", State: "pending"}), rows / 2},
		"reminder.list customer_id, of two": {r.reminders(ops.ListReminders{Campaign: "b", CustomerID: "agency"}), 0},
		"deadletter.list":                   {r.lettersOf(LetterFilter{}), rows},
		"deadletter.list state":             {r.lettersOf(LetterFilter{State: Open}), rows / every},
		"deadletter.list cause":             {r.lettersOf(LetterFilter{Cause: "r …"}), rows},
		"deadletter.list stream":            {r.lettersOf(LetterFilter{Stream: OfEvents}), 0},
		"deadletter.list lane":              {r.lettersOf(LetterFilter{Lane: &lane, State: Open}), rows / every},
		"deadletter.list since":             {r.lettersOf(LetterFilter{Since: minute(5)}), rows - 2999},
		"deadletter.groups":                 {r.groups, rows / every},
		"campaign.changes campaign":         {r.changes, rows + 1},
	}
}

// elsewhere are the lists that read no tables.
var elsewhere = []string{"access.list", "config.changes", "audit.list", "command.show", "sender.list", "sender.deadletters", "webhook.list", "webhook.deadletters", "webhook.attempts", "job.list"}

// unbounded are the lists and filters whose rows have another bound.
var unbounded = map[string]string{
	"campaign.statistics campaign":  "a campaign has so many days, and a day so many values",
	"campaign.statistics attribute": "likewise",
	"due.list":                      "it counts what is due, by turns",
}

// TestPartsAreBounded: each statement of a list reads as many rows as a part may have, and a few of other tables for each, whatever the
// filter selects and whatever the statistics say. Parts together are the whole list. A new list or filter needs a row here.
func TestPartsAreBounded(t *testing.T) {
	partRows = 200
	t.Cleanup(func() { partRows = 10_000 })
	const limit, most = 150, 8 * 200
	pool := database(t)
	fillTables(t, pool)
	config := pool.Config()
	statements := &recorder{}
	config.ConnConfig.Tracer = statements
	traced, err := pgxpool.NewWithConfig(t.Context(), config)
	streamtest.Must(t, err)
	t.Cleanup(traced.Close)
	lists := rare(&reader{NewCoupons(traced), NewHistory(traced, nothing), NewLetters(traced)})
	for i := range ops.Actions {
		a := &ops.Actions[i]
		if slices.Contains(elsewhere, a.Name) || !slices.ContainsFunc(a.Fields, func(f ops.Field) bool { return f.Name == "after" }) {
			continue
		}
		for _, f := range a.Fields {
			name := a.Name + " " + f.Name
			if _, known := lists[name]; !known && unbounded[name] == "" && f.Name != "limit" && f.Name != "after" {
				t.Errorf("no row for %s", name)
			}
		}
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			exec(t, pool, "ANALYZE")
		}
		for name, list := range lists {
			sum, parts := 0, 0
			for p := (ops.Paging{Limit: limit}); parts == 0 || p.After != ""; parts++ {
				statements.all = statements.all[:0]
				n, next, err := list.part(t.Context(), p)
				if err != nil || next != "" && next == p.After || n > limit && name != "deadletter.groups" {
					t.Fatalf("%s after %s: %d entries, then %s, %v", name, p.After, n, next, err)
				}
				if parts < 2 {
					measure(t, pool, name, statements.all, most)
				} else if analyzed {
					break
				}
				sum, p.After = sum+n, next
			}
			if !analyzed && sum != list.want {
				t.Errorf("%s has %d entries in %d parts, want %d", name, sum, parts, list.want)
			}
		}
	}
}

// measure runs statements once more, as they were run, and counts the rows that each reads.
func measure(t *testing.T, pool *pgxpool.Pool, name string, all []pgx.TraceQueryStartData, most int) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	streamtest.Must(t, err)
	defer conn.Release()
	for _, s := range all {
		if word, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(s.SQL)), " "); word != "select" && word != "with" {
			_, err := conn.Exec(t.Context(), s.SQL, s.Args...)
			streamtest.Must(t, err)
			continue
		}
		if n, plan := projtest.Reads(t, conn, s.SQL, s.Args...); n > most {
			t.Errorf("%s reads %d rows, at most %d are allowed: %s\n%v\n%s", name, n, most, s.SQL, s.Args, strings.ReplaceAll(plan, "  ", ""))
		}
	}
}

// fillTables fills each table of a list. Half of the coupons and the reminders are of one customer, and half of the redemptions of one
// order; few are in another state, and few dead letters are open.
func fillTables(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	fill := strings.NewReplacer("{rows}", fmt.Sprint(rows), "{every}", fmt.Sprint(every))
	exec(t, pool, fill.Replace(aCampaign("a")+aCampaign("b")+`
INSERT INTO scrip_1.coupon_claim (campaign, n, code, customer_id, claimed_at, claimed_place, segment)
    SELECT 'a', n, 'S-AAAA-BBBB-' || lpad(n::text, 4, '0'), CASE n % 2 WHEN 0 THEN 'agency' ELSE 'k' || n END, now(), n, 0 FROM generate_series(1, {rows}) n;
INSERT INTO scrip_1.coupon_claim (campaign, n, code, customer_id, claimed_at, claimed_place, segment)
    SELECT 'b', n, 'S-CCCC-DDDD-' || lpad(n::text, 4, '0'), 'ann', now(), n, 0 FROM generate_series(1, 50) n;
INSERT INTO scrip_1.coupon_state (campaign, n, redeemed_count, voided_at) SELECT 'a', n, 0, now() FROM generate_series({every}, {rows}, {every}) n;
INSERT INTO scrip_tables.redemption_row (campaign, n, redeemed_at, sequence, line, code, customer_id, order_id)
    SELECT 'a', n, now(), n, 1, 'x', 'k', CASE n % 2 WHEN 0 THEN 'test' ELSE 'o' || n END FROM generate_series(1, {rows}) n;
INSERT INTO scrip_1.reminder (campaign, r, before_us, due_at, set_at, settled_at, customer_id, kind, state, set_place)
    SELECT 'a', r, 3600000000, now(), '2026-01-01Z'::timestamptz + r * interval '1 s', CASE r % {every} WHEN 0 THEN now() END,
        CASE r % 2 WHEN 1 THEN 'agency' ELSE 'k' || r END, 'opens', CASE r % {every} WHEN 0 THEN 'fired' ELSE 'pending' END, r FROM generate_series(1, {rows}) r;
INSERT INTO scrip_tables.checkpoint (projection, lane, sequence, updated_at, log, digest) VALUES ('tables', 0, 9, now(), 'l', 'd');
INSERT INTO scrip_tables.dead_letter (lane, sequence, line, event_sequence, event_line, at, stream, reason, payload)
    SELECT 0, i, 1, i, 1, '2026-01-01Z'::timestamptz + i / 10 * interval '1 s', 'SCRIP_CMD_0', 'r ' || i, 'p' FROM generate_series(1, {rows}) i;
INSERT INTO scrip_meta.dead_letter (log, lane, event_sequence, event_line, at, settled_at, state, note)
    SELECT 'l', 0, d.event_sequence, 1, d.at, now(), 'discarded', '' FROM scrip_tables.dead_letter d WHERE d.event_sequence % {every} <> 0;
INSERT INTO scrip_tables.campaign_event (campaign, place, at, type) SELECT 'a', i, now(), CASE i WHEN 1 THEN 'campaign.created' ELSE 'campaign.paused' END FROM generate_series(1, {rows} + 1) i`))
}

// TestASlowPartGetsSmaller: as long as statements take too long, down to a least one, and only then.
func TestASlowPartGetsSmaller(t *testing.T) {
	slow := error(&pgconn.PgError{Code: queryCanceled})
	for most, want := range map[int]string{10_000: "[10000]", 1000: "[10000 1000]", 500: "[10000 1000 100]", 1: "[10000 1000 100] canceling"} {
		var tried []int
		_, rows, err := inParts(t.Context(), 10_000, func(rows int) (int, error) {
			if tried = append(tried, rows); rows > most {
				return 0, fmt.Errorf("reading: %w", slow)
			}
			return 0, nil
		})
		got := fmt.Sprint(tried)
		if err != nil {
			got += " canceling"
		}
		if got != want || rows != tried[len(tried)-1] {
			t.Errorf("up to %d rows: %s, want %s", most, got, want)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for ctx, failure := range map[context.Context]error{t.Context(): errors.New("away"), gone: slow} {
		tries := 0
		if _, _, err := inParts(ctx, 10_000, func(int) (int, error) { tries++; return 0, failure }); !errors.Is(err, failure) || tries != 1 {
			t.Errorf("%v: %v after %d tries", failure, err, tries)
		}
	}
}

// TestWhereAShortPartLooked: the number of a coupon, with the name of its campaign where that is not given, or a time.
func TestWhereAShortPartLooked(t *testing.T) {
	partRows = 1500
	t.Cleanup(func() { partRows = 10_000 })
	pool := database(t)
	fillTables(t, pool)
	coupons, history, letters, p := NewCoupons(pool), NewHistory(pool, nil), NewLetters(pool), ops.Paging{Limit: 9}
	one, err := coupons.List(t.Context(), ops.ListCoupons{Campaign: "a", LastFour: "3999", Paging: p}, nil)
	streamtest.Must(t, err)
	all, err := coupons.List(t.Context(), ops.ListCoupons{CustomerID: "agency", Status: "redeemed", Paging: p}, nil)
	streamtest.Must(t, err)
	set, err := history.Reminders(t.Context(), ops.ListReminders{Campaign: "a", State: "dropped", Paging: p})
	streamtest.Must(t, err)
	_, older, dead, err := letters.List(t.Context(), LetterFilter{State: Retried})
	streamtest.Must(t, err)
	streamtest.Equal(t, "looked", fmt.Sprint(one.Looked, ", ", all.Looked, ", ", set.Looked, ", ", dead), "1500, a 1500, 2026-01-01T00:41:41Z, 2026-01-01T00:04:10Z")
	if one.Next == "" || all.Next == "" || set.Next == "" || older == "" {
		t.Errorf("%q %q %q %q", one.Next, all.Next, set.Next, older)
	}
}
