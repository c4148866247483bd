package service

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const seenCode = "7KQ2-9F3M-XW4T"

// seen is a history with the code of a coupon.
func seen(string, int, string) (HistoryPage, error) {
	return HistoryPage{Entries: []HistoryEntry{
		{JSON: json.RawMessage(`{"what":"claimed","campaign":"summer","n":7,"code":"` + seenCode + `","by":"<ann>"}`), Before: "2"},
		{JSON: json.RawMessage(`{"what":"fired","campaign":"summer"}`), Before: "1"},
	}}, nil
}

// TestLookUps: a key without the right to see codes gets them masked, in coupons and in histories; what others see in clear is in
// the audit stream, with who looked, and without the code. Programs of the servers' account are not recorded.
func TestLookUps(t *testing.T) {
	r := newRig(t)
	_, keys := managed(t, r, func(o *Options) { o.History = history(seen) })
	for lane := range lanes {
		r.lane(t, lane, func(q query) string {
			coupon := `{"campaign":"summer","n":7,"code":"` + seenCode + `","benefit":{"code":"10 %"}}`
			switch {
			case q.Query != showCustomer.name:
			case lane > 0:
				return `{"data":[]}`
			default:
				return `{"data":[` + coupon + `]}`
			}
			return `{"data":` + coupon + `}`
		})
	}
	blind := r.key(t, keys, `{"name":"sue","role":"support"}`)
	seeing := r.key(t, keys, `{"name":"sam","role":"support","codes":true}`)
	coupon, customer := `{"code":"`+seenCode+`","campaign":"summer","history":true}`, `{"customer_id":"c1","history":true}`
	for _, c := range []struct {
		who    string
		header []string
		sees   bool
	}{
		{"a key that sees no codes", info("OPS", blind.ID), false},
		{"a key that sees codes", info("OPS", seeing.ID), true},
		{"the credentials of the data directory", []string{topology.HeaderBy, "bob@ops2"}, true},
		{"a program of the servers' account", nil, true},
	} {
		for subject, body := range map[string]string{"scrip.coupon.show": coupon, "scrip.customer.show": customer} {
			reply := string(r.request(t, subject, body, c.header...).Data)
			stars := strings.Count(reply, `"code":"****-****-XW4T"`)
			if sees := strings.Count(reply, seenCode); c.sees && (sees != 2 || stars != 0) || !c.sees && (sees != 0 || stars != 2) {
				t.Errorf("%s, %s: %s", c.who, subject, reply)
			}
			if !strings.Contains(reply, `"benefit":{"code":"10 %"}`) || !strings.Contains(reply, `"what":"fired"`) {
				t.Errorf("%s, %s: %s", c.who, subject, reply)
			}
		}
	}
	// By campaign and n, which the entry shows.
	byN := `{"n":7,"campaign":"summer"}`
	if reply := string(r.request(t, "scrip.coupon.show", byN, info("OPS", blind.ID)...).Data); !strings.Contains(reply, `"code":"****-****-XW4T"`) || strings.Contains(reply, seenCode) {
		t.Errorf("by n: %s", reply)
	}
	r.request(t, "scrip.coupon.show", byN, info("OPS", seeing.ID)...)
	var log ops.Page[audit.Entry]
	r.data(t, &log, "scrip.audit.list", `{"kind":"lookup"}`)
	got := map[string]int{}
	for _, e := range log.Items {
		got[fmt.Sprintf("%s %s %s", e.Actor, e.Action, e.About)]++
	}
	for _, actor := range []string{"sam", "local:bob@ops2"} {
		if got[actor+" coupon summer 7"] != 1 || got[actor+" customer c1"] != 1 {
			t.Errorf("the audit stream has %v", got)
		}
	}
	if got["sam coupon summer 7 by n"] != 1 || len(got) != 5 {
		t.Errorf("the audit stream has %v", got)
	}
}
