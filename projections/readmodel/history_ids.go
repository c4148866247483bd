package readmodel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

const (
	// readAtOnce is how many messages of the log are read at once: each has at most 512 KiB.
	readAtOnce = 4
	// idsWait bounds reading them; after that entries are returned without ids.
	idsWait = time.Second
)

// message identifies a message of an event stream.
type message struct {
	lane     int
	sequence uint64
}

// readIDs reads from the log what the tables do not have: ids, what a claim replaces, and the due instant of a reminder when it was set. It
// returns what is missing and why, "" if nothing is.
func (s *History) readIDs(ctx context.Context, entries []Entry) (note string) {
	if s.log == nil {
		return "ids of commands are missing: there is no connection to the log"
	}
	wanted := make(map[message][]*Entry)
	for i := range entries {
		e := &entries[i]
		m := message{e.Lane, e.Sequence}
		wanted[m] = append(wanted[m], e)
	}
	ctx, cancel := context.WithTimeout(ctx, idsWait)
	defer cancel()
	var g errgroup.Group // an error of one message does not affect the others
	g.SetLimit(readAtOnce)
	problems := make(chan error, len(wanted))
	for m, list := range wanted {
		g.Go(func() error {
			if err := s.readMessage(ctx, m, list); err != nil {
				problems <- err
			}
			return nil
		})
	}
	_ = g.Wait()
	if len(problems) > 0 {
		return fmt.Sprintf("ids of commands are missing, from %d of %d messages: %s", len(problems), len(wanted), <-problems)
	}
	return ""
}

// errOtherEvent: the log has another event at the position in the tables, perhaps because it was restored; `scrip verify`
// detects that.
var errOtherEvent = errors.New("the log has another event at this position than the read tables; run `scrip verify`")

func (s *History) readMessage(ctx context.Context, m message, entries []*Entry) error {
	raw, err := s.log(ctx, m.lane, m.sequence)
	if err != nil {
		return err
	}
	byLine := make(map[int][]*Entry, len(entries))
	for _, e := range entries {
		byLine[e.Line] = append(byLine[e.Line], e)
	}
	found := 0
	for n, line := range eventlog.Lines(raw.Data) {
		list := byLine[n+1]
		if list == nil {
			continue
		}
		var ev wire.Event
		if err := wire.ParseEvent(line, &ev); err != nil {
			return fmt.Errorf("message %d of lane %d: %w", m.sequence, m.lane, err)
		}
		for _, e := range list {
			if !e.matches(&ev) {
				return fmt.Errorf("message %d of lane %d: %w", m.sequence, m.lane, errOtherEvent)
			}
			e.ID, e.By, e.ByN, e.Replaces = ev.ID, ev.By, ev.ByN, ev.Replaces
			if ev.Type == wire.ReminderSet && ev.DueAt != 0 {
				at := ev.DueAt.Time()
				e.DueAt = &at
			}
			found++
		}
	}
	if found < len(entries) {
		return fmt.Errorf("message %d of lane %d: %w", m.sequence, m.lane, errOtherEvent)
	}
	return nil
}

// matches reports whether ev is the event that the entry was made from.
func (e *Entry) matches(ev *wire.Event) bool {
	spec, change := ev.Type.Spec(), e.What
	if change == "reminder_dropped" { // by the same event that fires others
		change = wire.RemindersDue.Spec().Change
	}
	if spec.Change != change || ev.Campaign != e.Campaign {
		return false
	}
	switch {
	case spec.About == wire.AboutCoupon:
		return ev.N == e.N
	case spec.About == wire.AboutReminder:
		return ev.R == uint64(e.r)
	case ev.Type == wire.RemindersDue:
		return ev.FromR <= uint64(e.r) && uint64(e.r) <= ev.ThroughR
	}
	return true
}
