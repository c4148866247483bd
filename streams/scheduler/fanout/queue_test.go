package fanout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Messages have each customer once, in order, within the bounds, and their lines are those of wire.Event.AppendJSON, byte for
// byte, whatever the customers are called.
func TestMessagesAreLists(t *testing.T) {
	customer := rapid.OneOf(rapid.StringN(1, -1, 128), rapid.StringMatching(`[ -~]{1,128}`), rapid.SampledFrom([]string{`"`, `\`, "ü", "\xff", "a\x7f", "\u2028", strings.Repeat("\x01", 128)}))
	rapid.Check(t, func(t *rapid.T) {
		q := &Queue{Owner: "test", Sealer: eventlog.Reminders(nil, 0).In(topology.Log{UUID: "u"}.WithKey([32]byte{1})).Sealer()}
		type one struct {
			timers.Fired
			of *wire.Event
		}
		var all []one
		for seq := range rapid.IntRange(1, 4).Draw(t, "firings") {
			ev := &wire.Event{
				Type: wire.RemindersDue, Campaign: rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "campaign"),
				At: start + wire.Instant(rapid.Int64Range(0, 1e9).Draw(t, "at")), Kind: rapid.SampledFrom([]string{"opens", "expires"}).Draw(t, "kind"),
				DueAt: start + wire.Instant(rapid.Int64Range(0, 1e9).Draw(t, "due")), FromR: 1, ThroughR: 9, Fired: 9,
			}
			var fired []timers.Fired
			names := rapid.SliceOfN(customer, 1, 20).Draw(t, "customers")
			n := rapid.SampledFrom([]int{1, 5, 400}).Draw(t, "how many")
			r := rapid.Uint64Range(1, 1<<32).Draw(t, "r")
			zones := rapid.SampledFrom([][]string{{""}, {""}, {"", "UTC", "Asia/Tokyo"}}).Draw(t, "zones")
			leads := rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "leads")
			for i := range n {
				fired = append(fired, timers.Fired{R: r, Customer: names[i%len(names)], Before: time.Hour * time.Duration(i/7%leads)})
				if zone := zones[i/5%len(zones)]; zone != "" {
					fired[i].Customer += "\n" + zone
				}
				all = append(all, one{fired[i], ev})
				r += 1 + uint64(i%3)
			}
			q.Add(&eventlog.Message{Sequence: uint64(seq + 1)}, 1, ev, priority.Normal, fired)
		}
		most := rapid.SampledFrom([]int{1, 7, 300, wire.MaxDueCustomers}).Draw(t, "most")
		for q.waiting > 0 {
			attempt, customers := q.Next(most)
			if len(attempt.Payload) > wire.MaxDueBytes || customers > most || customers == 0 || q.waiting > 0 && customers < most && len(attempt.Payload) < wire.MaxDueBytes-2_000 {
				t.Fatalf("a message of %d customers and %d bytes, while %d wait", customers, len(attempt.Payload), q.waiting)
			}
			last := uint64(0)
			for _, line := range eventlog.Lines(attempt.Payload) {
				var ev wire.Event
				if err := wire.ParseEvent(line, &ev); err != nil || len(ev.CustomerIDs) == 0 || len(ev.CustomerIDs) != len(ev.Rs) {
					t.Fatalf("the line %.200s: %v", line, err)
				}
				of := all[0].of
				want := wire.Event{Type: wire.ReminderDue, Campaign: of.Campaign, At: of.At, Kind: of.Kind, Before: all[0].Before, DueAt: of.DueAt}
				_, want.Zone = all[0].Name()
				for range ev.Rs {
					if all[0].of != of || all[0].Before != want.Before {
						t.Fatalf("a line of several firings or leads: %.200s", line)
					}
					customer, zone := all[0].Name()
					if zone != want.Zone {
						t.Fatalf("a line of several time zones: %.200s", line)
					}
					want.CustomerIDs, want.Rs = append(want.CustomerIDs, customer), append(want.Rs, all[0].R)
					all = all[1:]
				}
				if got := want.AppendJSON(nil); string(got) != string(line) {
					t.Fatalf("\n got %s\nwant %s", line, got)
				}
				last = ev.Rs[len(ev.Rs)-1]
			}
			if source := attempt.Header.Get(topology.HeaderSource); !strings.HasSuffix(source, fmt.Sprintf(":%d", last)) {
				t.Fatalf("source %s of a message that ends with %d", source, last)
			}
		}
		if len(all) > 0 {
			t.Fatalf("%d customers are missing", len(all))
		}
	})
}
