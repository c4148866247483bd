package demo

import (
	"fmt"
	"strings"
	"testing"
)

// TestViolationsAreReported: the oracle's own tests are in package check; this one shows that the demo uses it for its
// campaigns only, and counts published reminders.
func TestViolationsAreReported(t *testing.T) {
	const (
		created = `{"type":"campaign.created","campaign":"c","number":1,"id":"1","at":"2026-01-01T00:00:00Z","codes":2,"per_customer":1,"max_redemptions":1,"expires_at":"2026-01-01T01:00:00Z"}`
		claimed = `{"type":"coupon.claimed","campaign":"c","id":"2","at":"2026-01-01T00:00:01Z","n":1,"code":"AAAA-AAAA-AAAA","customer_id":"alice"}`
		second  = `{"type":"coupon.claimed","campaign":"c","id":"3","at":"2026-01-01T00:00:01Z","n":2,"code":"AAAA-AAAA-AAAA","customer_id":"bob"}`
		due     = `{"type":"reminder.due","campaign":"c","at":"2026-01-01T00:00:01Z","kind":"opens","due_at":"2026-01-01T00:00:01Z","customer_id":"alice"}`
	)
	fold := func(lines ...string) (*Report, counts) {
		d := &show{sale: "c", log: newEvents("c")}
		for i, line := range lines {
			if err := d.log.fold(fmt.Sprint("line ", i+1), []byte(line)); err != nil {
				t.Fatal(err)
			}
		}
		return d.report(nil, "no SQL"), d.countLog()
	}
	good, n := fold(created, claimed, due, strings.ReplaceAll(second, `"c"`, `"other"`))
	if len(good.Wrong) > 0 || n["holders of one code, at most"] != 1 || n["coupons in status claimed"] != 1 {
		t.Errorf("%q, %v", good.Wrong, n)
	}
	if n["customers reminded exactly once"] != 1 || n["customers reminded more than once"] != 0 {
		t.Errorf("%v", n)
	}
	bad, n := fold(created, claimed, second, due, due)
	if got := fmt.Sprint(bad.Wrong); bad.OK() || !strings.Contains(got, "line 3: code AAAA-AAAA-AAAA is claimed as c/1 and as c/2") || n["holders of one code, at most"] != 2 {
		t.Errorf("%s, %v", got, n)
	}
	if n["customers reminded exactly once"] != 0 || n["customers reminded more than once"] != 1 {
		t.Errorf("%v", n)
	}
	for _, p := range bad.Promises {
		if strings.HasPrefix(p.Name, "holders") && (p.OK || p.Log != "2" || p.Answers != "" || p.SQL != "") {
			t.Errorf("%+v", p)
		}
	}
	if err := newEvents("c").fold("line 1", []byte("{")); err == nil {
		t.Error("half a line was folded")
	}
}
