package domain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/linetest"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/domain/worldtest"
)

// checkEvents reads every event line.
func checkEvents(t testing.TB, events []byte) (evs []wire.Event) {
	t.Helper()
	for line := range bytes.Lines(events) {
		var ev wire.Event
		if err := wire.ParseEvent(line, &ev); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if !json.Valid(line) || line[len(line)-1] != '\n' {
			t.Fatalf("not a line of JSON: %s", line)
		}
		evs = append(evs, ev)
	}
	return evs
}

func outcomes(t testing.TB, replies []byte) (outs []wire.Outcome) {
	t.Helper()
	for line := range bytes.Lines(replies) {
		o, err := wire.ParseOutcome(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		outs = append(outs, o)
	}
	return outs
}

// stepOn returns a step on a lane with campaign s of that many codes.
func stepOn(t testing.TB, codes uint32) *Step {
	t.Helper()
	l := testLane()
	create := wire.Command{Type: wire.CreateCampaign, ID: "create", Campaign: "s", Patch: wire.PatchOf(wire.DefaultSettings(codes))}
	if _, out := l.Decide(&create, start, nil); out.Refused() {
		t.Fatal(outcomeText(out))
	}
	return NewStep(l)
}

func claimLine(n int) string {
	return fmt.Sprintf(`{"id":"i%d","type":"claim","campaign":"s","customer_id":"c%d"}`, n, n)
}

func TestMessageLimits(t *testing.T) {
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(claimLine(i) + "\n")
		}
		return b.String()
	}
	for _, tc := range []struct {
		name, payload string
		answers       int
		message       string // "" = all are claimed
	}{
		{"one line", claimLine(1), 1, ""},
		{"a trailing newline", claimLine(1) + "\n", 1, ""},
		{"CRLF", claimLine(1) + "\r\n" + claimLine(2) + "\r\n", 2, ""},
		{"empty lines between", "\n\n" + claimLine(1) + "\n \t\r\n" + claimLine(2) + "\n\n", 2, ""},
		{"1,000 lines", lines(1000), 1000, ""},
		{"1,000 lines and empty ones", strings.ReplaceAll(lines(1000), "\n", "\n\n"), 1000, ""},
		{"1,001 lines", lines(1001), 1, "has 1001 lines, at most 1000"},
		{"no line", "", 1, "no command lines"},
		{"only newlines", "\n\r\n \n", 1, "no command lines"},
		{"256 KiB", claimLine(1) + strings.Repeat("\n", wire.MaxMessage-len(claimLine(1))), 1, ""},
		{"256 KiB + 1", claimLine(1) + strings.Repeat("\n", wire.MaxMessage-len(claimLine(1))+1), 1, "has 262145 bytes, at most 262144"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := stepOn(t, 2000)
			outs := outcomes(t, s.Add(Message{Sequence: 9, Scope: wire.ScopeTrusted, Payload: []byte(tc.payload)}, start, nil))
			s.Close()
			if len(outs) != tc.answers {
				t.Fatalf("%d answers, want %d", len(outs), tc.answers)
			}
			evs := checkEvents(t, s.Events)
			if len(evs) != s.Lines || len(evs) != tc.answers {
				t.Fatalf("%d events, %d counted, want %d", len(evs), s.Lines, tc.answers)
			}
			for i, out := range outs {
				switch {
				case tc.message == "" && out.Status != wire.StatusClaimed:
					t.Fatalf("answer %d: %s", i, outcomeText(out))
				case tc.message != "" && (out.Refusal != wire.Invalid || !strings.Contains(out.Message, tc.message)):
					t.Fatalf("answer %d: %s, want %q", i, outcomeText(out), tc.message)
				}
			}
			if tc.message != "" && (evs[0].Type != wire.CommandRejected || evs[0].Line != 0 || evs[0].Sequence != 9 || evs[0].Reason != outs[0].Message) {
				t.Fatalf("the message is parked as %s", s.Events)
			}
		})
	}
}

func TestHalfGoodHalfBad(t *testing.T) {
	s := stepOn(t, 2)
	s.Add(Message{Sequence: 6, Scope: wire.ScopeTrusted, Payload: []byte(claimLine(0))}, start, nil)
	s.Reset()
	payload := strings.Join([]string{
		claimLine(1),
		`{"id":"bad1","type":"claim","campaign":"s"}`,
		``,
		claimLine(2), // sold out
		`not json`,   // line 5
		claimLine(3), // sold out
		claimLine(1), // repeat
		linetest.With(linetest.Claim, "type", `"x"`), // line 8
		linetest.With(claimLine(4), "campaign", `"nowhere"`),
	}, "\n")
	outs := outcomes(t, s.Add(Message{Sequence: 7, Scope: wire.ScopeTrusted, Payload: []byte(payload)}, start+1, nil))
	s.Close()
	var got []string
	for _, o := range outs {
		got = append(got, fmt.Sprint(o.ID, " ", o.Status, " ", o.Refusal, " ", o.Repeat))
	}
	want := []string{"i1 claimed  false", "bad1 refused invalid false", "i2 refused sold_out false", " refused invalid false",
		"i3 refused sold_out false", "i1 claimed  true", "a refused invalid false", "i4 refused campaign_not_found false"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	wantEvents := `{"type":"coupon.claimed","campaign":"s","at":"2026-11-27T00:00:00.000001Z","id":"i1","n":2,"code":"` + outs[0].Code + `","customer_id":"c1"}
{"type":"campaign.sold_out","campaign":"s","at":"2026-11-27T00:00:00.000001Z","id":"i1"}
{"type":"command.rejected","campaign":"s","at":"2026-11-27T00:00:00.000001Z","sequence":7,"line":2,"reason":"customer_id: missing; claim needs it","payload":"{\"id\":\"bad1\",\"type\":\"claim\",\"campaign\":\"s\"}"}
{"type":"command.rejected","at":"2026-11-27T00:00:00.000001Z","sequence":7,"line":5,"reason":"the line must be one JSON object","payload":"not json"}
`
	if !strings.HasPrefix(string(s.Events), wantEvents) {
		t.Fatalf("events are\n%s", s.Events)
	}
	rest := strings.TrimSpace(string(s.Events[len(wantEvents):]))
	tail := strings.Split(rest, "\n")
	if len(tail) != 3 || !strings.Contains(tail[0], `"line":8`) ||
		tail[1] != `{"type":"commands.refused","campaign":"s","at":"2026-11-27T00:00:00.000001Z","counts":{"sold_out":2}}` ||
		tail[2] != `{"type":"commands.refused","at":"2026-11-27T00:00:00.000001Z","counts":{"campaign_not_found":1},"sample":["nowhere"]}` {
		t.Fatalf("events end in\n%s", rest)
	}
	if s.Commands != 8 {
		t.Fatalf("%d commands counted", s.Commands)
	}
}

func TestScopes(t *testing.T) {
	all := map[string]string{
		"claim": linetest.Claim, "redeem": linetest.Redeem, "rollback": linetest.With(linetest.Redeem, "type", `"rollback"`), "remind": linetest.Remind, "unremind": linetest.With(linetest.Remind, "type", `"unremind"`),
		"create_campaign": linetest.With(linetest.Create, "campaign", `"t"`), "update_campaign": linetest.With(linetest.Update, "category", `"x"`), "pause_campaign": linetest.With(linetest.Update, "type", `"pause_campaign"`),
		"resume_campaign": linetest.With(linetest.Update, "type", `"resume_campaign"`), "end_campaign": linetest.With(linetest.Update, "type", `"end_campaign"`), "import_codes": linetest.Import,
		"void": `{"id":"a","type":"void","code":"x"}`, "extend": linetest.Extend, "allot": `{"id":"a","type":"allot","campaign":"s","count":1,"batch":"b"}`, "expire": linetest.Expire, "remind_due": linetest.Due,
	}
	for kind := range wire.Commands() {
		line, ok := all[kind.String()]
		if !ok {
			t.Fatalf("%s is not tested", kind)
		}
		for _, scope := range []wire.Scope{wire.ScopeProducer, wire.ScopeOperator, wire.ScopeTrusted, wire.ScopeScheduler} {
			s := stepOn(t, 5)
			out := outcomes(t, s.Add(Message{Sequence: 1, Scope: scope, Payload: []byte(line)}, start, nil))[0]
			refused := out.Refusal == wire.Invalid && strings.Contains(out.Message, "may not be sent on this subject")
			if refused == scope.Allows(kind) || refused && checkEvents(t, s.Events)[0].Type != wire.CommandRejected {
				t.Errorf("%s in scope %d: %s, %s", kind, scope, outcomeText(out), s.Events)
			}
		}
	}
}

func TestSubjectAndLaneMustAgree(t *testing.T) {
	const lanes = 4
	name := func(lane int) string {
		for i := 0; ; i++ {
			if n := fmt.Sprint("c", i); wire.LaneOf(n, lanes) == lane {
				return n
			}
		}
	}
	l := NewLane(LaneOptions{Lane: 1, Lanes: lanes, Key: testKey})
	s := NewStep(l)
	decide := func(m Message, line string) wire.Outcome {
		m.Payload = []byte(line)
		return outcomes(t, s.Add(m, start, nil))[0]
	}
	here, there := name(1), name(2)
	create := linetest.With(linetest.Create, "campaign", `"`+here+`"`)
	if out := decide(Message{Scope: wire.ScopeTrusted}, create); out.Status != wire.StatusCreated {
		t.Fatal(outcomeText(out))
	}
	if v, _ := l.Campaign(here); v.Number != 1 {
		t.Fatalf("campaign number %d", v.Number)
	}
	for _, tc := range []struct {
		name string
		m    Message
		line string
		want string
	}{
		{"a campaign of another lane", Message{Scope: wire.ScopeTrusted}, linetest.With(linetest.Claim, "campaign", `"`+there+`"`), "lives on lane 2, not on lane 1"},
		{"a subject of another lane", Message{Scope: wire.ScopeProducer, Campaign: there}, linetest.With(linetest.Claim, "campaign", ""), "lives on lane 2, not on lane 1"},
		{"another campaign than the subject's", Message{Scope: wire.ScopeProducer, Campaign: here}, linetest.Claim, "disagrees with the subject"},
		{"a subject that is no campaign", Message{Scope: wire.ScopeProducer, Campaign: "größe" + strings.Repeat("x", 3000)}, linetest.With(linetest.Claim, "campaign", ""), "must be 1 to 64"},
	} {
		had := len(s.Events)
		out := decide(tc.m, tc.line)
		if out.Refusal != wire.Invalid || !strings.Contains(out.Message, tc.want) {
			t.Errorf("%s: %s", tc.name, outcomeText(out))
		}
		if evs := checkEvents(t, s.Events[had:]); len(evs) != 1 || evs[0].Type != wire.CommandRejected || len(s.Events[had:]) > 1500 {
			t.Errorf("%s: parked as %s", tc.name, s.Events[had:])
		}
	}
	if out := decide(Message{Scope: wire.ScopeProducer, Campaign: here}, linetest.With(linetest.With(linetest.Claim, "campaign", ""), "id", `"b"`)); out.Status != wire.StatusClaimed {
		t.Fatal(outcomeText(out))
	}
}

func TestDeadLettersQuoteLittle(t *testing.T) {
	for _, line := range []string{
		strings.Repeat("\x01", 5000), strings.Repeat("\xff", 5000), strings.Repeat(`"`, 5000), strings.Repeat("漢", 2000),
		linetest.With(linetest.Claim, "colour", `"`+strings.Repeat(`\"`, 3000)+`"`), `{"` + strings.Repeat(`\"`, 3000) + `":1}`, linetest.With(linetest.Import, "codes", `["`+strings.Repeat(`\"`, 3000)+`"]`),
		linetest.With(linetest.Claim, "type", `"`+strings.Repeat(`\\`, 500)+`"`),
	} {
		for _, count := range []int{1, 16} {
			s := stepOn(t, 1)
			payload := strings.Repeat(line+"\n", count)
			outs := outcomes(t, s.Add(Message{Sequence: 1<<64 - 1, Scope: wire.ScopeTrusted, Payload: []byte(payload)}, start, nil))
			if len(outs) != count || outs[0].Refusal != wire.Invalid {
				t.Fatalf("%.40q: %s", line, outcomeText(outs[0]))
			}
			for _, ev := range checkEvents(t, s.Events) {
				if size := len(ev.AppendJSON(nil)); size > costParked+quoteOf(strings.Count(payload, "\n")) {
					t.Errorf("%.40q is parked in %d bytes: %s", line, size, ev.AppendJSON(nil))
				}
			}
		}
	}
}

func TestQuoted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		raw := rapid.SliceOfN(rapid.SampledFrom([]byte("ab\"\\\n\x00\xff\xc3\xa4\xe2\x82\xac")), 0, 60).Draw(rt, "raw")
		most := rapid.IntRange(10, 80).Draw(rt, "most")
		got := quoted(raw, most)
		size := len(wire.AppendText(nil, got)) - 2
		if full := len(wire.AppendText(nil, string(raw))) - 2; full <= most {
			if got != string(raw) {
				rt.Fatalf("quoted(%q, %d) = %q", raw, most, got)
			}
		} else if size > most || !strings.HasSuffix(got, "…") || !strings.HasPrefix(string(raw), strings.TrimSuffix(got, "…")) || size < most-10 {
			rt.Fatalf("quoted(%q, %d) = %q, %d bytes", raw, most, got, size)
		}
	})
}

// hostile are messages of a thousand lines, each as costly as such lines can be.
func hostile() map[string]func(l *Lane) []string {
	long := strings.Repeat("x", 64)
	each := func(f func(i int) string) []string {
		lines := make([]string, wire.MaxMessageLines)
		for i := range lines {
			lines[i] = f(i)
		}
		return lines
	}
	id := func(i int) string { return fmt.Sprintf("%s%04d", long[:60], i) }
	setUp := func(l *Lane, redemptions uint32, reminders int) []string {
		var codes []string
		s := wire.DefaultSettings(wire.MaxMessageLines)
		s.Prefix, s.Category, s.Benefit, s.MaxRedemptions = "ABCDEFGHIJKLMNOP", long, []byte(`"`+strings.Repeat("x", 510)+`"`), redemptions
		s.ExpiresAt = start + 90*day + 1
		cmd := wire.Command{Type: wire.CreateCampaign, ID: "create", Campaign: long, Patch: wire.PatchOf(s)}
		l.Decide(&cmd, start, nil)
		for i := range wire.MaxMessageLines {
			cmd = wire.Command{Type: wire.Claim, ID: fmt.Sprint("set", i), Campaign: long, CustomerID: fmt.Sprint("cust", i)}
			_, out := l.Decide(&cmd, start, nil)
			codes = append(codes, out.Code)
			for r := range reminders {
				cmd = wire.Command{Type: wire.Remind, ID: fmt.Sprint("set", i, "r", r), Campaign: long, CustomerID: fmt.Sprint("cust", i), Kind: wire.KindExpires, Before: worldtest.BeforeTimes[r]}
				l.Decide(&cmd, start, nil)
			}
		}
		return codes
	}
	return map[string]func(l *Lane) []string{
		"claims": func(l *Lane) []string {
			setUp(l, 1, 0)
			grow := wire.Command{Type: wire.UpdateCampaign, ID: "grow", Campaign: long, Patch: wire.Patch{Settings: wire.Settings{Codes: 9999}}}
			grow.Patch.Set("codes")
			l.Decide(&grow, start, nil)
			return each(func(i int) string {
				return fmt.Sprintf(`{"id":"%s","type":"claim","customer_id":"%s%04d"}`, id(i), strings.Repeat(`\"`, 60), i)
			})
		},
		"claims that replace": func(l *Lane) []string {
			for i, code := range setUp(l, 1, 0) {
				l.Decide(&wire.Command{Type: wire.Void, ID: fmt.Sprint("void", i), Code: code}, start, nil)
			}
			grow := wire.Command{Type: wire.UpdateCampaign, ID: "grow", Campaign: long, Patch: wire.Patch{Settings: wire.Settings{Codes: 9999, ValidFor: 1e9}}}
			grow.Patch.Set("codes", "valid_for")
			l.Decide(&grow, start, nil)
			return each(func(i int) string { return fmt.Sprintf(`{"id":"%s","type":"claim","customer_id":"cust%d"}`, id(i), i) })
		},
		"redemptions, three reminders each": func(l *Lane) []string {
			codes := setUp(l, 1, 3)
			return each(func(i int) string {
				return fmt.Sprintf(`{"id":"%s","type":"redeem","code":"%s","order_id":"%s"}`, id(i), strings.ReplaceAll(codes[i][17:], "-", ""), strings.Repeat("o", 128))
			})
		},
		"voids, three reminders each": func(l *Lane) []string {
			codes := setUp(l, 1, 3)
			return each(func(i int) string { return fmt.Sprintf(`{"id":"%s","type":"void","code":"%s"}`, id(i), codes[i][17:]) })
		},
		"updates": func(l *Lane) []string {
			setUp(l, 1, 0)
			return each(func(i int) string {
				return fmt.Sprintf(`{"id":"%s","type":"update_campaign","campaign":"%s","per_customer":%d}`, id(i), long, i+2)
			})
		},
		"campaigns made": func(l *Lane) []string {
			return each(func(i int) string {
				return fmt.Sprintf(`{"id":"%s","type":"create_campaign","campaign":"%s%04d","codes":1,"expires_at":"2027-01-01T00:00:00.000001Z"}`, id(i), long[:60], i)
			})
		},
		"last codes of a thousand campaigns": func(l *Lane) []string {
			for i := range wire.MaxMessageLines {
				cmd := wire.Command{Type: wire.CreateCampaign, ID: "create", Campaign: fmt.Sprintf("%s%04d", long[:60], i), Patch: wire.PatchOf(wire.DefaultSettings(1))}
				l.Decide(&cmd, start, nil)
			}
			return each(func(i int) string {
				return fmt.Sprintf(`{"id":"%s","type":"claim","campaign":"%s%04d","customer_id":"%s"}`, id(i), long[:60], i, long[:20])
			})
		},
		"last codes of a thousand campaigns, allotted": func(l *Lane) []string {
			s := wire.DefaultSettings(1)
			s.ValidFor = 1500e6
			for i := range wire.MaxMessageLines {
				cmd := wire.Command{Type: wire.CreateCampaign, ID: "create", Campaign: fmt.Sprintf("%s%04d", long[:60], i), Patch: wire.PatchOf(s)}
				l.Decide(&cmd, start, nil)
			}
			return each(func(i int) string {
				return fmt.Sprintf(`{"id":"%s","type":"allot","campaign":"%s%04d","count":1,"batch":"b"}`, id(i), long[:60], i)
			})
		},
		"refusals in a thousand campaigns": func(*Lane) []string {
			return each(func(i int) string {
				return fmt.Sprintf(`{"id":"%s","type":"claim","campaign":"%s%04d","customer_id":"c"}`, id(i), long[:60], i)
			})
		},
		"bad lines": func(*Lane) []string {
			return each(func(i int) string {
				return fmt.Sprintf(`{"%s":"%s"}`, strings.Repeat(`\"`, 60), strings.Repeat(`\"`, 60))
			})
		},
		"control characters": func(*Lane) []string {
			return each(func(int) string { return strings.Repeat("\x01", 200) })
		},
	}
}

func TestNoMessageMakesMoreThanAStepHolds(t *testing.T) {
	for name, make := range hostile() {
		for i, by := range []string{"", strings.Repeat(`"`, wire.MaxBy), "ann"} {
			l := testLane()
			lines := make(l)
			if i == 2 { // with request ids, as many as a message holds
				for n := range lines {
					lines[n] = strings.Replace(lines[n], `{"id"`, `{"request_id":"`+strings.Repeat(`\"`, wire.MaxRequestID)+`","id"`, 1)
				}
				for len(strings.Join(lines, "\n")) > wire.MaxMessage {
					lines = lines[:len(lines)*9/10]
				}
			}
			long := strings.Repeat("x", 64)
			m := Message{Sequence: 1<<64 - 1, Scope: wire.ScopeTrusted, By: by, Payload: []byte(strings.Join(lines, "\n"))}
			if strings.Contains(name, "claims") || strings.Contains(name, "bad") || strings.Contains(name, "control") {
				m.Campaign = long
			}
			if len(m.Payload) > wire.MaxMessage {
				t.Fatalf("%s by %q: the message has %d bytes", name, by, len(m.Payload))
			}
			s := NewStep(l)
			bound := l.cost(m.Payload, 0) + (len(lines)+1)*costOf(by)
			outs := outcomes(t, s.Add(m, start, nil))
			s.Close()
			if len(outs) != len(lines) {
				t.Fatalf("%s by %q: %d answers to %d lines", name, by, len(outs), len(lines))
			}
			if len(s.Events) > wire.MaxStep || len(s.Events) > bound {
				t.Fatalf("%s by %q: the step has %d bytes, at most %d are allowed and %d foreseen", name, by, len(s.Events), wire.MaxStep, bound)
			}
			evs := checkEvents(t, s.Events)
			late := 0
			for i, out := range outs {
				if out.Refusal == wire.NotDurable {
					late++
					if out.ID == "" && lines[i][2] == 'i' {
						t.Fatalf("%s by %q: line %d is refused without its id: %s", name, by, i, outcomeText(out))
					}
				} else if late > 0 {
					t.Fatalf("%s by %q: line %d is done after one before it was not: %s", name, by, i, outcomeText(out))
				}
			}
			if len(s.Events) < wire.MaxStep/2 && late > 0 {
				t.Fatalf("%s by %q: %d lines are refused though the step has only %d bytes", name, by, late, len(s.Events))
			}
			counted := uint64(0)
			for _, ev := range evs {
				for _, r := range ev.Refused {
					if r.Refusal == wire.NotDurable {
						counted += r.Count
					}
				}
			}
			if counted != uint64(late) {
				t.Fatalf("%s by %q: %d lines not done, %d counted", name, by, late, counted)
			}
			// Sent again, they are done: nothing of them was half done.
			for round := 0; late > 0 && round < 5; round++ {
				m.Payload = []byte(strings.Join(lines[len(lines)-late:], "\n"))
				s.Reset()
				late = 0
				for _, out := range outcomes(t, s.Add(m, start, nil)) {
					if out.Refusal == wire.NotDurable {
						late++
					} else if out.Repeat {
						t.Fatalf("%s by %q: a line not done is a repeat: %s", name, by, outcomeText(out))
					}
				}
			}
			if late > 0 {
				t.Fatalf("%s by %q: %d lines are never done", name, by, late)
			}
		}
	}
}

// TestTheStepIsNeverTooLarge: also when lines that look like claims are bad ones that cost more than Fits counted on, and
// the message is added to a step that is full already. The bad message pays for it, not the ones before and after.
func TestTheStepIsNeverTooLarge(t *testing.T) {
	s := NewStep(testLane())
	good := []byte(strings.Repeat(claimLine(1)+"\n", 800))
	bad := []byte(strings.Repeat(`{"id":"a","type":"claim","campaign":"c","customer_id":"\u0001`+strings.Repeat("x", 140)+`"}`+"\n", 900))
	refused := func(replies []byte) int { return bytes.Count(replies, []byte(`"not_durable"`)) }
	if !s.Fits(good, "") {
		t.Fatal("a message of claims does not fit an empty step")
	}
	if n := refused(s.Add(Message{Scope: wire.ScopeTrusted, Payload: good}, start, nil)); n != 0 {
		t.Fatalf("%d good lines are refused", n)
	}
	for n := 0; ; n++ {
		var made []byte
		for i := range 20 {
			made = fmt.Appendf(made, `{"id":"%d-%d","type":"create_campaign","campaign":"c%d-%d","codes":1}`+"\n", n, i, n, i)
		}
		if !s.Fits(made, "") {
			break
		}
		s.Add(Message{Scope: wire.ScopeTrusted, Payload: made}, start, nil)
	}
	s.Add(Message{Scope: wire.ScopeTrusted, Payload: bad}, start, nil)
	s.Close()
	if len(s.Events) > wire.MaxStep {
		t.Fatalf("the step has %d bytes, at most %d are allowed", len(s.Events), wire.MaxStep)
	}
	s.Reset()
	if n := refused(s.Add(Message{Scope: wire.ScopeTrusted, Payload: good}, start, nil)); n != 0 {
		t.Fatalf("%d good lines of the next step are refused", n)
	}
}

// TestFitsIsABound: no message makes more events than Fits counted on, if its lines are what they look like.
func TestFitsIsABound(t *testing.T) {
	for seed := range uint64(30) {
		w := newWorld(worldtest.Random(seed))
		s := NewStep(testLane())
		for range 60 {
			var payload []byte
			for range 1 + w.Choose(12) {
				c := w.Command()
				line := c.AppendJSON(nil)
				if w.Choose(5) == 0 {
					line = line[:w.Choose(len(line))]
				}
				payload = append(append(payload, line...), '\n')
			}
			bound, had := s.lane.cost(payload, s.parked), s.size()
			s.Add(Message{Sequence: 5, Scope: worldtest.Pick(w.Choose, wire.ScopeTrusted, wire.ScopeTrusted, wire.ScopeScheduler), Payload: payload}, w.Now, nil)
			if got := s.size() - had; got > bound {
				t.Fatalf("seed %d: %s\nmakes %d bytes, foreseen were %d:\n%s", seed, payload, got, bound, s.Events[had:])
			}
		}
		size := s.size()
		s.Close()
		if len(s.Events) > size || s.size() != len(s.Events) {
			t.Fatalf("closed, the step has %d bytes; %d were foreseen", len(s.Events), size)
		}
		for _, ev := range checkEvents(t, s.Events) {
			w.Learn([]wire.Event{ev})
		}
		if !s.Fits([]byte(claimLine(1)), "") && len(s.Events) < wire.MaxStep-2000 {
			t.Fatalf("one line does not fit beside %d bytes", len(s.Events))
		}
	}
}

// TestBadLinesOfAStepAreBounded: the first hundred are parked in full, the rest as one that counts them. All are refused
// to their sender, and good lines among them are done.
func TestBadLinesOfAStepAreBounded(t *testing.T) {
	s := stepOn(t, 10)
	const messages, lines = 12, 1000
	sent, refused := 0, 0
	for n := range messages {
		payload := []byte(strings.Repeat(`{"x":1}`+"\n", lines-1) + claimLine(n%10) + "\n")
		if !s.Fits(payload, "") {
			t.Fatalf("message %d does not fit beside %d bytes", n, s.size())
		}
		sent += len(payload)
		outs := outcomes(t, s.Add(Message{Sequence: uint64(10 + n), Scope: wire.ScopeTrusted, Payload: payload}, start, nil))
		for _, out := range outs[:lines-1] {
			if out.Refusal == wire.Invalid {
				refused++
			}
		}
		if out := outs[lines-1]; out.Status != wire.StatusClaimed {
			t.Errorf("the good line of message %d: %s", n, outcomeText(out))
		}
	}
	size := s.size()
	s.Close()
	if bad := messages * (lines - 1); refused != bad {
		t.Errorf("%d of %d bad lines were refused", refused, bad)
	}
	parked, counted := 0, wire.Event{}
	for _, ev := range checkEvents(t, s.Events) {
		switch {
		case ev.Type == wire.CommandRejected && ev.Count == 0:
			parked++
		case ev.Type == wire.CommandRejected:
			if counted.Count != 0 {
				t.Error("a second line counts")
			}
			counted = ev
		}
	}
	want := wire.Event{Type: wire.CommandRejected, At: start, Sequence: 10, Line: 101, Count: messages*(lines-1) - 100, LastSequence: 10 + messages - 1,
		Bytes: (messages*(lines-1) - 100) * 7, Payload: `{"x":1}`, Reason: counted.Reason}
	if parked != 100 || !reflect.DeepEqual(counted, want) || !strings.HasPrefix(counted.Reason, "11888 bad lines beyond the first 100") {
		t.Errorf("%d parked, and\n%+v, want\n%+v", parked, counted, want)
	}
	if len(s.Events) > size || len(s.Events) > sent {
		t.Errorf("%d bytes are kept of %d; %d were foreseen", len(s.Events), sent, size)
	}
	s.Reset()
	if s.Add(Message{Sequence: 50, Scope: wire.ScopeTrusted, Payload: []byte("x")}, start, nil); len(checkEvents(t, s.Events)) != 1 {
		t.Errorf("the next step begins with %s", s.Events)
	}
}

// TestInventedCampaignsAreCountedTogether, with some of their names; those that exist keep lines of their own.
func TestInventedCampaignsAreCountedTogether(t *testing.T) {
	s := stepOn(t, 0)
	var payload []byte
	const invented = 998
	for i := range invented {
		payload = append(payload, linetest.With(claimLine(i), "campaign", fmt.Sprintf("%q", fmt.Sprint("invented-", i)))+"\n"...)
	}
	payload = append(payload, claimLine(1)+"\n"...) // of a campaign that has no codes
	s.Add(Message{Sequence: 1, Scope: wire.ScopeTrusted, Payload: payload}, start, nil)
	size := s.size()
	s.Close()
	evs := checkEvents(t, s.Events)
	if len(evs) != 2 || len(s.Events) > size {
		t.Fatalf("%d bytes, %d foreseen: %s", len(s.Events), size, s.Events)
	}
	if evs[0].Campaign != "" || !slices.Equal(evs[0].Refused, []wire.RefusalCount{{Refusal: wire.CampaignNotFound, Count: invented}}) || len(evs[0].Sample) != maxSample || evs[0].Sample[3] != "invented-3" {
		t.Errorf("%+v", evs[0])
	}
	if evs[1].Campaign == "" || evs[1].Sample != nil {
		t.Errorf("%+v", evs[1])
	}
}

// TestWrongCodesAreCountedTogether: malformed, forged, of another's key, and unclaimed ones, however many texts there are.
func TestWrongCodesAreCountedTogether(t *testing.T) {
	s := stepOn(t, 9)
	var payload []byte
	wrong := []string{"hello", "SUMMER20", "7KQ2-9F3M-XW4T", "7KQ2-9F3M-XW4"}
	for i, typed := range append(wrong, strings.Repeat("x", wire.MaxCodeInput)) {
		payload = fmt.Appendf(payload, `{"id":"%d","type":"redeem","code":"%s","order_id":"o"}`+"\n", i, typed)
	}
	outs := outcomes(t, s.Add(Message{Sequence: 1, Scope: wire.ScopeTrusted, Payload: payload}, start, nil))
	s.Close()
	evs := checkEvents(t, s.Events)
	want := wire.RefusalCount{Refusal: wire.CodeNotFound, Count: uint64(len(outs))}
	if len(evs) != 1 || evs[0].Campaign != "" || !slices.Equal(evs[0].Refused, []wire.RefusalCount{want}) || evs[0].Sample != nil {
		t.Errorf("%s", s.Events)
	}
	if outs[0].Message != wire.NoForm {
		t.Errorf("%+v", outs[0])
	}
}

func TestResetLeavesTheEventsBeforeAlone(t *testing.T) {
	s := stepOn(t, 10)
	s.Add(Message{Scope: wire.ScopeTrusted, Payload: []byte(claimLine(1) + "\n" + linetest.With(claimLine(2), "campaign", `"nowhere"`))}, start, nil)
	s.Close()
	first, text := s.Events, string(s.Events)
	s.Reset()
	if len(s.Events) != 0 || s.Lines != 0 || s.Commands != 0 {
		t.Fatalf("after Reset: %+v", s)
	}
	s.Add(Message{Scope: wire.ScopeTrusted, Payload: []byte(claimLine(3) + "\n" + linetest.With(claimLine(4), "campaign", `"nowhere"`))}, start, nil)
	s.Close()
	if string(first) != text {
		t.Fatal("the events of the step before were overwritten")
	}
	if evs := checkEvents(t, s.Events); len(evs) != 2 || evs[1].Refused[0] != (wire.RefusalCount{Refusal: wire.CampaignNotFound, Count: 1}) {
		t.Fatalf("the second step is %s", s.Events)
	}
}
