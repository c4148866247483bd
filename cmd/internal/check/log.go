package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/compare"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Fold is the state of a whole log.
type Fold struct {
	*oracle.Fold
	Unpublished int                // fired reminders that are not on SCRIP_RMD yet
	Published   []PublishedMessage // the messages of SCRIP_RMD, lane by lane
	Held        map[heldKey]bool   // fired reminders that are held back and not let out yet
	LetOut      LetOut

	out   eventlog.Position // of the last message of SCRIP_PUSH_OUT
	lanes map[int]*lane
	*lane // the one being folded
}

// NewFold returns the fold of an empty log.
func NewFold() *Fold {
	f := &Fold{Fold: oracle.New(), lanes: map[int]*lane{}, Held: map[heldKey]bool{}}
	f.Fired = func(c *oracle.Campaign, r uint64) {
		f.expected = append(f.expected, expectedLine{campaign: c, r: r, line: f.line, step: f.step})
	}
	f.selectLane(0)
	return f
}

// Tally counts all reminders, with those published.
func (f *Fold) Tally() oracle.Tally {
	sum := f.Fold.Tally()
	for _, m := range f.Published {
		sum.Published += uint64(m.Customers)
	}
	return sum
}

// Log folds every lane of a log up to its current end, and returns the last sequence of each. It also checks that steps
// cover the commands without gap or overlap, that lane time does not run back, and that SCRIP_RMD has each fired reminder
// once: see [Fold.Violations] and [Fold.Unpublished].
func Log(ctx context.Context, js jetstream.JetStream, log topology.Log) (*Fold, []uint64, error) {
	f := NewFold()
	ends, err := f.CatchUp(ctx, js, log)
	return f, ends, err
}

// lane is the folded position of a lane.
type lane struct {
	number    int
	clock     wire.Instant      // of its newest event, while another lane is folded
	previous  *eventlog.Message // without its payload
	events    eventlog.Position // of the last event message
	published eventlog.Position // of the last message of SCRIP_RMD

	step     *step          // the message being folded
	line     int            // within it
	expected []expectedLine // lines that SCRIP_RMD must still have, in order
	diverged bool           // it had another line: those after it are not compared
}

// step is an event message in which reminders fired.
type step struct {
	sequence uint64
	digest   string
}

// selectLane makes a lane the current one.
func (f *Fold) selectLane(number int) {
	if f.lane != nil {
		f.lane.clock = f.Clock
	}
	if f.lanes[number] == nil {
		f.lanes[number] = &lane{number: number}
	}
	f.lane = f.lanes[number]
	f.Clock = f.lane.clock
}

// CatchUp folds the messages after those folded before, up to the current end of each lane, and returns these ends. So a
// log of millions of lines can be followed while it is written.
func (f *Fold) CatchUp(ctx context.Context, js jetstream.JetStream, log topology.Log) ([]uint64, error) {
	ends := make([]uint64, log.Lanes)
	f.Unpublished = 0
	out, err := eventlog.Out(js).Bounds(ctx)
	if err != nil {
		return nil, err
	}
	for number := range log.Lanes {
		f.selectLane(number)
		// The end of the reminders is read first: the events then contain the firings of all of them.
		reminders, err := eventlog.Reminders(js, number).Bounds(ctx)
		if err != nil {
			return nil, err
		}
		if ends[number], err = f.readEvents(ctx, js, log); err != nil {
			return nil, fmt.Errorf("reading lane %d: %w", number, err)
		}
		if err := f.readReminders(ctx, js, log, reminders.Last); err != nil {
			return nil, fmt.Errorf("reading the reminders of lane %d: %w", number, err)
		}
		f.Unpublished += len(f.expected)
	}
	if err := f.readOut(ctx, js, log, out.Last); err != nil {
		return nil, err
	}
	f.CheckTallies()
	return ends, nil
}

var quiet = eventlog.ReaderOptions{Logger: slog.New(slog.DiscardHandler)}

func (f *Fold) readEvents(ctx context.Context, js jetstream.JetStream, log topology.Log) (uint64, error) {
	if f.events.Log == "" {
		f.events = eventlog.Position{Log: log.UUID, Lane: f.number}
	}
	reader, err := eventlog.Events(js, f.number).In(log).Open(ctx, log.UUID, f.events, quiet)
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	var ev wire.Event
	err = reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			m := batch[i]
			f.checkOrder(&m)
			before := len(f.expected)
			f.step = &step{sequence: m.Sequence}
			for n, line := range eventlog.Lines(m.Payload) {
				if err := wire.ParseEvent(line, &ev); err != nil {
					return fmt.Errorf("message %d, line %d: %w", m.Sequence, n+1, err)
				}
				f.line = n + 1
				where := linePosition{f.number, m.Sequence, n + 1}
				if ev.Campaign != "" && ev.Type != wire.CommandRejected && topology.LaneOf(ev.Campaign, log.Lanes) != f.number {
					f.Violate("%s: %s belongs on lane %d", where, ev.Campaign, topology.LaneOf(ev.Campaign, log.Lanes))
				}
				f.Apply(where, &ev)
			}
			if len(f.expected) > before {
				f.step.digest = m.Digest()
			}
			if at := wire.At(m.LaneTime); at < f.Clock {
				f.Violate("lane %d, message %d: lane time %s, with an event of %s", f.number, m.Sequence, at, f.Clock)
			} else {
				f.Clock = at
			}
			if i == len(batch)-1 {
				f.events = m.Position(log.UUID, f.number)
			}
		}
		return nil
	})
	return reader.Sequence(), err
}

// linePosition is the position of a line. It is formatted only for a violation.
type linePosition struct {
	lane     int
	sequence uint64
	line     int
}

func (p linePosition) String() string {
	return fmt.Sprintf("lane %d, message %d, line %d", p.lane, p.sequence, p.line)
}

// checkOrder checks that a message continues where the one before it ended; the first one starts at the first command.
func (f *Fold) checkOrder(m *eventlog.Message) {
	switch {
	case f.previous == nil && m.Rebase == 0 && m.Commands[0] != 1:
		f.Violate("lane %d, message %d: the first one covers commands from %d", f.number, m.Sequence, m.Commands[0])
	case f.previous != nil && !f.previous.Follows(m):
		f.Violate("lane %d, message %d: does not follow the commands of message %d", f.number, m.Sequence, f.previous.Sequence)
	}
	f.previous = &eventlog.Message{Header: m.Header, Sequence: m.Sequence}
}

// Tables compares the read tables with the fold and returns the differences, nil if there are none. The projector must
// have reached the end of the fold.
func (f *Fold) Tables(ctx context.Context, db *pgx.Conn) ([]string, error) {
	return compare.Tables(ctx, db, f.Fold)
}

// undefinedTable is PostgreSQL's code for a relation that does not exist.
const undefinedTable = "42P01"

// CaughtUp waits until the projector's checkpoint of every lane has reached the given sequences.
func CaughtUp(ctx context.Context, db *pgx.Conn, ends []uint64) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		lagging := 0
		for lane, end := range ends {
			var sequence int64
			err := db.QueryRow(ctx, `SELECT coalesce(max(sequence), 0) FROM scrip.checkpoint WHERE lane = $1`, lane).Scan(&sequence)
			var missing *pgconn.PgError
			switch {
			case errors.As(err, &missing) && missing.Code == undefinedTable:
				lagging++ // the projector has not made the tables yet
			case err != nil:
				return fmt.Errorf("reading scrip.checkpoint: %w", err)
			case uint64(sequence) < end:
				lagging++
			}
		}
		if lagging == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the read tables of %d lanes lag: %w", lagging, ctx.Err())
		case <-tick.C:
		}
	}
}
