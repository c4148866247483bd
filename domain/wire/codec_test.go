package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
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
	s.OpensAt = maybe(t, func() Instant { return drawInstant(t) })
	s.ClosesAt = maybe(t, func() Instant { return drawInstant(t) })
	s.ExpiresAt = maybe(t, func() Instant { return drawInstant(t) })
	s.ValidFor = maybe(t, func() time.Duration { return drawDuration(t, time.Second) })
	return s
}

func drawDuration(t *rapid.T, least time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(least/time.Microsecond), int64(MaxBefore/time.Microsecond)).Draw(t, "duration")) * time.Microsecond
}

func drawEvent(t *rapid.T) Event {
	e := Event{
		Type: EventType(rapid.IntRange(int(CampaignCreated), int(numEvents)-1).Draw(t, "type")), Campaign: "c_1-x", At: drawInstant(t),
		ID: maybe(t, func() string { return drawText(t, 64) }), By: maybe(t, func() string { return drawText(t, 64) }),
	}
	u32 := func() uint32 { return rapid.Uint32().Draw(t, "number") }
	u64 := func() uint64 { return rapid.Uint64().Draw(t, "number") }
	text := func() string { return drawText(t, 128) }
	switch e.Type {
	case CampaignCreated, CampaignUpdated:
		e.Number, e.Settings = u32(), drawSettings(t)
	case CodesImported:
		e.Codes = []string{"ABC-1", text()}
	case CouponClaimed:
		e.N, e.Code, e.CustomerID = u32(), text(), text()
		e.Attributes = maybe(t, func() []byte { return []byte(`{"channel":"app","x":1.5e3}`) })
		e.ExpiresAt = maybe(t, func() Instant { return drawInstant(t) })
	case CouponRedeemed, CouponRolledBack:
		e.N, e.Code, e.OrderID, e.RedeemedCount, e.CustomerID = u32(), text(), text(), u32(), maybe(t, text)
		if e.Type == CouponRolledBack {
			e.Status = StatusClaimed
		}
	case CouponVoided:
		e.N, e.Code, e.Reason, e.Status = u32(), text(), maybe(t, text), StatusVoided
	case CouponExtended:
		e.N, e.Code, e.ExpiresAt, e.Status = u32(), text(), drawInstant(t), StatusRedeemed
	case CouponsExpired:
		e.Through, e.Count = drawInstant(t), u64()
	case ReminderSet:
		e.R, e.CustomerID, e.Kind, e.Before, e.DueAt, e.N = u64(), text(), KindExpires, drawDuration(t, 0), drawInstant(t), u32()
	case ReminderCancelled:
		if e.R = u64(); rapid.Bool().Draw(t, "requested") {
			e.CustomerID, e.Kind, e.Before, e.N = text(), KindOpens, drawDuration(t, 0), u32()
		}
	case RemindersDue:
		e.Kind, e.DueAt, e.FromR, e.ThroughR, e.Fired, e.Dropped = KindOpens, drawInstant(t), u64(), u64(), u64(), u64()
	case CommandsRefused:
		e.Refused = []RefusalCount{{SoldOut, u64()}, {NotHolder, u64()}}
		e.Sample = maybe(t, func() []string { return []string{"nowhere", text()} })
	case CommandRejected:
		e.Sequence, e.Line, e.Reason, e.Payload = u64(), u32(), text(), text()
		e.Count, e.LastSequence, e.Bytes = maybe(t, u64), maybe(t, u64), maybe(t, u64)
	case ReminderDue:
		e.Kind, e.DueAt, e.CustomerID = KindOpens, drawInstant(t), text()
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
	customer := func() string { return drawText(t, 128) }
	switch c.Type {
	case CreateCampaign, UpdateCampaign:
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
	case ImportCodes:
		c.Codes = []string{"ABC-1", "Z_9"}
	case Claim:
		c.CustomerID = customer()
		c.Attributes = maybe(t, func() []byte { return []byte(`{"channel":"app","new":true,"x":1.5e3}`) })
	case Redeem, Rollback:
		c.Code, c.OrderID, c.CustomerID = drawText(t, 128), customer(), maybe(t, customer)
	case Void:
		c.Code, c.Reason = drawText(t, 128), maybe(t, customer)
	case Extend:
		c.Code, c.ExpiresAt = drawText(t, 128), drawInstant(t)
	case Remind, Unremind:
		c.CustomerID, c.Kind, c.Before = customer(), KindOpens, drawDuration(t, 0)
	case Expire:
		c.Through = drawInstant(t)
	case RemindDue:
		c.Kind, c.DueAt, c.ThroughR = KindExpires, drawInstant(t), rapid.Uint64Range(1, 1<<53).Draw(t, "r")
	}
	if allowed[c.Type].has(fIfVersion) {
		c.IfVersion = maybe(t, func() string { return "0123456789abcdef" })
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

func drawOutcome(t *rapid.T) Outcome {
	text := func() string { return drawText(t, 128) }
	o := Outcome{
		ID: maybe(t, text), Status: text(), Campaign: maybe(t, text), N: rapid.Uint32().Draw(t, "n"), Code: maybe(t, text),
		CustomerID: maybe(t, text), OrderID: maybe(t, text), RedeemedCount: rapid.Uint32().Draw(t, "count"),
		ExpiresAt: maybe(t, func() Instant { return drawInstant(t) }), DueAt: maybe(t, func() Instant { return drawInstant(t) }),
		Benefit: maybe(t, func() []byte { return []byte(`{"off":5}`) }), Count: rapid.Uint64().Draw(t, "count"),
		Repeat: rapid.Bool().Draw(t, "repeat"), Refusal: Refusal(maybe(t, text)), Message: maybe(t, text),
	}
	if o.Kind = maybe(t, text); o.Kind != "" {
		o.Before = drawDuration(t, 0)
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
		if v, err := VerdictOf(line); err != nil || v.Refused != o.Refused() || v.Repeat != o.Repeat {
			rt.Fatalf("%s: the verdict is %+v, %v", line, v, err)
		}
	})
	hidden := []byte(`{"id":"\"refusal\":\"x\"","status":"claimed","benefit":{"status":"refused","refusal":"x","repeat":true}}`)
	if v, err := VerdictOf(hidden); err != nil || v != (Verdict{}) {
		t.Errorf("%s: the verdict is %+v, %v", hidden, v, err)
	}
	for _, line := range []string{``, `{`, `[]`, `{"id":"a"`, `{"repeat":true}x`} {
		if _, err := VerdictOf([]byte(line)); err == nil {
			t.Errorf("%s has a verdict", line)
		}
	}
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
