package domain

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/linetest"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// A lane quotes no more of bad lines than it may: what is quoted stays in the log for ever.
func TestBadLinesAreQuotedWithinBounds(t *testing.T) {
	secret := strings.Repeat("secret ", 300)
	for most, want := range map[int]int{0: len("…"), 40: 40, MaxQuoted: MaxQuoted} {
		lane := NewLane(LaneOptions{Lanes: 1})
		lane.SetQuoted(most)
		step := NewStep(lane)
		step.Add(Message{Sequence: 1, Scope: wire.ScopeTrusted, Payload: []byte(secret)}, 1, nil)
		step.Add(Message{Sequence: 2, Scope: wire.ScopeTrusted, Payload: bytes.Repeat([]byte(secret+"\n"), 100)}, 2, nil)
		step.Close()
		letters, counted := 0, 0
		for line := range bytes.Lines(step.Events) {
			var e wire.Event
			if err := wire.ParseEvent(bytes.TrimSpace(line), &e); err != nil {
				t.Fatal(err)
			}
			if e.Type != wire.CommandRejected {
				continue
			}
			letters++
			if e.Count > 0 {
				counted++
			}
			if len(e.Payload) > want || letters == 1 && len(e.Payload) < want-len("…secret") || most == 0 && bytes.Contains(line, []byte("secret")) {
				t.Errorf("at most %d: %d bytes are quoted in %s", most, len(e.Payload), fmt.Sprintf("%.200s", line))
			}
		}
		if letters < 2 || counted != 1 {
			t.Errorf("%d dead letters, %d of them for many", letters, counted)
		}
	}
}

// secretCode is a code that is typed where it does not belong.
const secretCode = "7KQ2-9F3M-XW4T"

// FuzzReasons: people who may not see codes read all of a dead letter but its payload, so nothing else has a code,
// wherever in a bad line it was typed.
func FuzzReasons(f *testing.F) {
	lines := []string{linetest.Claim, linetest.Redeem, linetest.Create, linetest.Update, linetest.Remind, linetest.Import, linetest.Extend, linetest.Expire, linetest.Due,
		linetest.With(linetest.Claim, "attributes", `{"channel":"app","of":1}`), linetest.With(linetest.Claim, "zone", `"Europe/Berlin"`),
		linetest.With(linetest.Create, "prefix", `"SUN"`), linetest.With(linetest.Import, "codes", `["AB","ABCDEFGH12"]`)}
	for _, line := range lines {
		for at := range len(line) + 1 {
			f.Add([]byte(line), uint16(at), "")
		}
	}
	f.Add([]byte(linetest.Claim), uint16(1), "a-campaign")
	f.Add([]byte(linetest.Claim), uint16(1), secretCode)
	f.Fuzz(func(t *testing.T, line []byte, at uint16, subject string) {
		at = min(at, uint16(len(line)))
		for _, typed := range []string{secretCode, `"` + secretCode + `":1,`, `"` + secretCode + `"`, " " + secretCode + "!"} {
			step := NewStep(testLane())
			bad := slices.Concat(line[:at], []byte(typed), line[at:])
			step.Add(Message{Payload: bad, Scope: wire.ScopeTrusted, Campaign: subject}, start, nil)
			step.Close()
			for text := range bytes.Lines(step.Events) {
				var e wire.Event
				if err := wire.ParseEvent(bytes.TrimSpace(text), &e); err != nil {
					t.Fatal(err)
				}
				if e.Type != wire.CommandRejected {
					continue
				}
				e.Payload, e.RequestID = "", ""
				if rest := e.AppendJSON(nil); bytes.Contains(rest, []byte(secretCode)) || e.Reason == "" {
					t.Errorf("%s\n makes %s", bad, rest)
				}
			}
		}
	})
}
