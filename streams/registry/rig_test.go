package registry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// A node that is shut down while it starts leaves stores of streams open.
func TestMain(m *testing.M) {
	streamtest.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}

// line is the record of the tests' registry, and lines its state: the texts in order.
type line struct {
	Text string `json:"text"`
}

type lines struct{ all []string }

func (l *lines) take(c *Change[line]) error {
	if c.Record.Text == "" {
		return errors.New("text is empty")
	}
	l.all = append(l.all, c.Record.Text)
	return nil
}

var spec = &Spec[*lines, line]{
	Bucket: topology.GrowingBucket{Bucket: "TEST", Description: "a history"}, Noun: "lines", See: "the test", Restore: "write a line",
	New: func() *lines { return &lines{} }, Take: (*lines).take,
	Kept:  func(l *line) bool { return l.Text == "kept" },
	Audit: audit.Settings, Entry: func(_ *lines, c *Change[line]) (action, about string) {
		if c.Record.Text == "silent" {
			return "", ""
		}
		return "add", c.Record.Text
	},
}

var ann = audit.Entry{Actor: "ann"}

func open(t *testing.T, js jetstream.JetStream) *Registry[*lines, line] {
	return New(js, spec, Options{Logger: streamtest.Logger(t)})
}

// connects is what a single server and a cluster have in common.
type connects interface {
	JetStream(testing.TB, ...nats.Option) jetstream.JetStream
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// write stores a line.
func write(t *testing.T, r *Registry[*lines, line], text string) Change[line] {
	t.Helper()
	c, state, err := r.Write(within(t), ann, func(*lines, time.Time) (line, error) { return line{text}, nil })
	streamtest.Must(t, err)
	if !slices.Contains(state.all, text) {
		t.Errorf("the state after it is %v", state.all)
	}
	return c
}

// read returns all lines in force.
func read(t *testing.T, r *Registry[*lines, line]) []string {
	t.Helper()
	f, err := r.Read(within(t))
	streamtest.Must(t, err)
	return f.State.all
}

// live is a registry on a server of its own.
type live struct {
	*Live[*lines, line]
	current testsignal.Signal[[]string]
}

// follow runs a Live until the test ends.
func follow(t *testing.T, r *Registry[*lines, line]) *live {
	t.Helper()
	l := &live{}
	l.Live = r.Live(func(f *Fold[*lines, line]) { l.current.Send(slices.Clone(f.State.all)) })
	l.current.Watch()
	l.trouble.Watch()
	l.every = 100 * time.Millisecond
	streamtest.Background(t, l.Run)
	return l
}

// holds waits until these lines are in force.
func (l *live) holds(t *testing.T, want ...string) {
	t.Helper()
	l.current.WaitFor(t, func(now []string) bool { return slices.Equal(now, want) })
}

// fails waits for trouble of a kind.
func (l *live) fails(t *testing.T, kind error) {
	t.Helper()
	l.trouble.WaitFor(t, func(err error) bool { return errors.Is(err, kind) })
	if st := l.Status(); st.Following || st.Error == "" {
		t.Errorf("%+v", st)
	}
}
