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
	fold := func(lines ...string) *folded {
		l := newFolded("c")
		for i, line := range lines {
			if err := l.fold(fmt.Sprint("line ", i+1), []byte(line)); err != nil {
				t.Fatal(err)
			}
		}
		return l
	}
	good := fold(created, claimed, due, strings.ReplaceAll(second, `"c"`, `"other"`))
	if len(good.violations()) > 0 || good.holders() != 1 || good.byStatus()["claimed"] != 1 {
		t.Errorf("%q, %d holders, %v", good.violations(), good.holders(), good.byStatus())
	}
	if once, more := good.publishedOnce("c"); once != 1 || more != 0 {
		t.Errorf("published once %d, more often %d", once, more)
	}
	bad := fold(created, claimed, second, due, due)
	if got := fmt.Sprint(bad.violations()); !strings.Contains(got, "line 3: code AAAA-AAAA-AAAA is claimed as c/1 and as c/2") || bad.holders() != 2 {
		t.Errorf("%s, %d holders", got, bad.holders())
	}
	if once, more := bad.publishedOnce("c"); once != 0 || more != 1 {
		t.Errorf("published once %d, more often %d", once, more)
	}
	if err := newFolded("c").fold("line 1", []byte("{")); err == nil {
		t.Error("half a line was folded")
	}
}
