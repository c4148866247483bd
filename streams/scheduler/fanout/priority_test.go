package fanout

import (
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// A message has the highest priority of the campaigns in it.
func TestAMessageHasThePriority(t *testing.T) {
	for _, tc := range []struct {
		of   []priority.Priority
		want string
	}{
		{[]priority.Priority{priority.Normal}, ""},
		{[]priority.Priority{priority.Low}, "low"},
		{[]priority.Priority{priority.Low, priority.Low}, "low"},
		{[]priority.Priority{priority.Low, priority.Normal}, ""},
		{[]priority.Priority{priority.Low, priority.High, priority.Normal}, "high"},
	} {
		q := &Queue{Owner: "test", Sealer: eventlog.Reminders(nil, 0).In(topology.Log{UUID: "u"}.WithKey([32]byte{1})).Sealer()}
		for n, of := range tc.of {
			m := &eventlog.Message{Sequence: uint64(n + 1)}
			q.Add(m, 1, &wire.Event{Type: wire.RemindersDue, Campaign: "c", At: start, Kind: "opens", DueAt: start}, of, []timers.Fired{{R: 1, Customer: "ann"}})
		}
		attempt, customers := q.Next(500)
		if got := attempt.Header.Get(topology.HeaderPriority); got != tc.want || customers != len(tc.of) {
			t.Errorf("%v: priority %q of %d customers, want %q", tc.of, got, customers, tc.want)
		}
	}
}
