package demo

import (
	"fmt"
	"strings"
	"testing"
)

// TestTheLedgerSeesLies: each log breaks one promise, and the ledger says which.
func TestTheLedgerSeesLies(t *testing.T) {
	const (
		created  = `{"type":"campaign.created","campaign":"c","at":"2026-01-01T00:00:00Z","expires_at":"2026-01-01T01:00:00Z"}`
		claimed  = `{"type":"coupon.claimed","campaign":"c","at":"2026-01-01T00:00:01Z","n":1,"code":"A","customer_id":"alice"}`
		redeemed = `{"type":"coupon.redeemed","campaign":"c","at":"2026-01-01T00:00:02Z","n":1,"code":"A","order_id":"1","redeemed_count":1}`
		set      = `{"type":"reminder.set","campaign":"c","at":"2026-01-01T00:00:01Z","r":1,"customer_id":"alice","kind":"opens","before":"1m0s","due_at":"2026-01-01T00:10:00Z"}`
		due      = `{"type":"reminders.due","campaign":"c","at":"2026-01-01T00:10:00Z","kind":"opens","due_at":"2026-01-01T00:10:00Z","from_r":1,"through_r":1,"fired":1,"dropped":0}`
	)
	for _, c := range []struct {
		name  string
		lines []string
		want  string // "" = nothing is wrong
	}{
		{"a good life", []string{created, claimed, redeemed, set, due}, ""},
		{"others' campaigns", []string{strings.ReplaceAll(redeemed, `"c"`, `"other"`)}, ""},
		{"rolled back and redeemed again", []string{created, claimed, redeemed,
			`{"type":"coupon.rolled_back","campaign":"c","at":"2026-01-01T00:00:03Z","n":1,"code":"A","order_id":"1","status":"claimed"}`, redeemed}, ""},
		{"two holders", []string{created, claimed, strings.NewReplacer(`"n":1`, `"n":2`, "alice", "bob").Replace(claimed)}, "code A went to alice and to bob"},
		{"claimed twice", []string{created, claimed, strings.ReplaceAll(claimed, `"A"`, `"B"`)}, "claimed twice"},
		{"redeemed twice", []string{created, claimed, redeemed, redeemed}, "redeemed 2 times"},
		{"redeemed without a claim", []string{created, redeemed}, "nobody has claimed"},
		{"redeemed at its end", []string{created, claimed, strings.Replace(redeemed, "00:00:02", "01:00:00", 1)}, "at or after its end"},
		{"expired early", []string{created, claimed, `{"type":"coupons.expired","campaign":"c","at":"2026-01-01T00:59:59Z","through":"2026-01-01T01:00:00Z","count":1}`}, "already at"},
		{"fired twice", []string{created, set, due, due}, "0 to settle"},
		{"fired early", []string{created, set, strings.Replace(due, `"at":"2026-01-01T00:10:00Z"`, `"at":"2026-01-01T00:09:59Z"`, 1)}, "before they were due"},
		{"fired after a cancel", []string{created, set, `{"type":"reminder.cancelled","campaign":"c","at":"2026-01-01T00:05:00Z","r":1}`, due}, "0 to settle"},
		{"fired more than there are", []string{created, set, strings.Replace(due, `"fired":1`, `"fired":2`, 1)}, "2 reminders were fired"},
	} {
		l := newLedger("c")
		for _, line := range c.lines {
			if err := l.fold([]byte(line)); err != nil {
				t.Fatal(err)
			}
		}
		got := fmt.Sprint(l.wrong)
		if c.want == "" && len(l.wrong) > 0 || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %q", c.name, got, c.want)
		}
	}
	if err := newLedger("c").fold([]byte("{")); err == nil {
		t.Error("half a line was folded")
	}
}

func TestStatusHasTheTablesPrecedence(t *testing.T) {
	l := newLedger("c")
	for _, line := range []string{
		`{"type":"campaign.created","campaign":"c","at":"2026-01-01T00:00:00Z","expires_at":"2026-01-01T01:00:00Z"}`,
		`{"type":"coupon.claimed","campaign":"c","n":1,"code":"A","customer_id":"a","at":"2026-01-01T00:00:00Z"}`,
		`{"type":"coupon.claimed","campaign":"c","n":2,"code":"B","customer_id":"b","at":"2026-01-01T00:00:00Z"}`,
		`{"type":"coupon.claimed","campaign":"c","n":3,"code":"C","customer_id":"c","at":"2026-01-01T00:00:00Z","expires_at":"2026-01-02T00:00:00Z"}`,
		`{"type":"coupon.claimed","campaign":"c","n":4,"code":"D","customer_id":"d","at":"2026-01-01T00:00:00Z"}`,
		`{"type":"coupon.redeemed","campaign":"c","n":1,"code":"A","order_id":"1","at":"2026-01-01T00:00:00Z"}`,
		`{"type":"coupon.voided","campaign":"c","n":2,"code":"B","at":"2026-01-01T00:00:00Z"}`,
		`{"type":"coupons.expired","campaign":"c","through":"2026-01-01T01:00:00Z","count":1,"at":"2026-01-01T01:00:00Z"}`,
	} {
		if err := l.fold([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.wrong) > 0 {
		t.Error(l.wrong)
	}
	for status, n := range map[string]int{"redeemed": 1, "voided": 1, "claimed": 1, "expired": 1} {
		if l.byStatus()[status] != n {
			t.Errorf("%d coupons are %s, want %d", l.byStatus()[status], status, n)
		}
	}
}
