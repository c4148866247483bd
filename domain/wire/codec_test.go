package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// golden holds one line of each event as logs hold it: a version of this format reads it and writes it to the byte.
const golden = "testdata/events.ndjson"

func TestGoldenEvents(t *testing.T) {
	f, err := os.Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := make(map[EventType]int)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var ev Event
		if err := ParseEvent(lines.Bytes(), &ev); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		if got := ev.AppendJSON(nil); !bytes.Equal(got, lines.Bytes()) {
			t.Errorf("%s\nis written again as\n%s\nAfter a release the format of the log must be raised.", lines.Bytes(), got)
		}
		var plain map[string]any
		if err := json.Unmarshal(lines.Bytes(), &plain); err != nil {
			t.Errorf("%s: %v", lines.Bytes(), err)
		}
		seen[ev.Type]++
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for e := CampaignCreated; e < numEvents; e++ {
		if seen[e] == 0 {
			t.Errorf("%s has no golden line", e)
		}
	}
}

// The generators draw the values of fields.

func drawText(t *rapid.T, most int) string {
	return rapid.StringOfN(rapid.RuneFrom([]rune(`az09-_ "\/äß漢€🎉<>&'`)), 1, 16, most).Draw(t, "text")
}

func drawInstant(t *rapid.T) Instant {
	at := Instant(rapid.Int64Range(int64(earliest)+3600e6, int64(MaxInstant)).Draw(t, "instant"))
	if rapid.Bool().Draw(t, "whole second") {
		at = at / 1e6 * 1e6
	}
	return at
}

func maybe[T any](t *rapid.T, draw func() T) (v T) {
	if rapid.Bool().Draw(t, "given") {
		v = draw()
	}
	return v
}

func drawSettings(t *rapid.T) Settings {
	s := Settings{
		Codes: rapid.Uint32Range(0, MaxCodes).Draw(t, "codes"), PerCustomer: rapid.Uint32Range(0, 9).Draw(t, "per customer"),
		MaxRedemptions: rapid.Uint32Range(1, 9).Draw(t, "max redemptions"), Priority: rapid.SampledFrom([]string{PriorityHigh, PriorityLow}).Draw(t, "priority"),
		Category: maybe(t, func() string { return drawText(t, 64) }), Prefix: maybe(t, func() string { return "SUN_1" }),
		Benefit: maybe(t, func() []byte { return []byte(`{"a":[1,"\u00e9",null]}`) }),
	}
	s.Reminders = maybe(t, func() uint32 { return rapid.Uint32Range(1, MaxPending).Draw(t, "reminders") })
	s.OpensAt = maybe(t, func() Instant { return drawInstant(t) })
	s.ClosesAt = maybe(t, func() Instant { return drawInstant(t) })
	s.ExpiresAt = maybe(t, func() Instant { return drawInstant(t) })
	s.ValidFor = maybe(t, func() time.Duration { return drawDuration(t, time.Second) })
	return s
}

func drawDuration(t *rapid.T, least time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(least/time.Microsecond), int64(MaxBefore/time.Microsecond)).Draw(t, "duration")) * time.Microsecond
}

// drawValue draws the value of a field that is not one of a campaign's settings in a command; it may be none unless it must be
// given.
func drawValue(t *rapid.T, f Field, p any, must bool) {
	if !must && rapid.Bool().Draw(t, "left out") {
		return
	}
	spec := &fieldSpecs[f]
	switch p := p.(type) {
	case *string:
		switch {
		case spec.oneOf != nil:
			*p = rapid.SampledFrom(spec.oneOf).Draw(t, "one of")
		case f == fZone:
			*p = rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "Asia/Kathmandu"}).Draw(t, "zone")
		case f == fPrefix || f == fIfVersion || f == fBatch:
			*p = "0123456789ABCDEF"
		case spec.most != 0:
			*p = drawText(t, int(spec.most))
		default:
			*p = drawText(t, 64)
		}
	case *[]byte:
		*p = []byte(`{"channel":"app","new":true,"x":1.5e3}`)
	case *uint32:
		*p = rapid.Uint32Range(1, uint32(min(spec.most-1, math.MaxUint32-1))+1).Draw(t, "number")
	case *uint64:
		*p = rapid.Uint64Range(1, spec.most-1).Draw(t, "number") // 0 = without a bound
	case *Instant:
		*p = drawInstant(t)
	case *time.Duration:
		*p = drawDuration(t, time.Duration(spec.least))
	case *[]string:
		*p = []string{"ABC-1-23456", "Z_987654"}
	case *[]uint64:
		*p = []uint64{1, rapid.Uint64().Draw(t, "r")}
	case *[]RefusalCount:
		*p = []RefusalCount{{SoldOut, rapid.Uint64().Draw(t, "count")}, {NotHolder, 1}}
	case *bool:
		*p = true
	default:
		t.Fatalf("no value is drawn for %s", f)
	}
}

func drawEvent(t *rapid.T) Event {
	e := Event{Type: EventType(rapid.IntRange(int(CampaignCreated), int(numEvents)-1).Draw(t, "type")), Campaign: "c_1-x", At: drawInstant(t)}
	for _, f := range append(list(fID, fBy, fRequestID), e.Type.Spec().Fields...) {
		if f &^= always; f != fBefore || e.Kind != "" {
			drawValue(t, f, e.at(f), f == fCounts)
		}
	}
	return e
}

func TestEventsComeBackFromTheirLines(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := drawEvent(rt)
		line := e.AppendJSON(nil)
		if bytes.ContainsAny(line, "\n\r") || !json.Valid(line) {
			rt.Fatalf("not a line of JSON: %s", line)
		}
		var back Event
		if err := ParseEvent(line, &back); err != nil {
			rt.Fatalf("%s: %v", line, err)
		}
		if !reflect.DeepEqual(back, e) {
			rt.Fatalf("%s\nwas %+v\n is %+v", line, e, back)
		}
	})
}

func TestParseEventRefuses(t *testing.T) {
	for line, want := range map[string]string{
		``:                                      "must be one JSON object",
		`[]`:                                    "must be one JSON object",
		`{}`:                                    "no type",
		`{"campaign":"c"}`:                      "no type",
		`{"type":"coupon.sung","campaign":"c"}`: "coupon.sung",
		`{"type":1}`:                            "type",
		`{"type":"coupon.claimed","n":-1}`:      "n",
		`{"type":"coupon.claimed","n":4294967296}`:                      "n",
		`{"type":"coupon.claimed","at":"yesterday"}`:                    "at",
		`{"type":"coupon.claimed","at":7}`:                              "at",
		`{"type":"coupon.claimed"`:                                      "ends too early",
		`{"type":"coupon.claimed"}{}`:                                   "something after",
		`{"type":"reminder.set","before":"soon"}`:                       "before",
		`{"type":"commands.refused","counts":{"sold_out":"many"}}`:      "counts",
		`{"type":"codes.imported","codes":["a",7]}`:                     "codes",
		`{"type":"coupon.claimed","campaign":7}`:                        "campaign",
		`{"type":"coupons.expired","through":"1970-01-01T00:00:00Z"}`:   "through",
		`{"type":"campaign.created","codes":99999999999}`:               "codes",
		`{"type":"coupon.claimed","code":"` + "\x01" + `"}`:             "control character",
		`{"type":"coupon.claimed","x":` + strings.Repeat("[", 40) + `}`: "nested too deeply",
	} {
		var e Event
		if err := ParseEvent([]byte(line), &e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", line, err, want)
		}
	}
	var e Event
	if err := ParseEvent([]byte(`{"type":"campaign.paused","campaign":"c","at":"2026-11-27T00:00:00Z","colour":{"a":[1]}}`), &e); err != nil || e.Campaign != "c" || e.At != start {
		t.Errorf("a field this version does not know: %+v, %v", e, err)
	}
}

func drawCommand(t *rapid.T) Command {
	c := Command{Type: CommandType(rapid.IntRange(int(CreateCampaign), int(numCommands)-1).Draw(t, "type")), ID: drawText(t, 64), Campaign: "c_1-x"}
	if commands[c.Type].Settings {
		s := drawSettings(t)
		if s.ExpiresAt != 0 {
			s.ValidFor, s.OpensAt = 0, min(s.OpensAt, s.ExpiresAt-1)
			s.ClosesAt = min(s.ClosesAt, s.ExpiresAt)
		}
		if s.ClosesAt != 0 {
			s.OpensAt = min(s.OpensAt, s.ClosesAt-1)
		}
		s.OpensAt = max(s.OpensAt, 0)
		c.Patch = PatchOf(s)
	}
	for rest := allowed[c.Type] &^ fields(fID, fType, fCampaign); rest != 0; rest &= rest - 1 {
		if f := rest.first(); f == fIfVersion || !commands[c.Type].Settings {
			drawValue(t, f, c.at(f), required[c.Type].has(f))
		}
	}
	if c.N != 0 {
		c.Code = "" // the coupon has one name
	}
	return c
}

func TestCommandsComeBackFromTheirLines(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawCommand(rt)
		line := c.AppendJSON(nil)
		var back Command
		if err := ParseCommand(line, Defaults{}, &back); err != nil {
			rt.Fatalf("%s: %v", line, err)
		}
		if !reflect.DeepEqual(back, c) {
			rt.Fatalf("%s\nwas %+v\n is %+v", line, c, back)
		}
	})
}

func drawOutcome(t *rapid.T) (o Outcome) {
	for _, f := range outcomeFields {
		if f &^= always; f != fBefore || o.Kind != "" {
			drawValue(t, f, o.at(f), f == fStatus)
		}
	}
	return o
}

func TestOutcomesComeBackFromTheirLines(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := drawOutcome(rt)
		line, err := json.Marshal(o)
		if err != nil {
			rt.Fatal(err)
		}
		var back Outcome
		if err := json.Unmarshal(line, &back); err != nil {
			rt.Fatalf("%s: %v", line, err)
		}
		if !reflect.DeepEqual(back, o) {
			rt.Fatalf("%s\nwas %+v\n is %+v", line, o, back)
		}
	})
	for _, line := range []string{``, `{`, `{"n":"x"}`, `{"before":"soon","kind":"opens"}`, `{"expires_at":"x"}`, `{"id":7}`} {
		if _, err := ParseOutcome([]byte(line)); err == nil {
			t.Errorf("%s is taken for an outcome", line)
		}
	}
	if o, err := ParseOutcome([]byte(`{"id":"a","status":"claimed","more":[{}]}`)); err != nil || o.ID != "a" {
		t.Errorf("a field this version does not know: %+v, %v", o, err)
	}
}

func TestInstantIsWrittenAndReadAsPackageTimeDoes(t *testing.T) {
	check := func(t failer, at Instant) {
		want := at.Time().Format(time.RFC3339Nano)
		if got := at.String(); got != want {
			t.Fatalf("%d is written %s, want %s", at, got, want)
		}
		for _, text := range []string{want, at.Time().Format("2006-01-02T15:04:05.000000Z07:00")} {
			if back, err := parseStamp([]byte(text)); err != nil || back != at {
				t.Fatalf("%s is read as %d, %v; want %d", text, back, err, at)
			}
			if back, err := ParseInstant(text); err != nil || back != at {
				t.Fatalf("ParseInstant(%s) = %d, %v; want %d", text, back, err, at)
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) { check(rt, Instant(rapid.Int64Range(1, int64(MaxInstant)).Draw(rt, "instant"))) })
	for at := time.Date(1970, 1, 1, 0, 0, 0, 1000, time.UTC); at.Year() < 10000; at = at.AddDate(0, 0, 1) {
		if d := at.Day(); d >= 28 || d == 1 {
			check(t, At(at))
		}
	}
	check(t, 1)
	check(t, MaxInstant)
	for _, s := range []string{"", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z",
		"2026-01-01T00:60:00Z", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "10000-01-01T00:00:00Z", "2026-01-01T00:00:00.Z", "２026-01-01T00:00:00Z"} {
		if at, err := parseStamp([]byte(s)); err == nil {
			t.Errorf("%q is read as %s", s, at)
		}
		if at, err := ParseInstant(s); err == nil {
			t.Errorf("ParseInstant(%q) = %s", s, at)
		}
	}
	for s, want := range map[string]Instant{
		"2026-11-27T01:00:00+01:00": start, "2026-11-27T00:00:00.0000009Z": start, "2026-11-27T00:00:00.1Z": start + 100_000,
		"2028-02-29T00:00:00Z": At(time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC)),
	} {
		if at, err := parseStamp([]byte(s)); err != nil || at != want {
			t.Errorf("%s is read as %s, %v; want %s", s, at, err, want)
		}
	}
}
