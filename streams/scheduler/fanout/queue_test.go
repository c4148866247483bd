package fanout

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// The lines are those of wire.Event.AppendJSON, byte for byte, whatever the customer is called.
func TestDueLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ev := wire.Event{
			Type: wire.RemindersDue, Campaign: rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "campaign"),
			At: start + wire.Instant(rapid.Int64Range(0, 1e9).Draw(t, "at")), Kind: rapid.SampledFrom([]string{"opens", "expires"}).Draw(t, "kind"),
			DueAt: start + wire.Instant(rapid.Int64Range(0, 1e9).Draw(t, "due")), FromR: 1, ThroughR: 9, Fired: 9,
		}
		l := newDueLine(&ev)
		var got, want []byte
		for range 3 {
			customer := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,128}`), rapid.SampledFrom([]string{"", `"`, `\`, "ü", "\xff", "a\x7f", "\u2028"})).Draw(t, "customer")
			got = l.append(got, customer)
			line := wire.Event{Type: wire.ReminderDue, Campaign: ev.Campaign, At: ev.At, Kind: ev.Kind, DueAt: ev.DueAt, CustomerID: customer}
			want = append(line.AppendJSON(want), '\n')
		}
		if string(got) != string(want) {
			t.Fatalf("\n got %s\nwant %s", got, want)
		}
	})
}

// A line costs no allocation.
func TestDueLinesAllocateNothing(t *testing.T) {
	l := newDueLine(&wire.Event{Campaign: "summer", At: start, Kind: "opens", DueAt: start})
	buf := make([]byte, 0, 1000)
	streamtest.Equal(t, "allocations of a line", testing.AllocsPerRun(100, func() { buf = l.append(buf[:0], "customer-0000001") }), 0)
}
