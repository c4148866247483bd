package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
)

// fold applies one event message to the timers, and gives the customers of what fired to the fan-out.
func (r *run) fold(ctx context.Context, m *eventlog.Message) error {
	var ev wire.Event
	lines, heavy := 0, 0
	r.torn = true // until the end: half a message must not become part of a snapshot
	for n, line := range eventlog.Lines(m.Payload) {
		lines++
		if r.timers.FoldLine(line) {
			continue
		}
		heavy++
		if err := wire.ParseEvent(line, &ev); err != nil {
			return fmt.Errorf("event message %d line %d: %w; if a newer scrip wrote it, use that one", m.Sequence, n+1, err)
		}
		if r.live {
			r.observe(&ev)
		}
		of := priority.Normal
		if ev.Type == wire.RemindersDue {
			if e := r.timers.Campaign(ev.Campaign); e != nil {
				of = e.Priority
			}
		}
		gone, err := r.timers.Fold(&ev)
		if err != nil {
			err = fmt.Errorf("event message %d line %d: %w", m.Sequence, n+1, err)
			if r.saver.restored && !errors.Is(err, timers.ErrDisk) {
				err = fmt.Errorf("%w: %w", errMisfit, err)
			}
			return err
		}
		r.planner.folded(&ev)
		if ev.Type != wire.RemindersDue {
			continue
		}
		if uint64(len(gone)) != ev.Fired+ev.Dropped {
			if err := r.disagree(ctx, m, n+1, &ev, len(gone)); err != nil {
				return err
			}
		}
		if ev.Fired > 0 {
			r.fan.Add(m, n+1, &ev, of, gone)
		}
	}
	r.folded, r.torn = *m, false
	r.saver.changed += 1 + heavy + (lines-heavy)/lightLines
	return nil
}

// lightLines is how many lines that need no parser a replay does in the time of one other line.
const lightLines = 8

// disagree handles a firing of another number of reminders than the timers held. Timers from a snapshot are thrown away and
// replayed. After a replay those that are known are published, and the difference is logged: stopping would not help.
func (r *run) disagree(ctx context.Context, m *eventlog.Message, line int, ev *wire.Event, known int) error {
	r.differ.Inc()
	if r.saver.restored {
		return fmt.Errorf("%w: event message %d line %d fires or drops %d reminders, known are %d",
			errMisfit, m.Sequence, line, ev.Fired+ev.Dropped, known)
	}
	r.log.ErrorContext(ctx, "the event log fires another number of reminders than were set; please report this with the log",
		"campaign", ev.Campaign, "sequence", m.Sequence, "line", line, "fired", ev.Fired, "dropped", ev.Dropped, "known", known)
	return nil
}
