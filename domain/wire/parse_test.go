package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// with returns a claim line with fields added or, where the name is there already, replaced.
func with(base, name, raw string) string {
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(base), &m); err != nil {
		panic(err)
	}
	if raw == "" {
		delete(m, name)
	} else {
		m[name] = json.RawMessage(raw)
	}
	// By hand: package json would refuse the values that are to be refused.
	var b strings.Builder
	b.WriteByte('{')
	for k, v := range m {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", k, v)
	}
	return b.String() + "}"
}

const (
	aClaim  = `{"id":"a","type":"claim","campaign":"s","customer_id":"ann"}`
	aRedeem = `{"id":"a","type":"redeem","code":"AAAA-BBBB-CCCC","order_id":"o"}`
	aCreate = `{"id":"a","type":"create_campaign","campaign":"s","codes":5}`
	anUpdt  = `{"id":"a","type":"update_campaign","campaign":"s"}`
	aRemind = `{"id":"a","type":"remind","campaign":"s","customer_id":"ann","kind":"opens","before":"1m"}`
	anImprt = `{"id":"a","type":"import_codes","campaign":"s","codes":["ABC-1"]}`
	anExtnd = `{"id":"a","type":"extend","code":"x","expires_at":"2026-11-27T00:00:00Z"}`
	anExpir = `{"id":"a","type":"expire","campaign":"s","through":"2026-11-27T00:00:00Z"}`
	aDue    = `{"id":"a","type":"remind_due","campaign":"s","kind":"opens","due_at":"2026-11-27T00:00:00Z","through_r":1}`
)

func TestParseCommandNamesTheFieldAndTheMend(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	for _, tc := range []struct{ name, line, field, mend string }{
		{"nothing", ``, "", "one JSON object"},
		{"not JSON", `claim ann`, "", "one JSON object"},
		{"an array", `[` + aClaim + `]`, "", "one JSON object"},
		{"cut off", aClaim[:30], "", "ends too early"},
		{"two objects", aClaim + aClaim, "", "something after"},
		{"a comma too many", `{"id":"a",}`, "", "not valid JSON"},
		{"no quotes", `{id:"a"}`, "", "not valid JSON"},
		{"single quotes", `{'id':'a'}`, "", "not valid JSON"},
		{"a comment", `{"id":"a"/*x*/}`, "", "not valid JSON"},
		{"a raw tab in a string", "{\"id\":\"a\tb\"}", "", "control character"},
		{"a bad escape", `{"id":"\x"}`, "", "not valid JSON"},
		{"invalid UTF-8", "{\"id\":\"\xff\"}", "", "UTF-8"},
		{"nested deeply", with(aClaim, "attributes", strings.Repeat("[", 20)+strings.Repeat("]", 20)), "", "nested too deeply"},
		{"16 KiB + 1", aClaim + strings.Repeat(" ", MaxLine+1-len(aClaim)), "", "at most 16384"},
		{"an unknown field", with(aClaim, "colour", `1`), "colour", "remove it"},
		{"another case", with(aClaim, "Campaign", `"s"`), "Campaign", "remove it"},
		{"an escaped name", `{"\u0069d":"a","type":"claim","campaign":"s","customer_id":"ann"}`, `\u0069d`, "remove it"},
		{"a field of another command", with(aClaim, "code", `"x"`), "code", "does not belong to claim; remove it"},
		{"given twice", `{"id":"a","id":"b","type":"claim","campaign":"s","customer_id":"ann"}`, "id", "given twice; keep one"},
		{"given twice, the same", `{"id":"a","type":"claim","type":"claim","campaign":"s","customer_id":"ann"}`, "type", "given twice; keep one"},

		{"no id", with(aClaim, "id", ""), "id", "missing; give each command an id"},
		{"id empty", with(aClaim, "id", `""`), "id", "must not be empty"},
		{"id too long", with(aClaim, "id", long(65)), "id", "at most 64"},
		{"id a number", with(aClaim, "id", `7`), "id", "must be a string"},
		{"id null", with(aClaim, "id", `null`), "id", "must be a string"},
		{"id with a control character", with(aClaim, "id", `"a\u0000b"`), "id", "printable"},
		{"id with half a pair", with(aClaim, "id", `"a\ud800"`), "id", "surrogate"},

		{"no type", with(aClaim, "type", ""), "type", "missing; give one"},
		{"type unknown", with(aClaim, "type", `"clain"`), "type", "unknown type"},
		{"type in another case", with(aClaim, "type", `"CLAIM"`), "type", "unknown type"},
		{"type escaped", with(aClaim, "type", `"\u0063laim"`), "type", "unknown type"},
		{"type an event's", with(aClaim, "type", `"coupon.claimed"`), "type", "unknown type"},
		{"type a number", with(aClaim, "type", `1`), "type", "must be a string"},

		{"no campaign", with(aClaim, "campaign", ""), "campaign", "missing; claim needs it"},
		{"campaign empty", with(aClaim, "campaign", `""`), "campaign", "must be 1 to 64"},
		{"campaign too long", with(aClaim, "campaign", long(65)), "campaign", "must be 1 to 64"},
		{"campaign with a dot", with(aClaim, "campaign", `"a.b"`), "campaign", "must be 1 to 64"},
		{"campaign with a star", with(aClaim, "campaign", `"*"`), "campaign", "must be 1 to 64"},
		{"campaign with an umlaut", with(aClaim, "campaign", `"größe"`), "campaign", "must be 1 to 64"},
		{"campaign a number", with(aClaim, "campaign", `5`), "campaign", "must be a string"},

		{"no customer", with(aClaim, "customer_id", ""), "customer_id", "missing"},
		{"customer empty", with(aClaim, "customer_id", `""`), "customer_id", "must not be empty"},
		{"customer too long", with(aClaim, "customer_id", long(129)), "customer_id", "at most 128"},
		{"customer a number", with(aClaim, "customer_id", `12`), "customer_id", "must be a string"},
		{"customer an object", with(aClaim, "customer_id", `{}`), "customer_id", "must be a string"},
		{"customer with a newline", with(aClaim, "customer_id", `"a\nb"`), "customer_id", "printable"},
		{"customer with DEL", with(aClaim, "customer_id", `"a\u007f"`), "customer_id", "printable"},
		{"customer with a zero width space", with(aClaim, "customer_id", `"a\u200b"`), "customer_id", "printable"},

		{"attributes a string", with(aClaim, "attributes", `"x"`), "attributes", "flat JSON object"},
		{"attributes an array", with(aClaim, "attributes", `[1]`), "attributes", "flat JSON object"},
		{"attributes nested", with(aClaim, "attributes", `{"a":{}}`), "attributes", "the object is flat"},
		{"attributes with a list", with(aClaim, "attributes", `{"a":[1]}`), "attributes", "the object is flat"},
		{"attributes with null", with(aClaim, "attributes", `{"a":null}`), "attributes", "string, number or boolean"},
		{"attributes too long", with(aClaim, "attributes", `{"a":`+long(1020)+`}`), "attributes", "at most 1024"},
		{"attributes with a name twice", with(aClaim, "attributes", `{"a":1,"\u0061":2}`), "attributes", "twice"},
		{"attributes with an empty name", with(aClaim, "attributes", `{"":1}`), "attributes", "names"},
		{"attributes with a control character", with(aClaim, "attributes", `{"a":"\u0000"}`), "attributes", "printable"},

		{"no code", with(aRedeem, "code", ""), "code", "missing"},
		{"code empty", with(aRedeem, "code", `""`), "code", "must not be empty"},
		{"code too long", with(aRedeem, "code", long(129)), "code", "at most 128"},
		{"code a number", with(aRedeem, "code", `123`), "code", "must be a string"},
		{"no order", with(aRedeem, "order_id", ""), "order_id", "missing"},
		{"order too long", with(aRedeem, "order_id", long(129)), "order_id", "at most 128"},
		{"reason of a redeem", with(aRedeem, "reason", `"x"`), "reason", "does not belong to redeem"},

		{"codes missing", with(aCreate, "codes", ""), "codes", "missing"},
		{"codes negative", with(aCreate, "codes", `-1`), "codes", "whole number from 0 to 1000000000"},
		{"codes a fraction", with(aCreate, "codes", `1.5`), "codes", "whole number"},
		{"codes with an exponent", with(aCreate, "codes", `1e3`), "codes", "whole number"},
		{"codes a string", with(aCreate, "codes", `"5"`), "codes", "whole number"},
		{"codes null", with(aCreate, "codes", `null`), "codes", "whole number"},
		{"codes an array", with(aCreate, "codes", `["ABC"]`), "codes", "whole number"},
		{"codes with a leading zero", with(aCreate, "codes", `05`), "", "not valid JSON"},
		{"codes too many", with(aCreate, "codes", `1000000001`), "codes", "whole number"},
		{"codes beyond 64 bits", with(aCreate, "codes", `99999999999999999999999`), "codes", "whole number"},
		{"per_customer negative", with(aCreate, "per_customer", `-1`), "per_customer", "whole number"},
		{"max_redemptions 0", with(aCreate, "max_redemptions", `0`), "max_redemptions", "whole number from 1"},
		{"opens_at a date", with(aCreate, "opens_at", `"2026-11-27"`), "opens_at", "RFC 3339"},
		{"opens_at a number", with(aCreate, "opens_at", `1795737600`), "opens_at", "RFC 3339"},
		{"opens_at relative", with(aCreate, "opens_at", `"+10m"`), "opens_at", "RFC 3339"},
		{"opens_at in 1969", with(aCreate, "opens_at", `"1969-12-31T00:00:00Z"`), "opens_at", "1970 and 9999"},
		{"opens_at in 1971", with(aCreate, "opens_at", `"1971-12-31T23:59:59Z"`), "opens_at", "not lie before 1972"},
		{"closes_at in the year 10000", with(aCreate, "closes_at", `"9999-12-31T23:59:59-01:00"`), "closes_at", "1970 and 9999"},
		{"30 February", with(aCreate, "expires_at", `"2026-02-30T00:00:00Z"`), "expires_at", "RFC 3339"},
		{"valid_for a number", with(aCreate, "valid_for", `72`), "valid_for", "duration such as"},
		{"valid_for in days", with(aCreate, "valid_for", `"3d"`), "valid_for", "duration such as"},
		{"valid_for negative", with(aCreate, "valid_for", `"-1h"`), "valid_for", "between 1s"},
		{"valid_for nothing", with(aCreate, "valid_for", `"0s"`), "valid_for", "between 1s"},
		{"valid_for for ever", with(aCreate, "valid_for", `"2000000h"`), "valid_for", "between 1s"},
		{"prefix with a space", with(aCreate, "prefix", `"A B"`), "prefix", "use only"},
		{"prefix too long", with(aCreate, "prefix", long(17)), "prefix", "at most 16"},
		{"category too long", with(aCreate, "category", long(65)), "category", "at most 64"},
		{"priority", with(aCreate, "priority", `"urgent"`), "priority", "high, normal or low"},
		{"benefit too long", with(aCreate, "benefit", long(511)), "benefit", "at most 512"},
		{"two ends", with(with(aCreate, "valid_for", `"1h"`), "expires_at", `"2026-11-27T00:00:00Z"`), "valid_for", "not both"},
		{"closes before it opens", with(with(aCreate, "opens_at", `"2026-11-27T00:00:00Z"`), "closes_at", `"2026-11-27T00:00:00Z"`), "closes_at", "after opens_at"},
		{"closes after it expires", with(with(aCreate, "closes_at", `"2026-11-28T00:00:00Z"`), "expires_at", `"2026-11-27T00:00:00Z"`), "closes_at", "not lie after expires_at"},
		{"an update of nothing", anUpdt, "", "nothing to update"},
		{"an update to codes null", with(anUpdt, "codes", `null`), "codes", "whole number"},

		{"kind unknown", with(aRemind, "kind", `"closes"`), "kind", "must be opens or expires"},
		{"kind missing", with(aRemind, "kind", ""), "kind", "missing"},
		{"before missing", with(aRemind, "before", ""), "before", "missing"},
		{"before negative", with(aRemind, "before", `"-1m"`), "before", "between 0s"},
		{"before more than a year", with(aRemind, "before", `"9999h"`), "before", "between 0s"},
		{"before a number", with(aRemind, "before", `60`), "before", "duration such as"},

		{"an import of nothing", with(anImprt, "codes", `[]`), "codes", "at least one code"},
		{"an import of a number", with(anImprt, "codes", `5`), "codes", "array"},
		{"an import of numbers", with(anImprt, "codes", `[1,2]`), "codes", "array"},
		{"an import of null", with(anImprt, "codes", `["ABC-1",null]`), "codes", "code 2"},
		{"an import of a short code", with(anImprt, "codes", `["ABC-1","x"]`), "codes", "code 2"},
		{"an import of a bad code", with(anImprt, "codes", `["AB€C"]`), "codes", "code 1"},

		{"extend to nothing", with(anExtnd, "expires_at", `null`), "expires_at", "RFC 3339"},
		{"extend without a time", with(anExtnd, "expires_at", ""), "expires_at", "missing"},
		{"expire without a time", with(anExpir, "through", ""), "through", "missing"},
		{"expire through a number", with(anExpir, "through", `1`), "through", "RFC 3339"},
		{"through_r 0", with(aDue, "through_r", `0`), "through_r", "whole number from 1"},
		{"through_r a string", with(aDue, "through_r", `"1"`), "through_r", "whole number"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c Command
			err := ParseCommand([]byte(tc.line), Defaults{}, &c)
			var bad *InvalidError
			if !errors.As(err, &bad) {
				t.Fatalf("%s\n gives %v", tc.line, err)
			}
			if bad.Field != tc.field || !strings.Contains(bad.Message, tc.mend) {
				t.Fatalf("%s\n gives field %q, %q; want %q and %q in it", tc.line, bad.Field, bad.Message, tc.field, tc.mend)
			}
			if !utf8.ValidString(bad.Error()) || len(bad.Error()) > 700 {
				t.Fatalf("the message is no message: %q", bad.Error())
			}
		})
	}
}

func TestParseCommandTakes(t *testing.T) {
	for _, line := range []string{
		aClaim, aRedeem, aCreate, with(anUpdt, "category", `null`), aRemind, anImprt, anExtnd, anExpir, aDue,
		" \t" + aClaim + " \r\n",
		with(aClaim, "attributes", `{}`),
		with(aClaim, "attributes", ` { "a" : "b" , "c" : -1.5e-7 , "d" : false } `),
		with(aClaim, "customer_id", `"漢字 \"ö\" \ud83c\udf89 \u00e9"`),
		with(aClaim, "id", `"`+strings.Repeat("x", 64)+`"`),
		with(aClaim, "customer_id", `"`+strings.Repeat("ö", 64)+`"`),
		with(aCreate, "benefit", `[1,{"a":null}]`),
		with(aCreate, "prefix", `""`),
		with(aCreate, "opens_at", `null`),
		with(aCreate, "expires_at", `"2026-11-27T01:00:00.1234567+01:00"`),
		with(anUpdt, "benefit", `null`),
		aClaim + strings.Repeat(" ", MaxLine-len(aClaim)),
		with(aDue, "due_at", `"1971-01-01T00:00:00Z"`), // a reminder a year before the earliest opening
	} {
		var c Command
		if err := ParseCommand([]byte(line), Defaults{}, &c); err != nil {
			t.Errorf("%.200s: %v", line, err)
		}
	}
	var c Command
	if err := ParseCommand([]byte(with(aClaim, "attributes", ` { "a" : "b" } `)), Defaults{}, &c); err != nil || string(c.Attributes) != `{"a":"b"}` {
		t.Errorf("attributes are kept as %s, %v", c.Attributes, err)
	}
	if err := ParseCommand([]byte(with(aClaim, "customer_id", `"\ud83c\udf89\\ud800"`)), Defaults{}, &c); err != nil || c.CustomerID != `🎉\ud800` {
		t.Errorf("customer is %q, %v", c.CustomerID, err)
	}
}

func TestDefaultsOfTheSubject(t *testing.T) {
	for _, tc := range []struct {
		name, line string
		def        Defaults
		field      string // of the refusal, "" = it is taken
	}{
		{"campaign from the subject", with(aClaim, "campaign", ""), Defaults{Campaign: "s"}, ""},
		{"campaign in both", aClaim, Defaults{Campaign: "s"}, ""},
		{"campaign against the subject", aClaim, Defaults{Campaign: "t"}, "campaign"},
		{"a bad campaign in the subject", with(aClaim, "campaign", ""), Defaults{Campaign: "größe"}, "campaign"},
		{"type implied", with(aClaim, "type", ""), Defaults{Type: Claim}, ""},
		{"type in both", aClaim, Defaults{Type: Claim}, ""},
		{"type against the endpoint", aClaim, Defaults{Type: Redeem}, "type"},
		{"id made by the service", with(aClaim, "id", ""), Defaults{NoID: true}, ""},
		{"a bad id is bad there too", with(aClaim, "id", `""`), Defaults{NoID: true}, "id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c Command
			err := ParseCommand([]byte(tc.line), tc.def, &c)
			var bad *InvalidError
			switch {
			case tc.field == "" && err != nil:
				t.Fatal(err)
			case tc.field == "" && (c.Campaign != "s" || c.Type != Claim):
				t.Fatalf("read as %+v", c)
			case tc.field != "" && (!errors.As(err, &bad) || bad.Field != tc.field):
				t.Fatalf("got %v, want a refusal of %s", err, tc.field)
			}
		})
	}
}

func TestARefusalCarriesTheIDWhereverItStands(t *testing.T) {
	var c Command
	if err := ParseCommand([]byte(`{"colour":1,"campaign":"s","type":"clain","id":"late"}`), Defaults{}, &c); err == nil || c.ID != "late" || c.Campaign != "s" {
		t.Fatalf("%+v, %v", c, err)
	}
	if err := ParseCommand([]byte(`{"id":"a\u0000","campaign":"a.b"}`), Defaults{}, &c); err == nil || c.ID != "" || c.Campaign != "" {
		t.Fatalf("a bad id is passed on: %+v, %v", c, err)
	}
}

// FuzzParseCommand: whatever comes is taken or refused with a message, and what is taken can be written and read again.
func FuzzParseCommand(f *testing.F) {
	for _, line := range []string{aClaim, aRedeem, aCreate, anUpdt, aRemind, anImprt, anExtnd, anExpir, aDue,
		with(aClaim, "attributes", `{"a":"\u00e9","b":-1.5e7}`), with(aCreate, "benefit", `[{"a":"\ud83c\udf89"}]`), with(anUpdt, "expires_at", "null")} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var c, back Command
		err := ParseCommand(line, Defaults{}, &c)
		if err != nil {
			var bad *InvalidError
			if !errors.As(err, &bad) || bad.Message == "" || !utf8.ValidString(c.ID) {
				t.Fatalf("%q gives %v", line, err)
			}
			return
		}
		again := c.AppendJSON(nil)
		if len(again) > MaxLine {
			return // escapes may have been shorter
		}
		if err := ParseCommand(again, Defaults{}, &back); err != nil {
			t.Fatalf("%q is written as %q: %v", line, again, err)
		}
		if third := back.AppendJSON(nil); string(third) != string(again) {
			t.Fatalf("%q is written as %q, then as %q", line, again, third)
		}
	})
}

// FuzzParseEvent: no line makes a reader panic, and what was read can be written and read again.
func FuzzParseEvent(f *testing.F) {
	lines, err := os.ReadFile(golden)
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(lines) {
		f.Add(bytes.TrimSpace(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var ev, back Event
		if err := ParseEvent(line, &ev); err != nil {
			return
		}
		again := ev.AppendJSON(nil)
		if err := ParseEvent(again, &back); err != nil {
			t.Fatalf("%q is written as %q: %v", line, again, err)
		}
	})
}

// FuzzScannerAgreesWithEncodingJSON: the scanner takes no object that package json refuses, and refuses one that it
// takes only for what the scanner is stricter about.
func FuzzScannerAgreesWithEncodingJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, ` { "a" : [ 1 , -0.5e+7 , "x\u00e9\n" , true , null , {} ] } `, `{"a":01}`, `{"a":1.}`, `{"a":-}`, `{"a":"` + "\x7f" + `"}`, `{"a":nul}`, `{"":""}`, `{"a":1}x`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := object{data: data}
		var err error
		done := false
		for !done && err == nil {
			var raw []byte
			if _, raw, done, err = o.next(); err == nil && !done && !json.Valid(raw) {
				t.Fatalf("%q: the value %q is not valid", data, raw)
			}
		}
		var m map[string]json.RawMessage
		valid := json.Unmarshal(data, &m) == nil && m != nil
		if err == nil && !valid {
			t.Fatalf("%q is taken", data)
		}
		if err != nil && valid && !errors.Is(err, errTooDeep) {
			t.Fatalf("%q is refused: %v", data, err)
		}
	})
}
