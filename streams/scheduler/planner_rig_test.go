package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// plannerRig is a planner and a naive lane that answers it.
type plannerRig struct {
	t    testing.TB
	p    *planner
	gone []timers.Fired // by the last event
}

func newPlannerRig(t testing.TB) *plannerRig {
	return &plannerRig{t: t, p: newPlanner(timers.New(""))}
}

func (d *plannerRig) fold(ev wire.Event) int {
	d.t.Helper()
	gone, err := d.p.timers.Fold(&ev)
	if err != nil {
		d.t.Fatalf("%v", err)
	}
	d.p.folded(&ev)
	d.gone = gone
	return len(gone)
}

// waits is the part of a planner's backlog that waits.
func (p *planner) waits() [priority.Campaigns]int {
	_, waiting := p.backlog()
	return waiting
}

// campaign makes one whose n subscribers are due at the given instant; 0 = without an opening.
func (d *plannerRig) campaign(name, setting string, due wire.Instant, n int) {
	d.t.Helper()
	d.fold(wire.Event{Type: wire.CampaignCreated, Campaign: name, Settings: wire.Settings{OpensAt: due, Priority: setting}})
	for r := 1; r <= n; r++ {
		d.fold(wire.Event{Type: wire.ReminderSet, Campaign: name, R: uint64(r), CustomerID: fmt.Sprint("c", r), Kind: wire.KindOpens, DueAt: due})
	}
}

// never sets a reminder of an expiry that never comes: the campaign does not fire as a whole.
func (d *plannerRig) never(name string, r int) {
	d.t.Helper()
	d.fold(wire.Event{Type: wire.ReminderSet, Campaign: name, R: uint64(r), CustomerID: "never", Kind: wire.KindExpires})
}

// answer folds what a lane has to the command, and returns how many it fired.
func (d *plannerRig) answer(cmd *wire.Command) int {
	d.t.Helper()
	if cmd.Type == wire.Expire {
		d.fold(wire.Event{Type: wire.CouponsExpired, Campaign: cmd.Campaign, Through: cmd.Through})
		return 0
	}
	e := d.p.timers.Campaign(cmd.Campaign)
	due := e.At(wire.DueSet{Kind: cmd.Kind, DueAt: cmd.DueAt, ThroughR: cmd.ThroughR})
	if due.Subscriptions == 0 {
		return 0
	}
	return d.fold(wire.Event{Type: wire.RemindersDue, Campaign: cmd.Campaign, Kind: cmd.Kind, DueAt: cmd.DueAt, FromR: due.FromR, ThroughR: due.LastR, Fired: due.Subscriptions})
}

// overdue sets n reminders, each at an instant of its own before the campaign opens.
func (d *plannerRig) overdue(name string, from, n int) {
	d.t.Helper()
	for i := range n {
		d.fold(wire.Event{Type: wire.ReminderSet, Campaign: name, R: uint64(from + i), CustomerID: "x", Kind: wire.KindOpens, Before: time.Duration(n-i) * time.Millisecond})
	}
}

// settings are the default ones, changed.
func changed(change func(*settings.Settings)) *settings.Settings {
	s := settings.Default()
	change(s)
	return s
}

func sortedLines(cmds []wire.Command) []string {
	lines := make([]string, len(cmds))
	for i := range cmds {
		lines[i] = string(cmds[i].AppendJSON(nil))
	}
	slices.Sort(lines)
	return lines
}
