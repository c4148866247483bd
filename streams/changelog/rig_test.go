package changelog

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

// spec is a bucket as those of settings, keys and webhooks.
var spec = topology.GrowingBucket{Bucket: "TEST", Description: "a history"}

func bucket(t *testing.T, js jetstream.JetStream) Bucket {
	return Bucket{JS: js, Spec: spec, Logger: streamtest.Logger(t)}
}

// connects is what a single server and a cluster have in common.
type connects interface {
	JetStream(testing.TB, ...nats.Option) jetstream.JetStream
}

// line is a change whose value is a text.
type line struct {
	text string
	Numbers
	own uint64 // the number under which the history has it
}

func (l *line) Begin() { l.Numbers, l.own = Numbers{}, 0 }

func (l *line) Apply(m Message) {
	n, _ := Number(m.Key)
	if l.Add(n); string(m.Value) == l.text {
		l.own = n
	}
}

func (l *line) Stored(from uint64) bool { return l.own != 0 && l.own >= from }

func (l *line) Record() (uint64, []byte, error) { return l.Next(), []byte(l.text), nil }

// write stores a line.
func write(t *testing.T, b Bucket, text string) (n uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	l := &line{text: text}
	if _, err := b.Write(ctx, l); err != nil {
		t.Fatal(err)
	}
	return max(l.own, l.Next())
}

// read returns all lines of a bucket.
func read(t *testing.T, b Bucket) (all []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := b.Read(ctx, func() { all = nil }, func(m Message) { all = append(all, string(m.Value)) }); err != nil {
		t.Fatal(err)
	}
	return all
}

var errEmpty = errors.New("the bucket was lost, and the new one is empty")

// lines is a Fold: the texts in order. After a loss an empty bucket is not put in force.
type lines struct {
	folding []string
	current testsignal.Signal[[]string]
	trouble testsignal.Signal[error]
}

func (l *lines) Begin()          { l.folding = nil }
func (l *lines) Apply(m Message) { l.folding = append(l.folding, string(m.Value)) }
func (l *lines) Trouble(e error) { l.trouble.Send(e) }

func (l *lines) Current(lost bool) error {
	if lost && len(l.folding) == 0 {
		return errEmpty
	}
	l.current.Send(slices.Clone(l.folding))
	return nil
}

// follow runs a Follower until the test ends.
func follow(t *testing.T, b Bucket) *lines {
	t.Helper()
	l := &lines{}
	l.current.Watch()
	l.trouble.Watch()
	f := Follower{Bucket: b, Fold: l, Every: 100 * time.Millisecond}
	streamtest.Background(t, f.Run)
	return l
}

// holds waits until these lines are in force.
func (l *lines) holds(t *testing.T, want ...string) {
	t.Helper()
	l.current.WaitFor(t, func(now []string) bool { return slices.Equal(now, want) })
}

// fails waits for trouble of a kind.
func (l *lines) fails(t *testing.T, kind error) {
	t.Helper()
	l.trouble.WaitFor(t, func(err error) bool { return errors.Is(err, kind) })
}
