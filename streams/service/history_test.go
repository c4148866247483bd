package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// long is a history of entries numbered from the newest, each some bytes long. Its cursors are the numbers.
type long struct{ entries, size int }

func (h long) page(limit int, before string) (page HistoryPage, err error) {
	at := 0
	if before != "" {
		if at, err = strconv.Atoi(before); err != nil || at > h.entries {
			return page, fmt.Errorf("reading the history: %q: %w", before, ErrBadCursor)
		}
	}
	for ; at < h.entries && len(page.Entries) < limit; at++ {
		page.Entries = append(page.Entries, HistoryEntry{
			JSON: fmt.Appendf(nil, `{"at":%d,"fill":%q}`, at, strings.Repeat("x", h.size)), Before: strconv.Itoa(at + 1),
		})
	}
	page.More = at < h.entries
	return page, nil
}

func (h long) Coupon(_ context.Context, _ string, _ uint32, limit int, before string) (HistoryPage, error) {
	return h.page(limit, before)
}

func (h long) Customer(_ context.Context, _ string, limit int, before string) (HistoryPage, error) {
	return h.page(limit, before)
}

// shownPage is an answer of a show.
type shownPage struct {
	Data    json.RawMessage
	History []struct{ At int }
	More    bool
	Next    string
	// why there is none
	HistoryUnavailable string `json:"history_unavailable"`
}

func (r *rig) page(t *testing.T, subject, subjectOf string, limit int, before string) (p shownPage) {
	t.Helper()
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(subjectOf), &fields); err != nil {
		t.Fatal(err)
	}
	if limit > 0 {
		fields["limit"] = limit
	}
	if before != "" {
		fields["before"] = before
	}
	body, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	reply := r.request(t, subject, string(body))
	if len(reply.Data) > maxReply+1024 {
		t.Errorf("an answer of %d bytes", len(reply.Data))
	}
	if err := json.Unmarshal(reply.Data, &p); err != nil || p.Data == nil {
		t.Fatalf("%s %s: %.300s (%v)", subject, body, reply.Data, err)
	}
	if p.More != (p.Next != "") {
		t.Fatalf("more is %t and next is %q", p.More, p.Next)
	}
	return p
}

// held makes both lanes show a customer's coupons as real ones would: so many in each of two campaigns.
func (r *rig) held(t *testing.T, coupons, size int) {
	t.Helper()
	for lane := range lanes {
		name := fmt.Sprint("c", lane)
		r.lane(t, lane, func(q query) string {
			list := []map[string]any{}
			from := coupons
			if q.After > name {
				from = 0
			} else if q.After == name {
				from = int(q.AfterN) - 1
			}
			for n := from; n > 0 && len(list) < q.Limit; n-- {
				list = append(list, map[string]any{"campaign": name, "n": n, "fill": strings.Repeat("y", size)})
			}
			data, err := json.Marshal(map[string]any{"data": list})
			if err != nil {
				t.Error(err)
			}
			return string(data)
		})
	}
}

// TestACustomerInPages: whatever the sizes, pages together have each coupon and each entry once, in order, and none is
// left out without more and next.
func TestACustomerInPages(t *testing.T) {
	for _, c := range []struct{ coupons, couponSize, entries, entrySize, limit int }{
		{0, 10, 0, 10, 0}, {3, 10, 3, 10, 0}, {3, 10, 3, 10, 1}, {1, 10, 9, 10, 4}, {9, 10, 1, 10, 4}, {150, 10, 250, 10, 0}, {4, 10, 0, 10, 4},
		{600, 700, 700, 2000, MaxShown}, // pages are full before their limit
		{2, 300_000, 3, 300_000, 2},     // one of each is what there is room for
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			r := newRig(t)
			r.serve(t, Options{History: long{c.entries, c.entrySize}})
			r.held(t, c.coupons, c.couponSize)
			var coupons, entries []string
			for before, pages := "", 0; ; pages++ {
				p := r.page(t, "scrip.customer.show", `{"customer_id":"ann"}`, c.limit, before)
				var list []struct {
					Campaign string
					N        int
				}
				if err := json.Unmarshal(p.Data, &list); err != nil {
					t.Fatal(err)
				}
				for _, k := range list {
					coupons = append(coupons, fmt.Sprint(k.Campaign, k.N))
				}
				for _, e := range p.History {
					entries = append(entries, fmt.Sprint(e.At))
				}
				if c.limit > 0 && (len(list) > c.limit || len(p.History) > c.limit) {
					t.Errorf("%d coupons and %d entries in a page of %d", len(list), len(p.History), c.limit)
				}
				if before = p.Next; !p.More {
					break
				}
				if pages > 5000 {
					t.Fatal("the pages never end")
				}
			}
			var wantCoupons, wantEntries []string
			for lane := range lanes {
				for n := c.coupons; n > 0; n-- {
					wantCoupons = append(wantCoupons, fmt.Sprintf("c%d%d", lane, n))
				}
			}
			for n := range c.entries {
				wantEntries = append(wantEntries, fmt.Sprint(n))
			}
			if fmt.Sprint(coupons) != fmt.Sprint(wantCoupons) {
				t.Errorf("coupons: %d of %d, or in another order", len(coupons), len(wantCoupons))
			}
			if fmt.Sprint(entries) != fmt.Sprint(wantEntries) {
				t.Errorf("entries: %d of %d, or in another order", len(entries), len(wantEntries))
			}
		})
	}
}

func TestACouponInPages(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{History: long{250, 10}})
	r.lane(t, 0, func(query) string { return `{"data":{"campaign":"summer","n":7}}` })
	r.lane(t, 1, func(query) string { return `{"data":{"campaign":"summer","n":7}}` })
	seen := 0
	for before := ""; ; {
		p := r.page(t, "scrip.coupon.show", `{"code":"X","campaign":"summer"}`, 0, before)
		for _, e := range p.History {
			if e.At != seen {
				t.Fatalf("entry %d where %d was expected", e.At, seen)
			}
			seen++
		}
		if before = p.Next; !p.More {
			break
		}
	}
	if seen != 250 {
		t.Errorf("%d entries of 250", seen)
	}
}

// away is a history that fails.
type away struct{ long }

func (away) Customer(context.Context, string, int, string) (HistoryPage, error) {
	return HistoryPage{}, errors.New("no route to host")
}

// While the tables are away coupons are paged all the same, and the history does not count as shown.
func TestPagesWithoutHistory(t *testing.T) {
	r := newRig(t)
	_, stop := r.serve(t, Options{History: away{}})
	r.held(t, 3, 10)
	p := r.page(t, "scrip.customer.show", `{"customer_id":"ann"}`, 4, "")
	if !p.More || p.History != nil || !strings.Contains(p.HistoryUnavailable, "no route") {
		t.Fatalf("%+v", p)
	}
	last := r.page(t, "scrip.customer.show", `{"customer_id":"ann"}`, 4, p.Next)
	if last.More || string(last.Data) == "[]" {
		t.Errorf("the last page: %+v", last)
	}
	stop()
	r.serve(t, Options{History: long{1, 10}}) // the tables are back
	last = r.page(t, "scrip.customer.show", `{"customer_id":"ann"}`, 4, p.Next)
	if last.More || len(last.History) != 1 {
		t.Errorf("the last page, when the tables are back: %+v", last)
	}
}

func TestBadCursors(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{History: long{3, 10}})
	r.held(t, 3, 10)
	for _, before := range []string{"x", "17", "c0~", "c0.x~", "c0.0~", "c 0.1~", "c0.1~x", ".~x", "c0.99999999999~"} {
		out := r.outcome(t, "scrip.customer.show", `{"customer_id":"ann","before":"`+before+`"}`)
		if out.Refusal != wire.Invalid || !strings.HasPrefix(out.Message, "before: ") || !strings.Contains(out.Message, "the next of an answer") {
			t.Errorf("%q: %+v", before, out)
		}
	}
}

func TestBadCursorOfACoupon(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{History: long{3, 10}})
	r.lane(t, 0, func(query) string { return `{"data":{"campaign":"summer","n":7}}` })
	out := r.outcome(t, "scrip.coupon.show", `{"code":"X","campaign":"`+r.onLane(0)+`","before":"yesterday"}`)
	if out.Refusal != wire.Invalid || out.Message != "before: "+ErrBadCursor.Error() {
		t.Errorf("coupon.show: %+v", out)
	}
}

// onLane is the name of a campaign that lives on a lane.
func (r *rig) onLane(lane int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("c", i); wire.LaneOf(name, lanes) == lane {
			return name
		}
	}
}
