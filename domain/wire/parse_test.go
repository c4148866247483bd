package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/linetest"
)

// byN names the coupon of a line by n and a campaign.
func byN(line, n, campaign string) string {
	return linetest.With(linetest.With(linetest.With(line, "code", ""), "n", n), "campaign", campaign)
}

func TestParseCommandNamesTheFieldAndTheMend(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	for _, tc := range []struct{ name, line, field, mend string }{
		{"nothing", ``, "", "one JSON object"},
		{"not JSON", `claim ann`, "", "one JSON object"},
		{"an array", `[` + linetest.Claim + `]`, "", "one JSON object"},
		{"cut off", linetest.Claim[:30], "", "ends too early"},
		{"two objects", linetest.Claim + linetest.Claim, "", "something after"},
		{"a comma too many", `{"id":"a",}`, "", "not valid JSON"},
		{"no quotes", `{id:"a"}`, "", "not valid JSON"},
		{"single quotes", `{'id':'a'}`, "", "not valid JSON"},
		{"a comment", `{"id":"a"/*x*/}`, "", "not valid JSON"},
		{"a raw tab in a string", "{\"id\":\"a\tb\"}", "", "control character"},
		{"a bad escape", `{"id":"\x"}`, "", "not valid JSON"},
		{"invalid UTF-8", "{\"id\":\"\xff\"}", "", "UTF-8"},
		{"nested deeply", linetest.With(linetest.Claim, "attributes", strings.Repeat("[", 20)+strings.Repeat("]", 20)), "", "nested too deeply"},
		{"16 KiB + 1", linetest.Claim + strings.Repeat(" ", MaxLine+1-len(linetest.Claim)), "", "at most 16384"},
		{"an unknown field", linetest.With(linetest.Claim, "colour", `1`), "colour", "remove it"},
		{"another case", linetest.With(linetest.Claim, "Campaign", `"s"`), "Campaign", "remove it"},
		{"an escaped name", `{"\u0069d":"a","type":"claim","campaign":"s","customer_id":"ann"}`, `\u0069d`, "remove it"},
		{"a field of another command", linetest.With(linetest.Claim, "code", `"x"`), "code", "does not belong to claim; remove it"},
		{"given twice", `{"id":"a","id":"b","type":"claim","campaign":"s","customer_id":"ann"}`, "id", "given twice; keep one"},
		{"given twice, the same", `{"id":"a","type":"claim","type":"claim","campaign":"s","customer_id":"ann"}`, "type", "given twice; keep one"},

		{"no id", linetest.With(linetest.Claim, "id", ""), "id", "missing; give each command an id"},
		{"id empty", linetest.With(linetest.Claim, "id", `""`), "id", "must not be empty"},
		{"id too long", linetest.With(linetest.Claim, "id", long(65)), "id", "at most 64"},
		{"id a number", linetest.With(linetest.Claim, "id", `7`), "id", "must be a string"},
		{"id null", linetest.With(linetest.Claim, "id", `null`), "id", "must be a string"},
		{"id with a control character", linetest.With(linetest.Claim, "id", `"a\u0000b"`), "id", "printable"},
		{"id with half a pair", linetest.With(linetest.Claim, "id", `"a\ud800"`), "id", "surrogate"},

		{"no type", linetest.With(linetest.Claim, "type", ""), "type", "missing; give one"},
		{"type unknown", linetest.With(linetest.Claim, "type", `"clain"`), "type", "unknown type"},
		{"type in another case", linetest.With(linetest.Claim, "type", `"CLAIM"`), "type", "unknown type"},
		{"type escaped", linetest.With(linetest.Claim, "type", `"\u0063laim"`), "type", "unknown type"},
		{"type an event's", linetest.With(linetest.Claim, "type", `"coupon.claimed"`), "type", "unknown type"},
		{"type a number", linetest.With(linetest.Claim, "type", `1`), "type", "must be a string"},

		{"no campaign", linetest.With(linetest.Claim, "campaign", ""), "campaign", "missing; claim needs it"},
		{"campaign empty", linetest.With(linetest.Claim, "campaign", `""`), "campaign", "must be 1 to 64"},
		{"campaign too long", linetest.With(linetest.Claim, "campaign", long(65)), "campaign", "must be 1 to 64"},
		{"campaign with a dot", linetest.With(linetest.Claim, "campaign", `"a.b"`), "campaign", "must be 1 to 64"},
		{"campaign with a star", linetest.With(linetest.Claim, "campaign", `"*"`), "campaign", "must be 1 to 64"},
		{"campaign with an umlaut", linetest.With(linetest.Claim, "campaign", `"größe"`), "campaign", "must be 1 to 64"},
		{"campaign a number", linetest.With(linetest.Claim, "campaign", `5`), "campaign", "must be a string"},

		{"no customer", linetest.With(linetest.Claim, "customer_id", ""), "customer_id", "missing"},
		{"customer empty", linetest.With(linetest.Claim, "customer_id", `""`), "customer_id", "must not be empty"},
		{"customer too long", linetest.With(linetest.Claim, "customer_id", long(129)), "customer_id", "at most 128"},
		{"customer a number", linetest.With(linetest.Claim, "customer_id", `12`), "customer_id", "must be a string"},
		{"customer an object", linetest.With(linetest.Claim, "customer_id", `{}`), "customer_id", "must be a string"},
		{"customer with a newline", linetest.With(linetest.Claim, "customer_id", `"a\nb"`), "customer_id", "printable"},
		{"customer with DEL", linetest.With(linetest.Claim, "customer_id", `"a\u007f"`), "customer_id", "printable"},
		{"customer with a zero width space", linetest.With(linetest.Claim, "customer_id", `"a\u200b"`), "customer_id", "printable"},

		{"attributes a string", linetest.With(linetest.Claim, "attributes", `"x"`), "attributes", "flat JSON object"},
		{"attributes an array", linetest.With(linetest.Claim, "attributes", `[1]`), "attributes", "flat JSON object"},
		{"attributes nested", linetest.With(linetest.Claim, "attributes", `{"a":{}}`), "attributes", "the object is flat"},
		{"attributes with a list", linetest.With(linetest.Claim, "attributes", `{"a":[1]}`), "attributes", "the object is flat"},
		{"attributes with null", linetest.With(linetest.Claim, "attributes", `{"a":null}`), "attributes", "string, number or boolean"},
		{"attributes with a number beyond SQL", linetest.With(linetest.Claim, "attributes", `{"a":1,"b":1e999999}`), "attributes", "has a number beyond"},
		{"attributes with a number below SQL", linetest.With(linetest.Claim, "attributes", `{"a":-2E-999999}`), "attributes", "has a number beyond"},
		{"attributes with a zero below SQL", linetest.With(linetest.Claim, "attributes", `{"a":0e-99999999999999999999}`), "attributes", "has a number beyond"},
		{"attributes with a number beyond float64", linetest.With(linetest.Claim, "attributes", `{"a":9e308}`), "attributes", "has a number beyond"},
		{"attributes with many digits", linetest.With(linetest.Claim, "attributes", `{"a":1`+strings.Repeat("0", 309)+`}`), "attributes", "has a number beyond"},
		{"attributes with many zeros", linetest.With(linetest.Claim, "attributes", `{"a":0.`+strings.Repeat("0", 330)+`1}`), "attributes", "has a number beyond"},
		{"attributes too long", linetest.With(linetest.Claim, "attributes", `{"a":`+long(1020)+`}`), "attributes", "at most 1024"},
		{"attributes with a name twice", linetest.With(linetest.Claim, "attributes", `{"a":1,"\u0061":2}`), "attributes", "twice"},
		{"attributes with an empty name", linetest.With(linetest.Claim, "attributes", `{"":1}`), "attributes", "names"},
		{"attributes with a control character", linetest.With(linetest.Claim, "attributes", `{"a":"\u0000"}`), "attributes", "printable"},

		{"no code", linetest.With(linetest.Redeem, "code", ""), "code", "missing"},
		{"code empty", linetest.With(linetest.Redeem, "code", `""`), "code", "must not be empty"},
		{"code too long", linetest.With(linetest.Redeem, "code", long(129)), "code", "at most 128"},
		{"no order", linetest.With(linetest.Redeem, "order_id", ""), "order_id", "missing"},
		{"code and n", linetest.With(linetest.With(linetest.Redeem, "campaign", `"s"`), "n", `1`), "code", "given with n; name the coupon by"},
		{"n without its campaign", byN(linetest.Redeem, `1`, ""), "campaign", "missing"},
		{"n without an order", linetest.With(byN(linetest.Redeem, `1`, `"s"`), "order_id", ""), "order_id", "missing"},
		{"n 0", byN(linetest.Redeem, `0`, `"s"`), "n", "whole number from 1"},
		{"n too large", byN(linetest.Redeem, `1000000001`, `"s"`), "n", "whole number from 1"},
		{"n a string", byN(linetest.Redeem, `"1"`, `"s"`), "n", "whole number"},
		{"n of a claim", linetest.With(linetest.Claim, "n", `1`), "n", "does not belong to claim"},

		{"codes missing", linetest.With(linetest.Create, "codes", ""), "codes", "missing"},
		{"codes a fraction", linetest.With(linetest.Create, "codes", `1.5`), "codes", "whole number"},
		{"codes with a leading zero", linetest.With(linetest.Create, "codes", `05`), "", "not valid JSON"},
		{"codes too many", linetest.With(linetest.Create, "codes", `1000000001`), "codes", "whole number"},
		{"max_redemptions 0", linetest.With(linetest.Create, "max_redemptions", `0`), "max_redemptions", "whole number from 1"},
		{"reminders 0", linetest.With(linetest.Create, "reminders", `0`), "reminders", "whole number from 1"},
		{"reminders too many", linetest.With(linetest.Create, "reminders", `100000001`), "reminders", "to 100000000"},
		{"opens_at a number", linetest.With(linetest.Create, "opens_at", `1795737600`), "opens_at", "RFC 3339"},
		{"opens_at in 1969", linetest.With(linetest.Create, "opens_at", `"1969-12-31T00:00:00Z"`), "opens_at", "1970 and 9999"},
		{"opens_at in 1971", linetest.With(linetest.Create, "opens_at", `"1971-12-31T23:59:59Z"`), "opens_at", "not lie before 1972"},
		{"closes_at in the year 10000", linetest.With(linetest.Create, "closes_at", `"9999-12-31T23:59:59-01:00"`), "closes_at", "1970 and 9999"},
		{"30 February", linetest.With(linetest.Create, "expires_at", `"2026-02-30T00:00:00Z"`), "expires_at", "RFC 3339"},
		{"valid_for a number", linetest.With(linetest.Create, "valid_for", `72`), "valid_for", "duration such as"},
		{"valid_for nothing", linetest.With(linetest.Create, "valid_for", `"0s"`), "valid_for", "between 1s"},
		{"valid_for for ever", linetest.With(linetest.Create, "valid_for", `"2000000h"`), "valid_for", "between 1s"},
		{"prefix with a space", linetest.With(linetest.Create, "prefix", `"A B"`), "prefix", "use only"},
		{"category too long", linetest.With(linetest.Create, "category", long(65)), "category", "at most 64"},
		{"priority", linetest.With(linetest.Create, "priority", `"urgent"`), "priority", "high, normal or low"},
		{"benefit with a number beyond SQL", linetest.With(linetest.Create, "benefit", `[{"1e9":true,"a":[0.5,1e999999]}]`), "benefit", "has a number beyond"},
		{"benefit too long", linetest.With(linetest.Create, "benefit", long(511)), "benefit", "at most 512"},
		{"two ends", linetest.With(linetest.With(linetest.Create, "valid_for", `"1h"`), "expires_at", `"2026-11-27T00:00:00Z"`), "valid_for", "not both"},
		{"closes before it opens", linetest.With(linetest.With(linetest.Create, "opens_at", `"2026-11-27T00:00:00Z"`), "closes_at", `"2026-11-27T00:00:00Z"`), "closes_at", "after opens_at"},
		{"closes after it expires", linetest.With(linetest.With(linetest.Create, "closes_at", `"2026-11-28T00:00:00Z"`), "expires_at", `"2026-11-27T00:00:00Z"`), "closes_at", "not lie after expires_at"},
		{"an update of nothing", linetest.Update, "", "nothing to update"},
		{"an update to codes null", linetest.With(linetest.Update, "codes", `null`), "codes", "whole number"},

		{"kind unknown", linetest.With(linetest.Remind, "kind", `"closes"`), "kind", "must be opens or expires"},
		{"before missing", linetest.With(linetest.Remind, "before", ""), "before", "missing"},
		{"before negative", linetest.With(linetest.Remind, "before", `"-1m"`), "before", "between 0s"},
		{"before more than a year", linetest.With(linetest.Remind, "before", `"9999h"`), "before", "between 0s"},

		{"an import of nothing", linetest.With(linetest.Import, "codes", `[]`), "codes", "at least one code"},
		{"an import of numbers", linetest.With(linetest.Import, "codes", `[1,2]`), "codes", "array"},
		{"an import of null", linetest.With(linetest.Import, "codes", `["ABC-1",null]`), "codes", "code 2"},
		{"an import of a short code", linetest.With(linetest.Import, "codes", `["ABC-1","x"]`), "codes", "code 2"},
		{"an import of a bad code", linetest.With(linetest.Import, "codes", `["AB€C"]`), "codes", "code 1"},

		{"extend without a time", linetest.With(linetest.Extend, "expires_at", ""), "expires_at", "missing"},
		{"expire without a time", linetest.With(linetest.Expire, "through", ""), "through", "missing"},
		{"through_r 0", linetest.With(linetest.Due, "through_r", `0`), "through_r", "whole number from 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c Command
			err := ParseCommand([]byte(tc.line), Defaults{}, &c)
			var bad *InvalidError
			if !errors.As(err, &bad) {
				t.Fatalf("%s\n gives %v", tc.line, err)
			}
			if cmp.Or(bad.Field, bad.Got) != tc.field || !strings.Contains(bad.Message, tc.mend) {
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
		linetest.Claim, linetest.Redeem, linetest.Create, linetest.With(linetest.Update, "category", `null`), linetest.Remind, linetest.Import, linetest.Extend, byN(linetest.Extend, `1`, `"s"`), linetest.Expire, linetest.Due,
		" \t" + linetest.Claim + " \r\n",
		linetest.With(linetest.Claim, "attributes", `{}`),
		linetest.With(linetest.Claim, "attributes", ` { "a" : "b" , "c" : -1.5e-7 , "d" : false } `),
		linetest.With(linetest.Claim, "customer_id", `"漢字 \"ö\" \ud83c\udf89 \u00e9"`),
		linetest.With(linetest.Claim, "id", `"`+strings.Repeat("x", 64)+`"`),
		linetest.With(linetest.Claim, "customer_id", `"`+strings.Repeat("ö", 64)+`"`),
		linetest.With(linetest.Create, "benefit", `[1,{"a":null}]`),
		linetest.With(linetest.Create, "benefit", `[1e308,{"1e999999":"\"1e999999"},0e0,-1.5E-300,true,false]`),
		linetest.With(linetest.Claim, "attributes", `{"a":"1e999999","b":1E+308,"c":-1e-308,"d":0.0e5,"e":true,"f":0.`+strings.Repeat("1", 900)+`}`),
		linetest.With(linetest.Create, "prefix", `""`),
		linetest.With(linetest.Create, "opens_at", `null`),
		linetest.With(linetest.Create, "expires_at", `"2026-11-27T01:00:00.1234567+01:00"`),
		linetest.With(linetest.Update, "benefit", `null`),
		linetest.Claim + strings.Repeat(" ", MaxLine-len(linetest.Claim)),
		linetest.With(linetest.Due, "due_at", `"1971-01-01T00:00:00Z"`), // a reminder a year before the earliest opening
	} {
		var c Command
		if err := ParseCommand([]byte(line), Defaults{}, &c); err != nil {
			t.Errorf("%.200s: %v", line, err)
		}
	}
	var c Command
	if err := ParseCommand([]byte(linetest.With(linetest.Claim, "attributes", ` { "a" : "b" } `)), Defaults{}, &c); err != nil || string(c.Attributes) != `{"a":"b"}` {
		t.Errorf("attributes are kept as %s, %v", c.Attributes, err)
	}
	if err := ParseCommand([]byte(linetest.With(linetest.Claim, "customer_id", `"\ud83c\udf89\\ud800"`)), Defaults{}, &c); err != nil || c.CustomerID != `🎉\ud800` {
		t.Errorf("customer is %q, %v", c.CustomerID, err)
	}
}

func TestDefaultsOfTheSubject(t *testing.T) {
	for _, tc := range []struct {
		name, line string
		def        Defaults
		field      string // of the refusal, "" = it is taken
	}{
		{"campaign from the subject", linetest.With(linetest.Claim, "campaign", ""), Defaults{Campaign: "s"}, ""},
		{"campaign in both", linetest.Claim, Defaults{Campaign: "s"}, ""},
		{"campaign against the subject", linetest.Claim, Defaults{Campaign: "t"}, "campaign"},
		{"a bad campaign in the subject", linetest.With(linetest.Claim, "campaign", ""), Defaults{Campaign: "größe"}, "campaign"},
		{"type implied", linetest.With(linetest.Claim, "type", ""), Defaults{Type: Claim}, ""},
		{"type in both", linetest.Claim, Defaults{Type: Claim}, ""},
		{"type against the endpoint", linetest.Claim, Defaults{Type: Redeem}, "type"},
		{"id made by the service", linetest.With(linetest.Claim, "id", ""), Defaults{NoID: true}, ""},
		{"a bad id is bad there too", linetest.With(linetest.Claim, "id", `""`), Defaults{NoID: true}, "id"},
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
	for _, line := range []string{linetest.Claim, linetest.Redeem, linetest.Create, linetest.Update, linetest.Remind, linetest.Import, linetest.Extend, byN(linetest.Extend, `1`, `"s"`), linetest.Expire, linetest.Due,
		linetest.With(linetest.Claim, "attributes", `{"a":"\u00e9","b":-1.5e7}`), linetest.With(linetest.Create, "benefit", `[{"a":"\ud83c\udf89"}]`), linetest.With(linetest.Update, "expires_at", "null")} {
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

// TestMalformed: a line without valid form is distinguished from one with a bad value.
func TestMalformed(t *testing.T) {
	for line, want := range map[string]bool{
		``: true, `{`: true, `[]`: true, "{\"id\":\"\xff\"}": true, strings.Repeat(" ", MaxLine+1): true,
		linetest.With(linetest.Claim, "custmer", `"x"`): true, linetest.With(linetest.Claim, "code", `"x"`): true,
		linetest.With(linetest.Claim, "customer_id", ""): true, linetest.With(linetest.Claim, "type", `"clam"`): true,
		`{"id":"a","id":"b","type":"claim"}`:                    true,
		linetest.With(linetest.Claim, "customer_id", `""`):      false,
		linetest.With(linetest.Claim, "customer_id", `7`):       false,
		linetest.With(linetest.Claim, "attributes", `{"a":[]}`): false,
		linetest.With(linetest.Claim, "campaign", `"größe"`):    false,
		linetest.With(linetest.Update, "per_customer", `-1`):    false,
	} {
		var bad *InvalidError
		if err := ParseCommand([]byte(line), Defaults{}, &Command{}); !errors.As(err, &bad) || bad.Malformed != want {
			t.Errorf("%.100s: %v, malformed %v; want %v", line, err, bad != nil && bad.Malformed, want)
		}
	}
}
