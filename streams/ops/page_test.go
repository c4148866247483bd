package ops

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestCursorsOfOthers: a cursor of another log, list or client is none, and is refused at after. A rotated key is the same client, and
// pages may have different limits.
func TestCursorsOfOthers(t *testing.T) {
	c, ann, about := Cursors{Log: "1"}, access.Principal{ID: "a2", First: "a1"}, Paging{Limit: 7}
	own := c.Of("keys", ann, &about).Seal("summer 7")
	if place, err := c.Of("keys", access.Principal{ID: "a1"}, &Paging{After: own}).Open(own); err != nil || place != "summer 7" {
		t.Errorf("%q, %v", place, err)
	}
	for _, wrong := range []string{(Cursors{Log: "2"}).Of("keys", ann, &about).Seal("x"), c.Of("jobs", ann, &about).Seal("x"), c.Of("keys", access.Principal{ID: "b1"}, &about).Seal("x"), own[1:], "x", "AAAA"} {
		var no *Refusal
		if place, err := c.Of("keys", ann, &about).Open(wrong); !errors.As(err, &no) || no.Code != wire.Invalid || no.Field != "after" {
			t.Errorf("%s is read as %q, %v", wrong, place, err)
		}
	}
}

// samples are two values of each field of a list.
var samples = map[string][2]string{
	"campaign": {`"summer"`, `"winter"`}, "with": {`"a"`, `"b"`}, "customer_id": {`"ann"`, `"bob"`}, "order_id": {`"o1"`, `"o2"`}, "last_four": {`"AAAA"`, `"BBBB"`},
	"attribute": {`"shop"`, `"age"`}, "stream": {`"commands"`, `"events"`}, "lane": {`0`, `1`}, "cause": {`"x"`, `"y"`}, "sender": {`"app"`, `"mail"`},
	"webhook": {`"w1"`, `"w2"`}, "actor": {`"ann"`, `"bob"`}, "about": {`"a"`, `"b"`}, "setting": {`"a"`, `"b"`}, "id": {`"1"`, `"2"`},
	"since": {`"2026-01-01T00:00:00Z"`, `"2026-01-02T00:00:00Z"`}, "until": {`"2026-01-01T00:00:00Z"`, `"2026-01-02T00:00:00Z"`},
}

// TestCursorsOfOtherParameters: a cursor of any list is refused at after when any parameter of the list differs, is missing or is more,
// but for limit.
func TestCursorsOfOtherParameters(t *testing.T) {
	o, lists := &Ops{}, 0
	for i := range Actions {
		a := &Actions[i]
		if !slices.ContainsFunc(a.Fields, func(f Field) bool { return f.Name == "after" }) {
			continue
		}
		lists++
		all := Fields{}
		for i := range a.Fields {
			f := &a.Fields[i]
			value := samples[f.Name]
			if list := f.OneOf(); list != nil {
				value = [2]string{strconv.Quote(list[1]), strconv.Quote(list[0])} // the first one may be what an absent one is
			}
			switch {
			case f.Name == "limit" || f.Name == "after":
			case value[0] == "":
				t.Errorf("there is no sample of %s of %s", f.Name, a.Name)
			default:
				samples[f.Name], all[f.Name] = value, json.RawMessage(value[0])
			}
		}
		request := reflect.New(a.Request)
		streamtest.Must(t, all.Read(request.Interface(), a.Fields))
		cursor := o.Cursors.Of(a.Name, ann.Principal, request.Interface()).Seal("7")
		for name := range all {
			for _, other := range []string{samples[name][1], ""} {
				fields := maps.Clone(all)
				fields["after"], fields[name] = json.RawMessage(strconv.Quote(cursor)), json.RawMessage(other)
				if other == "" {
					delete(fields, name)
				}
				_, err := a.call(o, t.Context(), ann, fields)
				var no *Refusal
				needed := errors.As(err, &no) && no.Code == Malformed && no.Field == name
				if !needed && (no == nil || no.Code != wire.Invalid || no.Field != "after") {
					t.Errorf("%s: a cursor of %s %s is taken with %q: %v", a.Name, name, samples[name][0], other, err)
				}
			}
		}
	}
	if lists < 15 {
		t.Errorf("there are %d lists", lists)
	}
}

// TestPageOf: each entry once, in order, and no empty page at the end.
func TestPageOf(t *testing.T) {
	text := func(i *int) string { return strconv.Itoa(*i) }
	for _, limit := range []int{1, 2, 4, 5, 1000} {
		names, pages := "", 0
		for p := (Paging{Limit: limit}); ; {
			page, err := PageOf([]int{0, 1, 2, 3, 4}, p, text)
			if err != nil || len(page.Items) > limit {
				t.Fatalf("limit %d: %+v, %v", limit, page, err)
			}
			for _, i := range page.Items {
				names += strconv.Itoa(i)
			}
			pages++
			if p.After = page.Next; page.Next == "" {
				break
			}
		}
		if names != "01234" || pages != (5+limit-1)/limit {
			t.Errorf("limit %d: %s on %d pages", limit, names, pages)
		}
	}
	if page, err := PageOf([]int{1}, Paging{After: "2", Limit: 1}, text); err == nil {
		t.Errorf("after an entry that is gone: %+v", page)
	}
}
