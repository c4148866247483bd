package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// long is a history of entries numbered from the newest, each some bytes long. Its cursors are the numbers.
type long struct{ entries, size int }

func (h long) page(_ string, limit int, before string) (page HistoryPage, err error) {
	at := 0
	if before != "" {
		if at, err = strconv.Atoi(before); err != nil || at > h.entries {
			return page, fmt.Errorf("%q is no place", before)
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

// history is that of a coupon, "campaign n", or of a customer.
type history func(of string, limit int, before string) (HistoryPage, error)

func (h history) Coupon(_ context.Context, campaign string, n uint32, limit int, before string) (HistoryPage, error) {
	return h(fmt.Sprint(campaign, " ", n), limit, before)
}

func (h history) Customer(_ context.Context, customerID string, limit int, before string) (HistoryPage, error) {
	return h(customerID, limit, before)
}

// shownPage is an answer of a show or of a list.
type shownPage struct {
	Items   json.RawMessage
	History []struct{ At int }
	Next    string
	// why there is none
	HistoryUnavailable string `json:"history_unavailable"`
}

// campaigns are those in a page of coupons or campaigns, with the numbers of coupons.
func (p shownPage) campaigns(t *testing.T) (names []string) {
	t.Helper()
	var list []struct {
		Campaign string
		N        int
	}
	streamtest.Must(t, json.Unmarshal(p.Items, &list))
	for _, c := range list {
		names = append(names, fmt.Sprint(c.Campaign, c.N))
	}
	return names
}

// page requests a page. fields of the request that are zero are left out.
func (r *rig) page(t *testing.T, subject string, fields map[string]any) shownPage {
	t.Helper()
	maps.DeleteFunc(fields, func(_ string, v any) bool { return v == 0 || v == "" })
	body, err := json.Marshal(fields)
	streamtest.Must(t, err)
	reply := r.request(t, subject, string(body))
	if len(reply.Data) > maxReply+1024 {
		t.Errorf("an answer of %d bytes", len(reply.Data))
	}
	var answer struct{ Data *shownPage }
	if err := json.Unmarshal(reply.Data, &answer); err != nil || answer.Data == nil {
		t.Fatalf("%s %s: %.300s (%v)", subject, body, reply.Data, err)
	}
	return *answer.Data
}

// pages requests all pages.
func (r *rig) pages(t *testing.T, subject string, fields map[string]any) (all []shownPage) {
	t.Helper()
	for {
		p := r.page(t, subject, fields)
		if all = append(all, p); p.Next == "" {
			return all
		}
		if fields["after"] = p.Next; len(all) > 5000 {
			t.Fatal("the pages never end")
		}
	}
}

// held makes both lanes show a customer's coupons as real ones would: so many in each of two campaigns, of some bytes.
func (r *rig) held(t *testing.T, of func() (coupons, size int)) {
	t.Helper()
	for lane := range lanes {
		name := fmt.Sprint("c", lane)
		r.lane(t, lane, func(q query) string {
			if q.Query == showCoupon.name {
				return `{"data":{"campaign":"summer","n":7}}`
			}
			list := []map[string]any{}
			from, size := of()
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

func three() (coupons, size int) { return 3, 10 }

// TestHistoryInPages: whatever the sizes, pages together have each coupon and each entry once, in order, and none is left out
// without next.
func TestHistoryInPages(t *testing.T) {
	r := newRig(t)
	var entries atomic.Pointer[long]
	r.serve(t, Options{History: history(func(of string, limit int, before string) (HistoryPage, error) {
		return entries.Load().page(of, limit, before)
	})})
	var coupons, size atomic.Int64
	r.held(t, func() (int, int) { return int(coupons.Load()), int(size.Load()) })
	for _, c := range []struct{ coupons, couponSize, entries, entrySize, limit int }{
		{0, 10, 0, 10, 0}, {3, 10, 3, 10, 0}, {3, 10, 3, 10, 1}, {1, 10, 9, 10, 4}, {9, 10, 1, 10, 4}, {150, 10, 250, 10, 0}, {4, 10, 0, 10, 4},
		{600, 700, 700, 2000, 1000}, // pages are full before their limit
		{2, 300_000, 3, 300_000, 2}, // one of each is what there is room for
	} {
		coupons.Store(int64(c.coupons))
		size.Store(int64(c.couponSize))
		entries.Store(&long{c.entries, c.entrySize})
		var wantCoupons, wantEntries []string
		for lane := range lanes {
			for n := c.coupons; n > 0; n-- {
				wantCoupons = append(wantCoupons, fmt.Sprintf("c%d%d", lane, n))
			}
		}
		for n := range c.entries {
			wantEntries = append(wantEntries, fmt.Sprint(n))
		}
		for subject, fields := range map[string]map[string]any{
			"scrip.customer.show": {"customer_id": "ann", "history": true, "limit": c.limit},
			"scrip.coupon.show":   {"code": "X", "campaign": "summer", "history": true, "limit": c.limit},
		} {
			var coupons, shown []string
			for _, p := range r.pages(t, subject, fields) {
				if subject == "scrip.customer.show" {
					list := p.campaigns(t)
					if coupons = append(coupons, list...); c.limit > 0 && len(list) > c.limit {
						t.Errorf("%d coupons in a page of %d", len(list), c.limit)
					}
				}
				for _, e := range p.History {
					shown = append(shown, fmt.Sprint(e.At))
				}
				if c.limit > 0 && len(p.History) > c.limit {
					t.Errorf("%d entries in a page of %d", len(p.History), c.limit)
				}
			}
			if subject == "scrip.customer.show" && !slices.Equal(coupons, wantCoupons) {
				t.Errorf("%v: %d of %d coupons, or in another order", c, len(coupons), len(wantCoupons))
			}
			if !slices.Equal(shown, wantEntries) {
				t.Errorf("%s %v: %d of %d entries, or in another order", subject, c, len(shown), len(wantEntries))
			}
		}
	}
}

// While the tables are away coupons are paged all the same, and the history does not count as shown.
func TestPagesWithoutHistory(t *testing.T) {
	r := newRig(t)
	var back atomic.Bool
	r.serve(t, Options{History: history(func(of string, limit int, before string) (HistoryPage, error) {
		if !back.Load() {
			return HistoryPage{}, errors.New("no route to host")
		}
		return long{1, 10}.page(of, limit, before)
	})})
	r.held(t, three)
	next := func(after string) shownPage {
		t.Helper()
		return r.page(t, "scrip.customer.show", map[string]any{"customer_id": "ann", "history": true, "limit": 4, "after": after})
	}
	p := next("")
	if p.Next == "" || p.History != nil || !strings.Contains(p.HistoryUnavailable, "no route") {
		t.Fatalf("%+v", p)
	}
	if last := next(p.Next); last.Next != "" || string(last.Items) == "[]" {
		t.Errorf("the last page: %+v", last)
	}
	back.Store(true)
	if last := next(p.Next); last.Next != "" || len(last.History) != 1 {
		t.Errorf("the last page, when the tables are back: %+v", last)
	}
}

// TestBadCursors: a cursor of another list, or of other parameters, is none: of each query that has pages. One coupon without its
// history has no pages.
func TestBadCursors(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{History: history(long{3, 10}.page)})
	r.held(t, three)
	pages := map[*queryKind]map[string]any{
		showCustomer: {"customer_id": "ann"}, showCoupon: {"code": "X", "campaign": "summer", "history": true}, listCampaigns: {}, listAllotments: {"campaign": "summer"},
	}
	other := map[string]any{"customer_id": "bob", "code": "Y", "campaign": "winter", "n": 3, "order_id": "o", "history": true}
	var zero ops.Cursors
	for i := range endpoints {
		kind := endpoints[i].query
		if kind == nil || !slices.ContainsFunc(kind.fields, func(f ops.Field) bool { return f.Name == "after" }) {
			continue
		}
		of, known := pages[kind]
		if !known {
			t.Errorf("%s has pages, and is not looked at", kind.name)
			continue
		}
		q := query{Query: kind.name}
		streamtest.Must(t, json.Unmarshal(encoded(t, of), &q))
		own := zero.Of(kind.name, access.Principal{}, &q).Seal("{}")
		wrong := []map[string]any{{"after": own[1:]}, {"after": zero.Of("another", access.Principal{}, &q).Seal("{}")}}
		for _, f := range kind.fields {
			if value, ok := other[f.Name]; ok && of[f.Name] != value && !(f.Name == "n" && of["code"] != nil) {
				wrong = append(wrong, map[string]any{"after": own, f.Name: value})
			}
		}
		for _, change := range wrong {
			request := maps.Clone(of)
			maps.Copy(request, change)
			if out := r.outcome(t, "scrip."+kind.name, string(encoded(t, request))); out.Refusal != wire.Invalid || !strings.HasPrefix(out.Message, "after: must be") {
				t.Errorf("%s %v: %+v", kind.name, request, out)
			}
		}
	}
	if out := r.outcome(t, "scrip.coupon.show", `{"code":"X","campaign":"summer","after":"x"}`); out.Refusal != wire.Invalid || !strings.HasPrefix(out.Message, "after: is a place in the history; give history") {
		t.Errorf("without the history: %+v", out)
	}
	first := r.page(t, "scrip.customer.show", map[string]any{"customer_id": "ann", "limit": 1})
	if second := r.page(t, "scrip.customer.show", map[string]any{"customer_id": "ann", "limit": 2, "after": first.Next}); len(second.campaigns(t)) != 2 {
		t.Errorf("with another limit: %+v", second)
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	streamtest.Must(t, err)
	return text
}
