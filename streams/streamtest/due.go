package streamtest

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Due is a reminder.due line without the newline: it fired at 1 s, was due at 2 s, and its customers have the numbers from first
// on.
func Due(campaign string, first uint64, customers ...string) []byte {
	e := wire.Event{Type: wire.ReminderDue, Campaign: campaign, At: 1_000_000, Kind: wire.KindOpens, Before: time.Minute, DueAt: 2_000_000, CustomerIDs: customers}
	for i := range customers {
		e.Rs = append(e.Rs, first+uint64(i))
	}
	return e.AppendJSON(nil)
}
