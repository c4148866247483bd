package service

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// TestCodesInOutcomes: people without the right to see codes get them masked in answers to commands and validations. What
// others see without an event that names them is in the audit stream. Programs of a shop see the codes that they work with.
func TestCodesInOutcomes(t *testing.T) {
	r := newRig(t)
	_, keys := managed(t, r)
	for lane := range lanes {
		r.lane(t, lane, func(query) string { return `{"status":"redeemed","campaign":"summer","n":7,"code":"CODE-7"}` })
	}
	for _, c := range []struct {
		account, key string
		sees         bool
		recorded     []string
	}{
		{"OPS", `{"name":"blind","role":"operator"}`, false, nil},
		{"OPS", `{"name":"seeing","role":"operator","codes":true}`, true, []string{"coupon.validate summer 7", "claim summer 2"}},
		{"SHOP", `{"name":"shop","role":"producer"}`, true, nil},
	} {
		key := r.key(t, keys, c.key)
		as := info(c.account, key.ID)
		for range 2 { // the second one is a repeat
			if out := r.outcome(t, "scrip.claim.summer", `{"id":"`+key.ID+`","customer_id":"ann"}`, as...); strings.HasPrefix(out.Code, "CODE-") != c.sees || out.Code == "" {
				t.Errorf("%s: %+v", key.Name, out)
			}
		}
		if out := r.outcome(t, "scrip.coupon.validate", `{"code":"CODE-7","campaign":"summer"}`, as...); (out.Code == "CODE-7") != c.sees || out.N != 7 {
			t.Errorf("%s: %+v", key.Name, out)
		}
		var log ops.Page[audit.Entry]
		r.data(t, &log, "scrip.audit.list", `{"kind":"lookup","actor":"`+key.ID+`"}`)
		var got []string
		for _, e := range log.Items {
			got = append(got, e.Action+" "+e.About)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.recorded) {
			t.Errorf("%s: the audit stream has %v, want %v", key.Name, got, c.recorded)
		}
	}
}

// TestWrongCodesOfAKey: after too many wrong codes further ones of the key are refused unseen, in commands and in queries, right
// ones too. Other keys and requests without a code go on, and so does the servers' account.
func TestWrongCodesOfAKey(t *testing.T) {
	was := access.PerKey
	access.PerKey = access.Allowance{Burst: 3, PerMinute: 1e-3}
	t.Cleanup(func() { access.PerKey = was })
	r := newRig(t)
	_, keys := managed(t, r)
	for lane := range lanes {
		r.lane(t, lane, func(q query) string {
			if q.Code == "right" {
				return `{"status":"redeemed","campaign":"summer","n":7,"code":"right"}`
			}
			return `{"status":"refused","refusal":"code_not_found","message":"there is no such code"}`
		})
	}
	guesser, other := r.key(t, keys, `{"name":"guesser","role":"producer"}`), r.key(t, keys, `{"name":"other","role":"producer"}`)
	redeem, right := `{"code":"no code","order_id":"o"}`, `{"code":"right","campaign":"summer"}`
	as := info("SHOP", guesser.ID)
	is := func(want wire.Refusal, subject, body string, as ...string) {
		t.Helper()
		if out := r.outcome(t, subject, body, as...); out.Refusal != want {
			t.Errorf("%s %s: %+v", subject, body, out)
		}
	}
	is("", "scrip.coupon.validate", right, as...) // costs nothing
	is(wire.CodeNotFound, "scrip.redeem", redeem, as...)
	is(wire.CodeNotFound, "scrip.rollback", redeem, as...)
	is(wire.CodeNotFound, "scrip.coupon.validate", `{"code":"wrong","campaign":"summer"}`, as...)
	is("too_many_wrong_codes", "scrip.coupon.validate", right, as...)
	is("too_many_wrong_codes", "scrip.redeem", redeem, as...)
	is("", "scrip.claim.summer", `{"customer_id":"ann"}`, as...)
	is("", "scrip.coupon.validate", right, info("SHOP", other.ID)...)
	for range 5 {
		is(wire.CodeNotFound, "scrip.redeem", redeem)
	}
}
