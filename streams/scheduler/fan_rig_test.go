package scheduler

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/fanout"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// fired makes an event log in which n reminders of one campaign have fired, with none there to publish them.
func fired(r *rig, n int) {
	r.t.Helper()
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, n, "50s")
	r.set(start + seconds(50))
	cmd := wire.Command{ID: "s", Type: wire.RemindDue, Campaign: "a", Kind: wire.KindOpens, DueAt: start + seconds(50), ThroughR: uint64(n)}
	r.answer(append(cmd.AppendJSON(nil), '\n'))
	r.mu.Lock()
	r.requests = nil
	r.mu.Unlock()
}

// eachOnce checks that customers c1 to c<n> were published, each once and in order.
func eachOnce(t *testing.T, published []wire.Event, n int) {
	t.Helper()
	if len(published) != n {
		t.Fatalf("%d published, expected %d", len(published), n)
	}
	for i := range published {
		if want := fmt.Sprintf("c%d", i+1); published[i].CustomerID != want {
			t.Fatalf("published %s in place %d, expected %s", published[i].CustomerID, i+1, want)
		}
	}
}

// newFan is a fan-out as Run makes one, to be crashed by hand.
func (r *rig) newFan(ackWait time.Duration) *fanout.Fan {
	r.t.Helper()
	stream := eventlog.Reminders(r.js, 0).In(r.sealed())
	a, err := stream.NewAppender(ackWait)
	streamtest.Must(r.t, err)
	r.t.Cleanup(a.Close)
	tail, err := stream.Tail(r.t.Context())
	streamtest.Must(r.t, err)
	pace, some := fanout.NewPace(nil), settings.Default()
	some.ReminderBatch = 500
	pace.Configure(some)
	f := &fanout.Fan{
		Queue:  fanout.Queue{Sealer: stream.Sealer(), Owner: fmt.Sprintf("fan-%p", a), Last: tail.Last, Chained: true},
		Stream: stream, Appender: a, Pace: pace, Clock: wall.Machine,
		Published: prometheus.NewCounter(prometheus.CounterOpts{Name: "published"}), Total: new(atomic.Uint64), Log: streamtest.Logger(r.t),
	}
	if tail.Message != nil {
		f.Reached = tail.Message.Source
	}
	return f
}

// expandAll hands a fan the firing of the log that fired made, up to customer upTo.
func (r *rig) expandAll(ctx context.Context, f *fanout.Fan, upTo int) error {
	r.t.Helper()
	b := timers.New("")
	for _, m := range r.read(eventlog.Events(r.js, 0)) {
		for n, ev := range r.lines([]eventlog.Message{m}) {
			gone, err := b.Fold(&ev)
			if err != nil {
				return err
			}
			if ev.Fired > 0 {
				f.Add(&m, n+1, &ev, priority.Normal, gone[:min(len(gone), upTo)])
			}
		}
	}
	return f.Drain(ctx, 1) // all but one on its way, and not landed
}
