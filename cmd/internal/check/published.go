package check

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// expectedLine is a line that SCRIP_RMD of a lane must have: reminder r of a campaign fired, in a line of a step.
type expectedLine struct {
	campaign *oracle.Campaign
	r        uint64
	line     int
	step     *step
}

func (o *expectedLine) String() string {
	r := o.campaign.Reminder(o.r)
	return describe(o.campaign.Name, r.Kind(), r.Due, r.Customer)
}

// is is true for the line of this reminder.
func (o *expectedLine) is(ev *wire.Event) bool {
	r := o.campaign.Reminder(o.r)
	return ev.Type == wire.ReminderDue && ev.R == o.r && ev.CustomerID == r.Customer && ev.DueAt == r.Due && ev.Campaign == o.campaign.Name && ev.Kind == r.Kind() && wire.Instant(ev.Before.Microseconds()) == r.Before
}

func (o *expectedLine) source() eventlog.Source {
	return eventlog.Source{Sequence: o.step.sequence, Line: o.line, LastR: o.r}
}

func describe(campaign, kind string, due wire.Instant, customer string) string {
	return fmt.Sprintf("%s %s %s %s", campaign, kind, due, customer)
}

// PublishedMessage is one message of SCRIP_RMD.
type PublishedMessage struct {
	At        time.Time // stored
	Customers int
}

// readReminders reads the lane's stream of fired reminders up to a sequence.
func (f *Fold) readReminders(ctx context.Context, js jetstream.JetStream, log topology.Log, last uint64) error {
	if f.published.Log == "" {
		f.published = eventlog.Position{Log: log.UUID, Lane: f.number}
	}
	if last <= f.published.Sequence {
		return nil
	}
	reader, err := eventlog.Reminders(js, f.number).In(log).Open(ctx, log.UUID, f.published, quiet)
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
			if err := f.checkPublished(&batch[i]); err != nil {
				return err
			}
		}
		if len(batch) > 0 {
			f.published = batch[len(batch)-1].Position(log.UUID, f.number)
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

// checkPublished compares a message of SCRIP_RMD with the firings in the events: the same customers in the same order, each once,
// none before it is due. A message may have lines of several firings; its source is that of the last one, where a scheduler
// continues after a takeover. The stream may end earlier than the events, while the scheduler has not caught up.
func (f *Fold) checkPublished(m *eventlog.Message) error {
	var ev wire.Event
	var last expectedLine
	customers := 0
	for n, text := range eventlog.Lines(m.Payload) {
		if err := wire.ParseEvent(text, &ev); err != nil {
			return fmt.Errorf("message %d, line %d: %w", m.Sequence, n+1, err)
		}
		where := fmt.Sprintf("SCRIP_RMD of lane %d, message %d, line %d", f.number, m.Sequence, n+1)
		if ev.DueAt > ev.At || ev.DueAt > wire.At(m.Time) {
			f.Violate("%s: %s is published at %s (%s by its line), before it is due", where, describeEvent(&ev), wire.At(m.Time), ev.At)
		}
		for one := range ev.Each() {
			customers++
			if m.Hold {
				f.Held[keyOf(one)] = true
			}
			switch {
			case f.diverged:
			case len(f.expected) == 0:
				f.Violate("%s: %s is published, but did not fire, or was published before%s", where, describeEvent(one), f.candidates(one))
				f.diverged = true
			case !f.expected[0].is(one):
				f.Violate("%s: %s is published, but the next is %s%s", where, describeEvent(one), &f.expected[0], f.candidates(one))
				f.diverged = true
			default:
				last, f.expected = f.expected[0], f.expected[1:]
			}
		}
	}
	f.Published = append(f.Published, PublishedMessage{At: m.Time, Customers: customers})
	switch {
	case f.diverged:
	case customers == 0:
		f.Violate("SCRIP_RMD of lane %d, message %d: has no customers", f.number, m.Sequence)
	case m.Source != last.source():
		f.Violate("SCRIP_RMD of lane %d, message %d: its source is %v, that of its last line is %v", f.number, m.Sequence, m.Source, last.source())
	case m.SourceDigest != last.step.digest:
		f.Violate("SCRIP_RMD of lane %d, message %d: its source's digest is %s, that of event message %d is %s", f.number, m.Sequence, m.SourceDigest, last.step.sequence, last.step.digest)
	}
	return nil
}

func describeEvent(ev *wire.Event) string {
	return describe(ev.Campaign, ev.Kind, ev.DueAt, ev.CustomerID)
}

// candidates describes the reminders that could be that of a line.
func (f *Fold) candidates(ev *wire.Event) string {
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
