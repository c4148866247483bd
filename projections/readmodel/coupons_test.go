package readmodel

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func aCampaign(name string) string {
	return `INSERT INTO scrip_tables.campaign (campaign, number, lane, status, generated_codes, imported_codes, claimed, redeemed, voided, max_redemptions, per_customer, opens_at, created_at, inheriting_live, inheriting_redeemed)
    VALUES ('` + name + `', 1, 3, 'active', 99, 0, 9, 0, 0, 1, 1, now(), now(), 0, 0);`
}

// TestCouponsThatAFilterSelects: pages of a campaign, a customer and an order; by state, by time, by the end of a code. A short code
// is not found by its last four symbols, of which a mask hides some.
func TestCouponsThatAFilterSelects(t *testing.T) {
	db := database(t)
	exec(t, db, `
`+aCampaign("a")+aCampaign("b")+`
INSERT INTO scrip_1.coupon_claim (campaign, n, code, customer_id, claimed_at, claimed_place, segment)
    SELECT c, n, 'S-AAAA-BBBB-CC' || lpad(n::text, 2, '0'), 'k' || n % 3, timestamptz '2026-01-01T00:00:00Z' + n * interval '1 minute', n, 0
    FROM generate_series(1, 20) n, (VALUES ('a'), ('b')) x (c);
INSERT INTO scrip_1.coupon_state (campaign, n, redeemed_count, redeemed_at, voided_at)
    SELECT c, n, (n % 4 = 0)::int, CASE WHEN n % 4 = 0 THEN now() END, CASE WHEN n % 5 = 0 THEN now() END
    FROM generate_series(1, 20) n, (VALUES ('a'), ('b')) x (c) WHERE n % 4 = 0 OR n % 5 = 0;
UPDATE scrip_1.coupon_claim SET code = 'ABCDCC02' WHERE campaign = 'b' AND n = 2;
INSERT INTO scrip_tables.redemption_row (campaign, n, redeemed_at, sequence, line, code, customer_id, order_id) SELECT 'a', n, now(), n, 1, 'x', 'k1', 'o' FROM generate_series(4, 16, 4) n`)
	coupons := NewCoupons(db)
	list := func(q ops.ListCoupons, campaigns []string) (all []string) {
		t.Helper()
		for more := true; more; more = q.After != "" {
			page, err := coupons.List(t.Context(), q, campaigns)
			streamtest.Must(t, err)
			for _, c := range page.Items {
				all = append(all, fmt.Sprint(c.Campaign, c.N))
			}
			q.After = page.Next
			if all = append(all, "|"); len(all) > 99 {
				t.Fatal("pages without an end")
			}
		}
		return all
	}
	for _, test := range []struct {
		q         ops.ListCoupons
		limit     int
		want      string
		campaigns []string
	}{
		{q: ops.ListCoupons{Campaign: "a"}, limit: 8, want: "[a1 a2 a3 a4 a5 a6 a7 a8 | a9 a10 a11 a12 a13 a14 a15 a16 | a17 a18 a19 a20 |]"},
		{q: ops.ListCoupons{Campaign: "a", Status: "voided"}, limit: 3, want: "[a5 a10 a15 | a20 |]"},
		{q: ops.ListCoupons{Campaign: "a", Status: "redeemed"}, limit: 9, want: "[a4 a8 a12 a16 |]"},
		{q: ops.ListCoupons{Campaign: "a", LastFour: "CC07"}, limit: 9, want: "[a7 |]"},
		{q: ops.ListCoupons{Campaign: "b", LastFour: "CC02"}, limit: 9, want: "[|]"},
		{q: ops.ListCoupons{CustomerID: "k1"}, limit: 9, want: "[a1 a4 a7 a10 a13 a16 a19 b1 b4 | b7 b10 b13 b16 b19 |]"},
		{q: ops.ListCoupons{CustomerID: "k1", Status: "voided"}, limit: 9, want: "[b10 |]", campaigns: []string{"b"}},
		{q: ops.ListCoupons{OrderID: "o", Campaign: "a"}, limit: 3, want: "[a4 a8 a12 | a16 |]"},
		{q: ops.ListCoupons{OrderID: "o", Campaign: "b"}, limit: 3, want: "[|]"},
	} {
		test.q.Limit = test.limit
		if got := fmt.Sprint(list(test.q, test.campaigns)); got != test.want {
			t.Errorf("%+v: %s, want %s", test.q, got, test.want)
		}
	}

	for f, want := range map[ops.CouponFilter][]uint32{
		{CustomerID: "k1"}: {7, 10},
		{Status: "claimed", ClaimedFrom: minute(7), ClaimedBefore: minute(9)}: {7},
	} {
		hits, _, _, err := coupons.Hits(t.Context(), "a", "", f, 6, 8)
		streamtest.Must(t, err)
		if f.CustomerID != "" { // eight of its rows, not of the campaign's
			hits = hits[:2]
		}
		if !slices.Equal(hits, want) {
			t.Errorf("%+v: %v, want %v", f, hits, want)
		}
	}
	if there, err := coupons.ByNumber(t.Context(), "a", 20, 1, 21); err != nil || len(there) != 2 || there[1].VoidedAt == nil || there[0].ClaimedAt.Location() != time.UTC {
		t.Errorf("%+v, %v", there, err)
	}
}

// TestDaysAndWhatIsDue: totals with refusals, also of a day without a claim; the values of an attribute; pages of both, and of what is due.
func TestDaysAndWhatIsDue(t *testing.T) {
	db := database(t)
	exec(t, db, `
`+aCampaign("a")+`
INSERT INTO scrip_1.day_stats (campaign, day, attribute, value, claimed, redeemed, rolled_back, voided) VALUES
    ('a', '2026-01-01Z', '', '', 5, 2, 1, 0), ('a', '2026-01-03Z', '', '', 7, 0, 0, 4),
    ('a', '2026-01-01Z', 'shop', 'bonn', 2, 1, 0, 0), ('a', '2026-01-01Z', 'shop', 'ulm', 3, 1, 1, 0), ('b', '2026-01-01Z', '', '', 99, 0, 0, 0);
INSERT INTO scrip_tables.refusal_stats (campaign, day, lane, reason, refused) VALUES
    ('a', '2026-01-01Z', 3, 'sold_out', 2), ('a', '2026-01-01Z', 1, 'sold_out', 1), ('a', '2026-01-02Z', 3, 'expired', 1), ('b', '2026-01-02Z', 3, 'expired', 9);
INSERT INTO scrip_1.expiry_own (campaign, due_at, live, redeemed, lane) SELECT 'a', date_trunc('second', now()) + m * interval '1 minute', 2, 0, 3 FROM generate_series(-1, 3) m`)
	coupons := NewCoupons(db)
	for attribute, want := range map[string]string{
		"":     "[01-03  7 0 0 4 map[]] [01-02  0 0 0 0 map[expired:1] 01-01  5 2 1 0 map[sold_out:3]]",
		"shop": "[01-01 bonn 2 1 0 0 map[]] [01-01 ulm 3 1 1 0 map[]]",
	} {
		var got []string
		q := ops.ListDays{Campaign: "a", Attribute: attribute}
		for _, limit := range []int{1, 2} {
			q.Limit = limit
			days, err := coupons.Days(t.Context(), q)
			streamtest.Must(t, err)
			page := []string{}
			for _, d := range days.Items {
				page = append(page, fmt.Sprint(d.Day.Format("01-02"), " ", d.Value, " ", d.Claimed, d.Redeemed, d.RolledBack, d.Voided, " ", d.Refused))
			}
			got, q.After = append(got, fmt.Sprint(page)), days.Next
		}
		if q.After != "" {
			t.Errorf("%s: a page after the last one", attribute)
		}
		if is := fmt.Sprint(got); is != "["+want+"]" {
			t.Errorf("%s: %s, want %s", attribute, is, want)
		}
	}
	first, err := coupons.Due(t.Context(), ops.Paging{Limit: 2})
	streamtest.Must(t, err)
	rest, err := coupons.Due(t.Context(), ops.Paging{Limit: 2, After: first.Next})
	streamtest.Must(t, err)
	if len(first.Items) != 2 || len(rest.Items) != 1 || rest.Next != "" || first.Items[0].Due != 2 || first.Items[0].Kind != "expiry" || first.Items[0].Priority != "normal" ||
		!first.Items[1].Second.Before(rest.Items[0].Second) {
		t.Errorf("due: %+v, then %+v", first, rest)
	}
	if late := first.Backlog; len(late) != 1 || late[0].Lane != 3 || late[0].Due != 4 || late[0].Kind != "expiry" || late[0].Seconds < 59 {
		t.Errorf("backlog: %+v", late)
	}
}
