package push

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

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

// NewEvents makes a Pusher of lines that pass a filter. Its name begins with EventsPrefix. The same guarantees hold; classes
// other than normal are of reminders only.
func NewEvents(js jetstream.JetStream, opts Options, from Events) (*Pusher, error) {
	if !strings.HasPrefix(opts.Name, EventsPrefix) {
		return nil, fmt.Errorf("push: Name is %q; names of events begin with %s", opts.Name, EventsPrefix)
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

// RunEvents is Run with lines.
func (p *Pusher) RunEvents(ctx context.Context, push func(ctx context.Context, batch []Line) error) error {
	return p.run(ctx, onLines(push))
}

// onLines makes a caller's function of one that takes lines.
func onLines(push func(context.Context, []Line) error) func(context.Context, []item) error {
	return func(ctx context.Context, batch []item) error {
		lines := make([]Line, len(batch))
		for i, it := range batch {
			lines[i] = Line{Key: it.Key, Type: it.typ, Campaign: it.Campaign, At: it.At, Raw: it.raw}
		}
		return push(ctx, lines)
	}
}

// Forget removes all that is kept of a name: its consumers, waiting messages and positions, but not its dead letters. No
// process may run under it. After a crash in it, it is called again.
func Forget(ctx context.Context, js jetstream.JetStream, name string, lanes int) error {
	if err := checkName(name); err != nil {
		return err
	}
	var problems []error
	note := func(err error) {
		for _, none := range []error{jetstream.ErrConsumerNotFound, jetstream.ErrStreamNotFound, jetstream.ErrKeyNotFound, jetstream.ErrBucketNotFound} {
			if errors.Is(err, none) {
				return
			}
		}
		problems = append(problems, err)
	}
	kv, err := js.KeyValue(ctx, Bucket)
	note(err)
	for lane := range lanes {
		note(js.DeleteConsumer(ctx, topology.EvtStream(lane), name))
		note(js.DeleteConsumer(ctx, topology.RmdStream(lane), name))
		if kv != nil {
			note(kv.Purge(ctx, bucketKey(name, lane)))
		}
	}
	stream, err := js.Stream(ctx, WaitStream)
	note(err)
	if err == nil {
		for c := range classes {
			note(js.DeleteConsumer(ctx, WaitStream, waitConsumer(name, c)))
		}
		note(stream.Purge(ctx, jetstream.WithPurgeSubject(waitSubjects+name+".>")))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("push: forgetting %s: %w", name, err)
	}
	return nil
}
