package push

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
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
	// Key is the reminder's position and digest, "<log uuid>/<lane>/<sequence>/<line>/<digest>": the same at each delivery.
	// Pass it to the gateway as its idempotency key. The digest is there because a log restored from an older backup uses
	// sequences again.
	Key string `json:"key"`
	// Campaign is the campaign's name.
	Campaign string `json:"campaign"`
	// Kind is what the reminder announces: "opens", the campaign, or "expires", the customer's coupon.
	Kind string `json:"kind"`
	// DueAt is when the reminder was due. Compare it with the clock: a reminder that waited while no sender ran may be of no
	// use any more.
	DueAt time.Time `json:"due_at"`
	// At is when the reminder fired.
	At time.Time `json:"at"`
	// CustomerID is the customer to deliver to.
	CustomerID string `json:"customer_id"`
}

func digest(line []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(line) // never fails
	return h.Sum64()
}

// item is one line of the log to deliver.
type item struct {
	Reminder
	number int    // of the line in its message, from 1
	typ    string // of the event
	raw    []byte
}

// source is what a Pusher reads: the streams of a kind, and the lines of them that it delivers.
type source struct {
	stream  func(js jetstream.JetStream, lane int) eventlog.Stream
	subject func(lane int) string
	events  bool   // it reads events, not reminders
	skip    string // what precedes the lane in scrip serve --skip-message
	// pass reports whether a line is delivered. An error is for a line that has no place in the stream.
	pass func(*wire.Event) (bool, error)
	// ahead is how many messages are requested at once: one, so that no process holds what another could deliver, or more
	// where few lines pass.
	ahead int
}

// reminders are the fired reminders, all of them.
func reminders() source {
	return source{stream: eventlog.Reminders, subject: topology.Rmd, skip: "rmd:", ahead: 1, pass: func(e *wire.Event) (bool, error) {
		if e.Type != wire.ReminderDue || e.CustomerID == "" {
			return false, fmt.Errorf("it is no reminder.due with a customer_id")
		}
		return true, nil
	}}
}

// lines returns the items of a message. Lines that do not belong there are returned as errors.
func (s *source) lines(log string, lane int, m *eventlog.Message) (all []item, bad []error) {
	all = make([]item, 0, bytes.Count(m.Payload, []byte("\n")))
	var e wire.Event
	for n, line := range eventlog.Lines(m.Payload) {
		err := wire.ParseEvent(line, &e)
		pass := false
		if err == nil {
			pass, err = s.pass(&e)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("line %d: %w, but %.80q", n+1, err, line))
		}
		if !pass {
			continue
		}
		all = append(all, item{
			Reminder: Reminder{
				Key:      fmt.Sprintf("%s/%d/%d/%d/%016x", log, lane, m.Sequence, n+1, digest(line)),
				Campaign: e.Campaign, Kind: e.Kind, DueAt: e.DueAt.Time(), At: e.At.Time(), CustomerID: e.CustomerID,
			},
			number: n + 1, typ: e.Type.String(), raw: line,
		})
	}
	return all, bad
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

// Line is one line of the log: an event, or a fired reminder.
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
	// Pass reports whether a line is delivered. It is called by several goroutines at once and must not keep the event.
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
		stream: eventlog.Events, subject: topology.Evt, events: true, ahead: eventsAhead,
		pass: func(e *wire.Event) (bool, error) { return from.Pass(e), nil },
	}
	if from.Reminders {
		s = reminders()
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
