package domain

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

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
