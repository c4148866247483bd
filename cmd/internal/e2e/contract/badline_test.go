package contract

import (
	"fmt"
	"strings"
	"testing"
)

// badLine is a line that must be refused, with words of the answer: the field, and how to mend it.
type badLine struct {
	name, line string
	field      string // "" = the line itself
	mend       string
}

func claimWith(fields string) string {
	return `{"id":"x","type":"claim","campaign":"$c",` + fields + `}`
}

func createWith(fields string) string {
	return `{"id":"x","type":"create_campaign","campaign":"fresh-$c",` + fields + `}`
}

func long(n int) string { return strings.Repeat("x", n) }

var badLines = []badLine{
	// Not JSON, or not one object.
	{"words", `claim for ann please`, "", "JSON"},
	{"cut off", `{"id":"x","type":"claim","campaign":"$c","customer_id":"ann"`, "", "ends too early"},
	{"no string end", `{"id":"x","type":"claim","campaign":"$c","customer_id":"ann`, "", "ends too early"},
	{"array", `[{"id":"x","type":"claim","campaign":"$c","customer_id":"ann"}]`, "", "JSON"},
	{"null", `null`, "", "JSON"},
	{"two objects", claimWith(`"customer_id":"ann"`) + ` {}`, "", "after the JSON object"},
	{"no quotes", `{id:"x"}`, "", "JSON"},
	{"NaN", claimWith(`"customer_id":NaN`), "", "JSON"},
	{"comma at the end", claimWith(`"customer_id":"ann",`), "", "JSON"},
	{"not UTF-8", claimWith("\"customer_id\":\"\xff\xfe\""), "", "UTF-8"},
	{"half a surrogate pair", claimWith(`"customer_id":"\ud800"`), "customer_id", "surrogate"},
	{"a field twice", claimWith(`"customer_id":"ann","customer_id":"bob"`), "customer_id", "keep one"},

	// Unknown.
	{"type", `{"id":"x","type":"steal","campaign":"$c"}`, "type", "claim"},
	{"type by case", `{"id":"x","type":"Claim","campaign":"$c","customer_id":"ann"}`, "type", "claim"},
	{"field", claimWith(`"customer_id":"ann","colour":"red"`), "colour", "remove"},
	{"field by case", claimWith(`"Customer_ID":"ann"`), "Customer_ID", "remove"},
	{"field of another command", claimWith(`"customer_id":"ann","order_id":"o"`), "order_id", "remove"},

	// Missing.
	{"no id", `{"type":"claim","campaign":"$c","customer_id":"ann"}`, "id", "missing"},
	{"no type", `{"id":"x","campaign":"$c","customer_id":"ann"}`, "type", "missing"},
	{"no campaign", `{"id":"x","type":"claim","customer_id":"ann"}`, "campaign", "missing"},
	{"no customer", `{"id":"x","type":"claim","campaign":"$c"}`, "customer_id", "missing"},
	{"no code", `{"id":"x","type":"redeem","campaign":"$c","order_id":"o"}`, "code", "missing"},
	{"no order", `{"id":"x","type":"redeem","campaign":"$c","code":"ABCD"}`, "order_id", "missing"},
	{"no new end", `{"id":"x","type":"extend","campaign":"$c","code":"ABCD"}`, "expires_at", "missing"},
	{"no kind", `{"id":"x","type":"remind","campaign":"$c","customer_id":"ann","before":"1m"}`, "kind", "missing"},
	{"no before", `{"id":"x","type":"remind","campaign":"$c","customer_id":"ann","kind":"opens"}`, "before", "missing"},
	{"no codes", `{"id":"x","type":"create_campaign","campaign":"fresh-$c"}`, "codes", "missing"},
	{"no codes to import", `{"id":"x","type":"import_codes","campaign":"$c"}`, "codes", "missing"},
	{"nothing to update", `{"id":"x","type":"update_campaign","campaign":"$c"}`, "", "at least one setting"},
	{"empty id", `{"id":"","type":"claim","campaign":"$c","customer_id":"ann"}`, "id", "empty"},
	{"empty customer", claimWith(`"customer_id":""`), "customer_id", "empty"},
	{"no type of its own", claimWith(`"customer_id":null`), "customer_id", "string"},

	// Too long, of the wrong kind, or with control characters.
	{"long id", `{"id":"` + long(65) + `","type":"claim","campaign":"$c","customer_id":"ann"}`, "id", "at most 64"},
	{"long customer", claimWith(`"customer_id":"` + long(129) + `"`), "customer_id", "at most 128"},
	{"long customer in bytes", claimWith(`"customer_id":"` + strings.Repeat("ä", 65) + `"`), "customer_id", "at most 128"},
	{"long order", `{"id":"x","type":"redeem","campaign":"$c","code":"ABCD","order_id":"` + long(129) + `"}`, "order_id", "at most 128"},
	{"long attributes", claimWith(`"customer_id":"ann","attributes":{"a":"` + long(1020) + `"}`), "attributes", "at most 1024"},
	{"deep attributes", claimWith(`"customer_id":"ann","attributes":{"a":{"b":1}}`), "attributes", "flat"},
	{"list of attributes", claimWith(`"customer_id":"ann","attributes":["a"]`), "attributes", "flat"},
	{"long benefit", createWith(`"codes":1,"benefit":"` + long(511) + `"`), "benefit", "at most 512"},
	{"number for a customer", claimWith(`"customer_id":7`), "customer_id", "string"},
	{"number for an id", `{"id":7,"type":"claim","campaign":"$c","customer_id":"ann"}`, "id", "string"},
	{"control character", claimWith(`"customer_id":"a\u0000b"`), "customer_id", "printable"},
	{"line break", claimWith(`"customer_id":"a\nb"`), "customer_id", "printable"},
	{"raw tab", claimWith("\"customer_id\":\"a\tb\""), "", "control"},
	{"escape sequence", claimWith(`"customer_id":"\u001b[31m"`), "customer_id", "printable"},
	{"delete", claimWith(`"customer_id":"a\u007f"`), "customer_id", "printable"},
	{"right to left", claimWith(`"customer_id":"a\u202eb"`), "customer_id", "printable"},
	{"control character in an order", `{"id":"x","type":"redeem","campaign":"$c","code":"ABCD","order_id":"\u0007"}`, "order_id", "printable"},
	{"control character in an id", `{"id":"\u0007","type":"claim","campaign":"$c","customer_id":"ann"}`, "id", "printable"},
	{"unknown kind", `{"id":"x","type":"remind","campaign":"$c","customer_id":"ann","kind":"closes","before":"1m"}`, "kind", "opens or expires"},
	{"unknown priority", createWith(`"codes":1,"priority":"urgent"`), "priority", "high, normal or low"},
	{"bad imported code", `{"id":"x","type":"import_codes","campaign":"$c","codes":["GOOD","n ope!"]}`, "codes", "code 2"},
	{"short imported code", `{"id":"x","type":"import_codes","campaign":"$c","codes":["AB"]}`, "codes", "3 to 64"},

	// Names of campaigns.
	{"dotted name", `{"id":"x","type":"claim","campaign":"a.b","customer_id":"ann"}`, "campaign", "A-Z a-z 0-9 _ -"},
	{"name with a space", `{"id":"x","type":"claim","campaign":"a b","customer_id":"ann"}`, "campaign", "A-Z a-z 0-9 _ -"},
	{"name with a wildcard", `{"id":"x","type":"claim","campaign":"*","customer_id":"ann"}`, "campaign", "A-Z a-z 0-9 _ -"},
	{"name with an umlaut", `{"id":"x","type":"claim","campaign":"sömmer","customer_id":"ann"}`, "campaign", "A-Z a-z 0-9 _ -"},
	{"empty name", `{"id":"x","type":"claim","campaign":"","customer_id":"ann"}`, "campaign", "A-Z a-z 0-9 _ -"},
	{"long name", `{"id":"x","type":"claim","campaign":"` + long(65) + `","customer_id":"ann"}`, "campaign", "1 to 64"},

	// Times and numbers.
	{"a word for a time", createWith(`"codes":1,"expires_at":"tomorrow"`), "expires_at", "RFC 3339"},
	{"thirteenth month", createWith(`"codes":1,"expires_at":"2031-13-01T00:00:00Z"`), "expires_at", "RFC 3339"},
	{"no such day", createWith(`"codes":1,"expires_at":"2031-02-29T00:00:00Z"`), "expires_at", "RFC 3339"},
	{"a date alone", createWith(`"codes":1,"expires_at":"2031-01-01"`), "expires_at", "RFC 3339"},
	{"no zone", createWith(`"codes":1,"expires_at":"2031-01-01T00:00:00"`), "expires_at", "RFC 3339"},
	{"a number for a time", createWith(`"codes":1,"expires_at":1924992000`), "expires_at", "RFC 3339"},
	{"from now", createWith(`"codes":1,"expires_at":"+10m"`), "expires_at", "RFC 3339"},
	{"year 12000", createWith(`"codes":1,"expires_at":"12000-01-01T00:00:00Z"`), "expires_at", "RFC 3339"},
	{"past", createWith(`"codes":1,"expires_at":"2020-01-01T00:00:00Z"`), "expires_at", "future"},
	{"closed already", createWith(`"codes":1,"closes_at":"2020-01-01T00:00:00Z"`), "closes_at", "future"},
	{"closes before it opens", createWith(`"codes":1,"opens_at":"2031-01-02T00:00:00Z","closes_at":"2031-01-01T00:00:00Z"`), "closes_at", "after opens_at"},
	{"closes as it opens", createWith(`"codes":1,"opens_at":"2031-01-02T00:00:00Z","closes_at":"2031-01-02T00:00:00Z"`), "closes_at", "after opens_at"},
	{"expires before it opens", createWith(`"codes":1,"opens_at":"2031-01-02T00:00:00Z","expires_at":"2031-01-01T00:00:00Z"`), "expires_at", "after opens_at"},
	{"closes after it expires", createWith(`"codes":1,"closes_at":"2031-01-02T00:00:00Z","expires_at":"2031-01-01T00:00:00Z"`), "closes_at", "expires_at"},
	{"two ends", createWith(`"codes":1,"valid_for":"1h","expires_at":"2031-01-01T00:00:00Z"`), "valid_for", "not both"},
	{"negative codes", createWith(`"codes":-1`), "codes", "whole number"},
	{"codes and a half", createWith(`"codes":1.5`), "codes", "whole number"},
	{"codes as text", createWith(`"codes":"5"`), "codes", "whole number"},
	{"codes beyond counting", createWith(`"codes":99999999999999999999`), "codes", "whole number"},
	{"negative per customer", createWith(`"codes":1,"per_customer":-1`), "per_customer", "whole number"},
	{"never to be redeemed", createWith(`"codes":1,"max_redemptions":0`), "max_redemptions", "whole number from 1"},
	{"negative redemptions", createWith(`"codes":1,"max_redemptions":-2`), "max_redemptions", "whole number"},
	{"negative life", createWith(`"codes":1,"valid_for":"-1h"`), "valid_for", "between"},
	{"days", createWith(`"codes":1,"valid_for":"3d"`), "valid_for", "72h"},
	{"negative before", `{"id":"x","type":"remind","campaign":"$c","customer_id":"ann","kind":"opens","before":"-1m"}`, "before", "between"},
	{"before as a number", `{"id":"x","type":"remind","campaign":"$c","customer_id":"ann","kind":"opens","before":60}`, "before", "1m"},
	{"codes that shrink", `{"id":"x","type":"update_campaign","campaign":"$c","codes":2}`, "codes", "only grow"},
	{"extended into the past", `{"id":"x","type":"extend","campaign":"$c","code":"$1","expires_at":"2020-01-01T00:00:00Z"}`, "expires_at", "future"},
}

// TestBadLines: each is refused as invalid, saying which field and how to mend it, and parked.
func TestBadLines(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":5,"expires_at":"2031-01-01T00:00:00Z"`)
	code := r.claim(t, c, "holder")
	for _, bad := range badLines {
		line := fill(bad.line, "$c", c, "$1", code)
		outcome := parse(t, r.one(t, fmt.Sprintf("scrip.lane.%d.cmd", r.laneOfLine(c, line)), line))
		message, _ := outcome["message"].(string)
		if outcome["status"] != "refused" || outcome["refusal"] != "invalid" {
			t.Errorf("%s: %v", bad.name, outcome)
			continue
		}
		if bad.field != "" && !strings.HasPrefix(message, bad.field+":") || !strings.Contains(message, bad.mend) {
			t.Errorf("%s: the message %q should name %q and say %q", bad.name, message, bad.field, bad.mend)
		}
		if id, given := outcome["id"]; given && id != "x" && id != long(65) {
			t.Errorf("%s: the answer has id %q", bad.name, id)
		}
	}
	// The lane goes on, and nothing of it happened.
	match(t, r.request(t, "scrip.claim."+c, `{"id":"next","customer_id":"ann"}`),
		`{"id":"next","status":"claimed","campaign":"`+c+`","n":2,"code":"~code","expires_at":"2031-01-01T00:00:00Z","?customer_id":"ann"}`)
	matchRows(t, r.rows(t, `SELECT count(*) FROM scrip.campaign WHERE campaign = $1`, "fresh-"+c), `{"count":0}`)
}

// laneOfLine is the lane a sender would choose for a line about the campaign, or about the one not created yet.
func (r *rig) laneOfLine(campaign, line string) int {
	if strings.Contains(line, `"fresh-`+campaign+`"`) {
		return r.lane("fresh-" + campaign)
	}
	return r.lane(campaign)
}

// TestBadRequests: the same lines as requests are ordinary replies, refused in the same words.
func TestBadRequests(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":5`)
	for _, bad := range []struct{ subject, body, field, mend string }{
		{"claim.$c", `nonsense`, "", "JSON"},
		{"claim.$c", ``, "", "JSON"},
		{"claim.$c", `{}`, "customer_id", "missing"},
		{"claim.$c", `{"customer_id":""}`, "customer_id", "empty"},
		{"claim.$c", `{"customer_id":"` + long(129) + `"}`, "customer_id", "at most 128"},
		{"claim.$c", `{"customer_id":"a\u0000"}`, "customer_id", "printable"},
		{"claim.$c", `{"customer_id":"ann","colour":1}`, "colour", "remove"},
		{"claim.$c", `{"customer_id":"ann","type":"redeem"}`, "type", "leave it out or give claim"},
		{"claim.$c", `{"customer_id":"ann","campaign":"other"}`, "campaign", "subject"},
		{"claim.$c", `{"customer_id":"ann","id":"` + long(65) + `"}`, "id", "at most 64"},
		{"claim.$c", `{"customer_id":"ann"` + strings.Repeat(" ", 16<<10) + `}`, "", "at most 16384"},
		{"claim.b%c", `{"customer_id":"ann"}`, "campaign", "A-Z a-z 0-9 _ -"},
		{"claim." + long(65), `{"customer_id":"ann"}`, "campaign", "1 to 64"},
		{"redeem", `{"code":"ABCD"}`, "order_id", "missing"},
		{"extend", `{"code":"ABCD","expires_at":"soon"}`, "expires_at", "RFC 3339"},
		{"remind.$c", `{"customer_id":"ann","kind":"opens","before":"1 minute"}`, "before", "1m"},
		{"campaign.create", `{"codes":1}`, "campaign", "missing"},
		{"campaign.create", `{"campaign":"a/b","codes":1}`, "campaign", "A-Z a-z 0-9 _ -"},
		{"campaign.create", `{"campaign":"$c-2","codes":-5}`, "codes", "whole number"},
		{"campaign.pause", `{"campaign":"$c","reason":"rain"}`, "reason", "remove"},
		{"campaign.show", `{}`, "campaign", "missing"},
		{"campaign.show", `{"campaign":"$c","deep":true}`, "deep", "unknown field"},
		{"coupon.show", `{"code":7}`, "code", "string"},
		{"coupon.validate", `{"order_id":"o"}`, "code", "missing"},
		{"customer.show", `[]`, "", "JSON"},
	} {
		answer := parse(t, r.request(t, "scrip."+fill(bad.subject, "$c", c), fill(bad.body, "$c", c)))
		message, _ := answer["message"].(string)
		if answer["status"] != "refused" || answer["refusal"] != "invalid" || !strings.HasPrefix(message, bad.field) || !strings.Contains(message, bad.mend) {
			t.Errorf("%s %.80s: %v, want invalid naming %q and saying %q", bad.subject, bad.body, answer, bad.field, bad.mend)
		}
	}
}
