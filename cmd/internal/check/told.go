package check

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// owed is a line that SCRIP_RMD of a lane must hold: that reminder r of a campaign fired, at a line of a step.
type owed struct {
	campaign *Campaign
	r        uint64
	line     int
	step     *step
}

func (o *owed) String() string {
	r := o.campaign.reminder(o.r)
	return toldLine(o.campaign.Name, r.Kind(), r.Due, r.Customer)
}

// is says whether a line tells of it.
func (o *owed) is(ev *wire.Event) bool {
	r := o.campaign.reminder(o.r)
	return ev.Type == wire.ReminderDue && ev.CustomerID == r.Customer && ev.DueAt == r.Due && ev.Campaign == o.campaign.Name && ev.Kind == r.Kind()
}

func (o *owed) source() eventlog.Source {
	return eventlog.Source{Sequence: o.step.sequence, Line: o.line, LastR: o.r}
}

func toldLine(campaign, kind string, due wire.Instant, customer string) string {
	return fmt.Sprintf("%s %s %s %s", campaign, kind, due, customer)
}

// Telling is one message of SCRIP_RMD.
type Telling struct {
	At    time.Time // stored
	Lines int
}

// readTold reads the lane's stream of fired reminders up to a sequence.
func (f *Fold) readTold(ctx context.Context, js jetstream.JetStream, log topology.Log, last uint64) error {
	if f.told.Log == "" {
		f.told = eventlog.Position{Log: log.UUID, Lane: f.number}
	}
	if last <= f.told.Sequence {
		return nil
	}
	reader, err := eventlog.Reminders(js, f.number).In(log).Open(ctx, log.UUID, f.told, quiet)
	if err != nil {
		return err
	}
	defer reader.Close()
	var batch []eventlog.Message
	for reader.Sequence() < last {
		if batch, err = reader.TryBatch(int(min(last-reader.Sequence(), 256)), batch[:0]); err != nil {
			return err
		}
		for i := range batch {
			if err := f.tells(&batch[i]); err != nil {
				return err
			}
		}
		if len(batch) > 0 {
			f.told = batch[len(batch)-1].Position(log.UUID, f.number)
			continue
		}
		if reader.Sequence() >= last {
			break
		}
		select {
		case <-reader.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// tells holds a message of SCRIP_RMD against what the events owe it: the same lines in the same order, each once, none
// before it is due. Lines of several firings may share a message; its source is that of the last one, for that is where a
// scheduler that takes over goes on. The stream may end early, when the scheduler has not come that far.
func (f *Fold) tells(m *eventlog.Message) error {
	var ev wire.Event
	var last owed
	lines := 0
	for n, text := range eventlog.Lines(m.Payload) {
		if err := wire.ParseEvent(text, &ev); err != nil {
			return fmt.Errorf("message %d, line %d: %w", m.Sequence, n+1, err)
		}
		lines++
		if f.astray {
			continue
		}
		where := fmt.Sprintf("SCRIP_RMD of lane %d, message %d, line %d", f.number, m.Sequence, n+1)
		if ev.DueAt > ev.At || ev.DueAt > wire.At(m.Time) {
			f.blame("%s: %s is told at %s (%s by its line), before it is due", where, told(&ev), wire.At(m.Time), ev.At)
		}
		switch {
		case len(f.owed) == 0:
			f.blame("%s: %s is told, but did not fire, or was told before%s", where, told(&ev), f.known(&ev))
			f.astray = true
		case !f.owed[0].is(&ev):
			f.blame("%s: %s is told, it is %s's turn%s", where, told(&ev), &f.owed[0], f.known(&ev))
			f.astray = true
		default:
			last, f.owed = f.owed[0], f.owed[1:]
		}
	}
	f.Tellings = append(f.Tellings, Telling{At: m.Time, Lines: lines})
	switch {
	case f.astray:
	case lines == 0:
		f.blame("SCRIP_RMD of lane %d, message %d: has no lines", f.number, m.Sequence)
	case m.Source != last.source():
		f.blame("SCRIP_RMD of lane %d, message %d: its source is %v, that of its last line is %v", f.number, m.Sequence, m.Source, last.source())
	case m.SourceDigest != last.step.digest:
		f.blame("SCRIP_RMD of lane %d, message %d: its source's digest is %s, that of event message %d is %s", f.number, m.Sequence, m.SourceDigest, last.step.sequence, last.step.digest)
	}
	return nil
}

func told(ev *wire.Event) string { return toldLine(ev.Campaign, ev.Kind, ev.DueAt, ev.CustomerID) }

// known says what there is to know of the reminders that a line could mean.
func (f *Fold) known(ev *wire.Event) string {
	c := f.Campaigns[ev.Campaign]
	if c == nil {
		return ""
	}
	var list []string
	for i := range c.Reminders {
		if r := &c.Reminders[i]; r.Customer == ev.CustomerID && r.Kind() == ev.Kind && len(list) < 5 {
			list = append(list, fmt.Sprintf("reminder %d is %s, due %s", i+1, r.State, r.Due))
		}
	}
	return " (" + strings.Join(list, "; ") + ")"
}
