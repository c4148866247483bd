package oracle

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestEveryEventIsChecked: the oracle has a rule for each event; an event without one would never be a violation.
func TestEveryEventIsChecked(t *testing.T) {
	for e := range wire.Events() {
		f := New()
		for _, ev := range story() {
			f.Apply("before", &ev)
		}
		f.Violations = nil
		f.Apply("here", &wire.Event{Type: e, Campaign: "s", At: t0 + 50*second, N: 1})
		for _, v := range f.Violations {
			if strings.Contains(v, unchecked(e)) {
				t.Error(v)
			}
		}
	}
	f := New()
	for _, ev := range story() {
		f.Apply("before", &ev)
	}
	if f.Apply("here", &wire.Event{Type: wire.ReminderDue, Campaign: "s", At: t0 + 50*second}); !strings.Contains(strings.Join(f.Violations, ";"), unchecked(wire.ReminderDue)) {
		t.Errorf("an event without a rule passes: %v", f.Violations)
	}
}
