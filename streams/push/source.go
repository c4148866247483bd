package push

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

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

// bare returns the reminders of items.
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
