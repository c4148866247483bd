package contract

import (
	"fmt"
	"strings"
	"testing"
)

// symbols of a generated code: no 0, 1, I, O.
const symbols = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"

// TestCodesAsPeopleTypeThem: lower case, spaces and hyphens are forgiven, and the prefix is for the eye only.
func TestCodesAsPeopleTypeThem(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":9,"prefix":"SUMMER"`)
	code := r.claim(t, c, "ann")
	bare, ok := strings.CutPrefix(code, "SUMMER-")
	if !ok {
		t.Fatalf("the code %s has no prefix", code)
	}
	joined := strings.ReplaceAll(bare, "-", "")
	for i, typed := range []string{code, bare, joined, strings.ToLower(code), strings.ToLower(joined), strings.ReplaceAll(bare, "-", " "),
		" " + code + " ", "SUMMER" + joined, "winter-" + bare, joined[:2] + "-" + joined[2:7] + "  " + joined[7:]} {
		want := fmt.Sprintf(`{"id":"v%d","status":"redeemed","campaign":"%s","n":1,"code":"%s","redeemed_count":1}`, i, c, code)
		match(t, r.request(t, "scrip.coupon.validate", fmt.Sprintf(`{"id":"v%d","code":"%s"}`, i, typed)), want)
	}
	match(t, r.request(t, "scrip.redeem", `{"id":"r","order_id":"o","code":"`+strings.ToLower(joined)+`"}`),
		`{"id":"r","status":"redeemed","campaign":"`+c+`","n":1,"code":"`+code+`","?order_id":"o","redeemed_count":1}`)
}

// TestCodesThatAreNone: malformed, unclaimed and forged ones are alike, on every command and way.
func TestCodesThatAreNone(t *testing.T) {
	r := server(t)
	c, other := r.campaign(t, `"codes":9`), r.campaign(t, `"codes":9`)
	code := r.claim(t, c, "ann")
	r.claim(t, other, "ann")
	joined := strings.ReplaceAll(code, "-", "")
	wrong := []string{"ABCD-EFGH-JKLM", "7KQ2-9F3M-XW4T", "x", "0000-0000-0000", "IIII-OOOO-1111", joined[:11], "äöü", "'; drop table", joined + "Ä",
		joined[1:] + joined[:1]}
	for i := range joined { // one symbol wrong, at every place
		next := symbols[(strings.IndexByte(symbols, joined[i])+1)%len(symbols)]
		wrong = append(wrong, joined[:i]+string(next)+joined[i+1:])
	}
	for i, w := range wrong {
		answer := r.request(t, "scrip.redeem", fmt.Sprintf(`{"id":"f%d","code":"%s","order_id":"o"}`, i, w))
		match(t, answer, fmt.Sprintf(`{"id":"f%d","status":"refused","refusal":"code_not_found","message":"~text"}`, i))
	}
	for _, ask := range []struct{ subject, fields string }{
		{"scrip.rollback", `,"order_id":"o"`}, {"scrip.void", ``}, {"scrip.extend", `,"expires_at":"2031-01-01T00:00:00Z"`}, {"scrip.coupon.validate", ``},
	} {
		for _, w := range []string{"ABCD-EFGH-JKLM", "x"} {
			match(t, r.request(t, ask.subject, fmt.Sprintf(`{"id":"x","code":"%s"%s}`, w, ask.fields)), `{"id":"x","status":"refused","refusal":"code_not_found","message":"~text"}`)
		}
	}
	match(t, r.request(t, "scrip.coupon.show", `{"code":"ABCD-EFGH-JKLM"}`), `{"status":"refused","refusal":"code_not_found","message":"~text"}`)
	// Over the log, and with a campaign that it is not of.
	match(t, r.one(t, "scrip.cmd."+c, `{"id":"x","type":"redeem","code":"ABCD-EFGH-JKLM","order_id":"o"}`),
		`{"id":"x","status":"refused","refusal":"code_not_found","message":"~text","campaign":"`+c+`"}`)
	for _, campaign := range []string{other, r.name()} {
		match(t, r.request(t, "scrip.redeem", fmt.Sprintf(`{"id":"x","code":"%s","order_id":"o","campaign":"%s"}`, code, campaign)),
			`{"id":"x","status":"refused","refusal":"code_not_found","message":"~text","campaign":"`+campaign+`"}`)
	}
	match(t, r.request(t, "scrip.redeem", fmt.Sprintf(`{"id":"ok","code":"%s","order_id":"o","campaign":"%s"}`, code, c)),
		`{"id":"ok","status":"redeemed","campaign":"`+c+`","n":1,"code":"`+code+`","?order_id":"o","redeemed_count":1}`)
}

// TestImportedCodesNeedTheirCampaign: without it nobody can tell whose they are, and the answer says so.
func TestImportedCodesNeedTheirCampaign(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":0`)
	bySubject(t, r, c, "import_codes", "i", `"codes":["HELLO"]`)
	r.claim(t, c, "ann")
	match(t, r.request(t, "scrip.redeem", `{"id":"x","code":"HELLO","order_id":"o"}`),
		`{"id":"x","status":"refused","refusal":"code_not_found","message":"~has:campaign"}`)
	match(t, r.request(t, "scrip.redeem", `{"id":"y","code":"hello","order_id":"o","campaign":"`+c+`"}`),
		`{"id":"y","status":"redeemed","campaign":"`+c+`","n":1,"code":"HELLO","?order_id":"o","redeemed_count":1}`)
	// A campaign of generated codes takes none.
	made := r.campaign(t, `"codes":1`)
	match(t, bySubject(t, r, made, "import_codes", "i", `"codes":["HELLO"]`),
		`{"id":"i","status":"refused","refusal":"invalid","message":"~has:codes 0","campaign":"`+made+`"}`)
}
