package push

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Reminder is one reminder for one customer.
type Reminder struct {
	// Key is "<log uuid>/<campaign>/<r>/<digest>": the same at each delivery. Pass it to the gateway as its idempotency key.
	// The digest, of the other fields, is there because a log restored from an older backup uses numbers again.
	Key string `json:"key"`
	// Campaign is the campaign's name.
	Campaign string `json:"campaign"`
	// Kind is what the reminder announces: "opens", the campaign, or "expires", the customer's coupon.
	Kind string `json:"kind"`
	// Before is how long before that it is due: a coupon expires at DueAt plus Before.
	Before wire.Period `json:"before"`
	// DueAt is when the reminder was due. Compare it with the clock: a reminder that waited while no sender ran may be of no
	// use any more.
	DueAt time.Time `json:"due_at"`
	// At is when the reminder fired.
	At time.Time `json:"at"`
	// CustomerID is the customer to deliver to.
	CustomerID string `json:"customer_id"`
	// R is the reminder's number in its campaign.
	R uint64 `json:"r"`
	// Also are reminders that are merged into this one: deliver one message about all of them, under the key of this one.
	Also []Also `json:"also,omitempty"`
}

// Also is a reminder that is part of another one's message; its fields are as of a Reminder.
type Also struct {
	Campaign string      `json:"campaign"`
	Kind     string      `json:"kind"`
	Before   wire.Period `json:"before"`
	DueAt    time.Time   `json:"due_at"`
	R        uint64      `json:"r"`
}

// OutLane is the number that stands for SCRIP_PUSH_OUT where others are of lanes.
const OutLane = topology.MaxLanes

// fired is the stream of fired reminders of a lane, or of OutLane.
func fired(js jetstream.JetStream, lane int) eventlog.Stream {
	if lane == OutLane {
		return eventlog.Out(js)
	}
	return eventlog.Reminders(js, lane)
}

func digest(line []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(line) // never fails
	return h.Sum64()
}

// item is what is delivered: a line of the log, or one customer of a line of fired reminders.
type item struct {
	Reminder
	number int    // of the item in its message, from 1
	typ    string // of the event
	raw    []byte // of those that NewEvents delivers
}

// source is what a Pusher reads: the streams of a kind, and the lines of them that it delivers.
type source struct {
	stream func(js jetstream.JetStream, lane int) eventlog.Stream
	out    bool   // OutLane is read, too, and what is held back is not
	events bool   // it reads events, not reminders
	raw    bool   // it delivers lines
	skip   string // what precedes the lane in scrip serve --skip-message
	// pass reports whether a line is delivered. An error is for a line that has no place in the stream.
	pass func(*wire.Event) (bool, error)
	// ahead is how many messages are requested at once: one, so that no process holds what another could deliver, or more
	// where few lines pass.
	ahead int
}

// reminders are the fired reminders, all of them.
func reminders() source {
	return source{stream: fired, out: true, skip: "rmd:", ahead: 1, pass: func(e *wire.Event) (bool, error) {
		err := e.CheckDue()
		return err == nil, err
	}}
}

// lanes yields the numbers of what is read in a log of so many lanes.
func (s *source) lanes(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for lane := range n {
			if !yield(lane) {
				return
			}
		}
		if s.out {
			yield(OutLane)
		}
	}
}

// optedOut is how callers for the source look up who wants no reminders; nil for events.
func (s *source) optedOut(from backend) func(context.Context, []string) (map[string]bool, error) {
	if s.events {
		return nil
	}
	return from.optedOut
}

// lines returns the items of a message. Lines that do not belong there are returned as errors.
func (s *source) lines(log string, lane int, m *eventlog.Message) (all []item, bad []error) {
	var e wire.Event
	number, group := 0, 0 // group is where the items start to which merged lines belong
	if s.out && lane != OutLane && m.Hold {
		return nil, nil
	}
	for n, line := range eventlog.Lines(m.Payload) {
		err := wire.ParseEvent(line, &e)
		pass := false
		if err == nil {
			pass, err = s.pass(&e)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("line %d: %w, but %.80q", n+1, err, line))
		}
		switch {
		case err != nil || e.Withheld != "":
			pass = false
		case e.Merged:
			if err := merge(all[group:], &e); err != nil {
				bad = append(bad, fmt.Errorf("line %d: %w", n+1, err))
			}
			continue
		default:
			group = len(all)
		}
		for one := range e.Each() {
			if number++; !pass {
				continue
			}
			it := item{
				Reminder: Reminder{
					Campaign: one.Campaign, Kind: one.Kind, Before: wire.Period(one.Before), DueAt: one.DueAt.Time(), At: one.At.Time(), CustomerID: one.CustomerID, R: one.R,
				},
				number: number, typ: one.Type.String(),
			}
			if s.events {
				it.raw, it.Key = line, fmt.Sprintf("%s/%d/%d/%d/%016x", log, lane, m.Sequence, n+1, digest(line))
			} else {
				it.Key = it.key(log)
			}
			if s.raw && !s.events {
				it.raw = it.line()
			}
			all = append(all, it)
		}
	}
	return all, bad
}

// merge adds the reminders of a merged line to those of the line before it.
func merge(to []item, e *wire.Event) error {
	if len(to) != len(e.CustomerIDs) {
		return fmt.Errorf("it is merged into a line of %d customers and has %d", len(to), len(e.CustomerIDs))
	}
	for i := range to {
		to[i].Also = append(to[i].Also, Also{Campaign: e.Campaign, Kind: e.Kind, Before: wire.Period(e.Before), DueAt: e.DueAt.Time(), R: e.Rs[i]})
	}
	return nil
}

func (r *Reminder) key(log string) string {
	text := fmt.Appendf(nil, "%s %d %d %d %s", r.Kind, r.Before, r.DueAt.UnixMicro(), r.At.UnixMicro(), r.CustomerID)
	return fmt.Sprintf("%s/%s/%d/%016x", log, r.Campaign, r.R, digest(text))
}

// line is a reminder.due line of one customer, as a webhook has it.
func (r *Reminder) line() []byte {
	line, _ := json.Marshal(map[string]any{ // never fails
		"type": wire.ReminderDue.String(), "campaign": r.Campaign, "at": wire.At(r.At), "kind": r.Kind, "before": r.Before, "due_at": wire.At(r.DueAt),
		"customer_id": r.CustomerID, "r": r.R,
	})
	return line
}

func keysOf(all []item) []string {
	keys := make([]string, len(all))
	for i := range all {
		keys[i] = all[i].Key
	}
	return keys
}

func bare(all []item) []Reminder {
	list := make([]Reminder, len(all))
	for i := range all {
		list[i] = all[i].Reminder
	}
	return list
}

// only returns the items of the lines with these numbers; none is all of them.
func only(all []item, numbers []int) []item {
	if len(numbers) == 0 {
		return all
	}
	want := make(map[int]bool, len(numbers))
	for _, n := range numbers {
		want[n] = true
	}
	var some []item
	for _, it := range all {
		if want[it.number] {
			some = append(some, it)
		}
	}
	return some
}

// laneJudge decides which messages of a lane count.
type laneJudge struct {
	mu    sync.Mutex
	judge *eventlog.Judge
}

func (j *laneJudge) read(raw *eventlog.Raw) (eventlog.Message, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.judge.Read(raw)
}

func (j *laneJudge) passOver(skips eventlog.Skips) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.judge.PassOver(skips)
}

// Line is one line of the log: an event, or a fired reminder of one customer.
type Line struct {
	// Key is like Reminder.Key. Keys of events and of reminders may be equal.
	Key      string
	Type     string
	Campaign string
	At       time.Time
	Raw      []byte // the line, not to be changed
}

// Events are lines of the log that pass a filter.
type Events struct {
	// Reminders reads the streams of fired reminders instead of the events.
	Reminders bool
	// Pass reports whether a line is delivered, of reminders with all its customers. It is called by several goroutines at once and must not keep the event.
	Pass func(*wire.Event) bool
}

// eventsAhead is how many messages are requested at once where few may pass.
const eventsAhead = 32

// NewEvents makes a Pusher of lines that pass a filter. Its name starts with EventsPrefix. The same guarantees hold; classes
// other than normal are of reminders only.
func NewEvents(js jetstream.JetStream, opts Options, from Events) (*Pusher, error) {
	if !strings.HasPrefix(opts.Name, EventsPrefix) {
		return nil, fmt.Errorf("push: Name is %q; names of events start with %s", opts.Name, EventsPrefix)
	}
	s := source{
		stream: eventlog.Events, events: true, raw: true, ahead: eventsAhead,
		pass: func(e *wire.Event) (bool, error) { return from.Pass(e), nil },
	}
	if from.Reminders {
		s = reminders()
		s.raw, s.out = true, false
		every := s.pass
		s.pass = func(e *wire.Event) (bool, error) {
			ok, err := every(e)
			return ok && from.Pass(e), err
		}
	}
	return newPusher(js, opts, s)
}

func (p *Pusher) RunEvents(ctx context.Context, push func(ctx context.Context, batch []Line) error) error {
	return p.run(ctx, onLines(push))
}

func onLines(push func(context.Context, []Line) error) func(context.Context, []item) error {
	return func(ctx context.Context, batch []item) error {
		lines := make([]Line, len(batch))
		for i, it := range batch {
			lines[i] = Line{Key: it.Key, Type: it.typ, Campaign: it.Campaign, At: it.At, Raw: it.raw}
		}
		return push(ctx, lines)
	}
}
