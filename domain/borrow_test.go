package domain

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/linetest"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/domain/worldtest"
)

// A step and a fold read their lines without copying them. What follows finds what they keep of a line: it is overwritten
// as soon as they return.

func scribble(b []byte) {
	for i := range b {
		b[i] = "\xff\x00Q"[i%3]
	}
}

// TestLinesTogetherAreLinesOneByOne gives one lane its commands one by one and another one the same commands in messages
// of several. Lines of a message are looked at together before they are decided, and codes are filled in behind; neither
// may show, least of all where a line depends on the one before it.
func TestLinesTogetherAreLinesOneByOne(t *testing.T) {
	together := func(t *testing.T, rt failer, w *world, messages int) {
		a, b := testLane(), testLane()
		a.scanLimit = uint8(worldtest.Pick(w.Choose, 0, 5, linearScanLimit))
		one, many := NewStep(a), NewStep(b)
		for range messages {
			var payload, want []byte
			scope := worldtest.Pick(w.Choose, wire.ScopeTrusted, wire.ScopeTrusted, wire.ScopeTrusted, wire.ScopeScheduler)
			now := max(w.Now, a.clock)
			for range 1 + w.Choose(20) {
				cmd := w.Command()
				w.Now = now
				line := cmd.AppendJSON(nil)
				if w.Choose(15) == 0 {
					line = line[:len(line)-1]
				}
				payload = append(append(payload, line...), '\n')
				had := len(one.Events)
				want = one.Add(Message{Sequence: 1, Scope: scope, Payload: line}, now, want)
				for made := range bytes.Lines(one.Events[had:]) {
					var ev wire.Event
					if err := wire.ParseEvent(bytes.Clone(made), &ev); err != nil {
						rt.Fatal(err)
					}
					w.Learn([]wire.Event{ev})
				}
			}
			got := many.Add(Message{Sequence: 1, Scope: scope, Payload: payload}, now, nil)
			scribble(payload)
			// Nothing hangs on the payload, so that its memory comes free.
			for i, x := 0, &b.scratch; i < len(x.lines); i++ {
				if x.lines[i].text != nil || x.lines[i].cmd.ID != "" || x.prepared[i].cmd != nil {
					rt.Fatalf("line %d is still in the scratch", i)
				}
			}
			for _, ev := range b.scratch.decision.events[:cap(b.scratch.decision.events)] {
				if ev.ID != "" {
					rt.Fatalf("event %+v is still in the scratch", ev)
				}
			}
			if !bytes.Equal(got, want) {
				rt.Fatalf("together they are answered\n%s\none by one\n%s", got, want)
			}
			w.Pass()
		}
		one.Close()
		many.Close()
		// A dead letter knows its line within the message.
		if x, y := withoutLines(one.Events), withoutLines(many.Events); x != y {
			rt.Fatalf("together they make\n%s\none by one\n%s", y, x)
		}
		if !bytes.Equal(snapshot(t, a), snapshot(t, b)) {
			rt.Fatal("the lanes differ")
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		together(t, rt, newWorld(rapidChooser(rt)), rapid.IntRange(1, 6).Draw(rt, "messages"))
	})
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("long, seed ", seed), func(t *testing.T) {
			together(t, t, newWorld(worldtest.Random(seed)), 30)
		})
	}
}

func withoutLines(events []byte) string {
	var b strings.Builder
	for line := range bytes.Lines(events) {
		var ev wire.Event
		if err := wire.ParseEvent(bytes.Clone(line), &ev); err != nil {
			panic(err)
		}
		ev.Line = 0
		b.Write(ev.AppendJSON(nil))
		b.WriteByte('\n')
	}
	return b.String()
}

// TestParsedCommandsAndEventsAreOnesOwn: the parsers for everyone copy, whatever the lane does.
func TestParsedCommandsAndEventsAreOnesOwn(t *testing.T) {
	for _, line := range []string{linetest.Claim, linetest.Redeem, linetest.Remind, linetest.Create, linetest.Import, linetest.Extend,
		`{"id":"a","type":"claim","campaign":"s","customer_id":"c","attributes":{"a":1}}`,
		`{"id":"a","type":"claim","campaign":"s","customer_id":"c","attributes":{ "a" : "b c" , "d":[]}}`,
		`{"id":"a","type":"void","code":"x","reason":"stolen"}`, `{"id":"known","type":"nothing","campaign":"s"}`} {
		raw := []byte(line)
		var cmd wire.Command
		err := wire.ParseCommand(raw, wire.Defaults{}, &cmd)
		before := fmt.Sprintf("%+v", cmd)
		scribble(raw)
		if after := fmt.Sprintf("%+v", cmd); after != before || err == nil && cmd.ID == "" {
			t.Errorf("%s is\n%s and then\n%s (%v)", line, before, after, err)
		}
	}
	w := newWorld(worldtest.Random(1))
	for _, ev := range w.run(testLane(), 400) {
		raw := ev.AppendJSON(nil)
		var parsed wire.Event
		if err := wire.ParseEvent(raw, &parsed); err != nil {
			t.Fatal(err)
		}
		parsed.Attributes, parsed.Settings.Benefit = nil, nil // these are views, as documented
		before := fmt.Sprintf("%+v", parsed)
		scribble(raw)
		if after := fmt.Sprintf("%+v", parsed); after != before {
			t.Fatalf("%s is\n%s and then\n%s", ev.AppendJSON(nil), before, after)
		}
	}
	out := wire.Outcome{ID: "i", Status: wire.StatusClaimed, Campaign: "s", Code: "c", CustomerID: "x", Kind: wire.KindOpens, Before: time.Hour, Benefit: []byte("1")}
	raw := out.AppendJSON(nil)
	parsed, err := wire.ParseOutcome(raw)
	scribble(raw)
	if err != nil || outcomeText(parsed) != outcomeText(out) {
		t.Fatalf("%s, %v", outcomeText(parsed), err)
	}
}

// TestALineAllocatesNothing: what is left are pages, buckets and one buffer a step.
func TestALineAllocatesNothing(t *testing.T) {
	l := benchLane(1, benchSettings(100_000), 5_000)
	early := benchLane(1, func() wire.Settings { s := benchSettings(10); s.OpensAt = start + day; return s }(), 0)
	c := l.campaigns["c0"]
	claims := messagesOf(10_000, "", claimOf(always("c0")))
	attributes := messagesOf(10_000, "", func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"id":"x%d","type":"claim","campaign":"c0","customer_id":"other-%d","attributes":{"channel":"app","n":%d}}`+"\n", i, i, i)
	})
	redeems := messagesOf(5_000, "", func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"id":"r%d","type":"redeem","code":"%s","order_id":"order-%d"}`+"\n", i, l.codeOf(c, uint32(i)+1), i)
	})
	for _, tc := range []struct {
		name     string
		lane     *Lane
		messages []Message
		message  string
	}{
		{"claims", l, claims[5:], `"status":"claimed"`},
		{"claims with attributes", l, attributes, `"status":"claimed"`},
		{"repeats", l, claims[:5], `"repeat":true`},
		{"redemptions", l, redeems, `"status":"redeemed"`},
		{"sold out", benchLane(1, benchSettings(1), 1), claims[1:], `"refusal":"sold_out"`},
		{"before the opening", early, claims, `"refusal":"claim_not_open"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, k := NewStep(tc.lane), 0
			var replies []byte
			allocs := testing.AllocsPerRun(3, func() {
				s.Reset()
				replies = s.Add(tc.messages[k], start, replies[:0])
				s.Close()
				k++
			})
			if !bytes.Contains(replies, []byte(tc.message)) {
				t.Fatalf("answered %.200s", replies)
			}
			if allocs > linesPerMessage/20 {
				t.Errorf("%v allocations for %d lines", allocs, linesPerMessage)
			}
		})
	}
}

// TestFoldReportsWhereItStops: the line that could not be applied is the one after those that were, wherever it is.
func TestFoldReportsWhereItStops(t *testing.T) {
	s := stepOn(t, 100)
	for i := range 30 {
		s.Add(Message{Sequence: 1, Scope: wire.ScopeTrusted, Payload: []byte(claimLine(i))}, start, nil)
	}
	good := bytes.SplitAfter(s.Events, newline)
	for bad := range 30 {
		for _, line := range []string{"not json\n", `{"type":"future.event","campaign":"s"}` + "\n", string(good[(bad+2)%30])} {
			l := stepOn(t, 100).lane
			payload := []byte("\n\n")
			for i, g := range good {
				if i == bad {
					payload = append(payload, line...)
				}
				payload = append(payload, g...)
			}
			n, err := l.Fold(payload)
			v, _ := l.Campaign("s")
			if err == nil || n != bad || int(v.Claimed) != bad || !strings.HasPrefix(err.Error(), fmt.Sprintf("line %d: ", bad+3)) {
				t.Fatalf("%q as line %d: %d applied, %d claimed, %v", line, bad, n, v.Claimed, err)
			}
			for i := range l.folding {
				if l.folding[i].event.ID != "" {
					t.Fatalf("line %d is still in the lane", i)
				}
			}
		}
	}
	if n, err := stepOn(t, 100).lane.Fold([]byte("\n\n" + string(good[0]) + "\n" + strings.TrimSpace(string(good[1])))); n != 2 || err != nil {
		t.Fatalf("with empty lines: %d applied, %v", n, err)
	}
}
