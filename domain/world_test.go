package domain

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/domain/worldtest"
)

const (
	second, minute, hour, day = worldtest.Second, worldtest.Minute, worldtest.Hour, worldtest.Day
	start                     = worldtest.Start
)

var testKey = [32]byte{1, 2, 3}

func testLane() *Lane { return NewLane(LaneOptions{Lane: 0, Lanes: 1, Key: testKey}) }

// rapidChooser lets a property test draw, so that it can shrink what failed.
func rapidChooser(t *rapid.T) worldtest.Chooser {
	return func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
}

type world struct{ *worldtest.World }

func newWorld(c worldtest.Chooser) *world { return &world{worldtest.New(c)} }

// dueNow turns a remind_due into one for which something is really due, if there is.
func (w *world) dueNow(l *Lane, c *wire.Command) {
	if c.Type != wire.RemindDue || w.Choose(5) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.campaigns)) {
		camp := l.campaigns[name]
		if due := slices.Collect(camp.reminders().Due(camp.anchors(), max(w.Now, l.clock))); len(due) > 0 {
			d := due[w.Choose(len(due))]
			c.Campaign, c.Kind, c.DueAt = name, d.Kind, d.DueAt
			return
		}
	}
}

// run decides n random commands on the lane and returns the events they made.
func (w *world) run(l *Lane, n int) (evs []wire.Event) {
	for range n {
		c := w.Command()
		w.dueNow(l, &c)
		had := len(evs)
		evs, _ = l.Decide(&c, w.Now, evs)
		w.Learn(evs[had:])
	}
	return evs
}

// sameOutcome compares what Decide answered.
func outcomeText(o wire.Outcome) string { return string(o.AppendJSON(nil)) }

func eventTexts(evs []wire.Event) string {
	var b strings.Builder
	for i := range evs {
		b.Write(evs[i].AppendJSON(nil))
		b.WriteByte('\n')
	}
	return b.String()
}

// bothDecide gives the same further random commands to two lanes and fails where they answer differently.
func bothDecide(t testing.TB, w *world, a, b *Lane, n int) {
	t.Helper()
	for range n {
		c := w.Command()
		w.dueNow(a, &c)
		evA, outA := a.Decide(&c, w.Now, nil)
		evB, outB := b.Decide(&c, w.Now, nil)
		if x, y := outcomeText(outA), outcomeText(outB); x != y {
			t.Fatalf("%s\n is answered %s\n and after it %s", c.AppendJSON(nil), x, y)
		}
		if x, y := eventTexts(evA), eventTexts(evB); x != y {
			t.Fatalf("%s\n makes %s\n and after it %s", c.AppendJSON(nil), x, y)
		}
		w.Learn(evA)
	}
}
