package push_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) {
	nodeMain()
	streamtest.VerifyTestMain(m)
}

// A program that sends reminders links a NATS client, not a server, a database or a metrics registry.
func TestThePackageIsLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list -deps: %v", err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 10 {
		t.Fatalf("go list -deps names only %d packages", len(deps))
	}
	ours := []string{"streams/push", "streams/natsx", "streams/priority", "streams/topology", "streams/eventlog", "streams/optout", "streams/seal", "streams/wall", "streams/testsignal", "domain", "domain/code",
		"domain/reminder", "domain/table", "domain/wire"}
	for _, dep := range deps {
		if rest, mine := strings.CutPrefix(dep, "github.com/seed-4a2410e3/scrip/"); mine && !slices.Contains(ours, rest) {
			t.Errorf("it depends on %s", dep)
		}
		for _, heavy := range []string{"nats-server", "jackc/pgx", "prometheus", "spf13"} {
			if strings.Contains(dep, heavy) {
				t.Errorf("it depends on %s", dep)
			}
		}
	}
}

const (
	short = 500 * time.Millisecond // AckWait of what is to be delivered again
	never = time.Hour              // … and of what is not: a test that waits for it fails
)

// rig is a server with a log, whose reminders the test fires itself.
type rig struct {
	server interface { // in this process or in one of its own
		Conn(t testing.TB, opts ...nats.Option) *nats.Conn
	}
	js  jetstream.JetStream
	log topology.Log

	source  uint64 // of the next message
	changed testsignal.Signal[struct{}]
}

func newRig(t *testing.T, lanes int) *rig {
	t.Helper()
	r := &rig{server: streamtest.Start(t)}
	r.open(t, lanes)
	return r
}

// open makes the log.
func (r *rig) open(t *testing.T, lanes int) {
	t.Helper()
	r.changed.Watch()
	var err error
	if r.js, err = jetstream.New(r.server.Conn(t)); err != nil {
		t.Fatal(err)
	}
	if r.log, err = topology.Ensure(within(t), r.js, topology.Spec{Lanes: lanes, KeyFingerprint: "test"}); err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// due is a line.
func due(customer string) string { return dueOf("summer", 1, customer) }

// dueOf is a line of customers whose reminders have the numbers from first on.
func dueOf(campaign string, first uint64, customers ...string) string {
	return string(streamtest.Due(campaign, first, customers...))
}

// fire publishes one message and returns its sequence.
func (r *rig) fire(t *testing.T, lane int, customers ...string) uint64 {
	t.Helper()
	return r.fireOf(t, lane, "summer", "", customers...)
}

// fireOf publishes one message of a campaign and its priority.
func (r *rig) fireOf(t *testing.T, lane int, campaign, priority string, customers ...string) uint64 {
	t.Helper()
	return r.fireLines(t, lane, priority, dueOf(campaign, 1_000*r.source+1, customers...))
}

func (r *rig) fireLines(t *testing.T, lane int, priority string, lines ...string) uint64 {
	t.Helper()
	r.source++
	h := eventlog.Header{
		Owner: "test", Source: eventlog.Source{Sequence: r.source, Line: 1, LastR: uint64(len(lines))}, SourceDigest: strings.Repeat("0", 32), Priority: priority,
	}
	return r.publish(t, lane, h, strings.Join(lines, "\n")+"\n")
}

// publish publishes a message as a scheduler does.
func (r *rig) publish(t *testing.T, lane int, h eventlog.Header, payload string) uint64 {
	t.Helper()
	return r.foreign(t, lane, streamtest.Sealed(h.Encode()), payload)
}

// foreign publishes a message with any headers.
func (r *rig) foreign(t *testing.T, lane int, h nats.Header, payload string) uint64 {
	t.Helper()
	ack, err := r.js.PublishMsg(within(t), &nats.Msg{Subject: topology.Rmd(lane), Header: h, Data: []byte(payload)})
	streamtest.Must(t, err)
	return ack.Sequence
}

// until waits for a fact that Stats of a sender show, or what its function did before them.
func (r *rig) until(t *testing.T, what string, fact func() bool) {
	t.Helper()
	t.Logf("waiting until %s", what)
	if !fact() {
		r.changed.WaitFor(t, func(struct{}) bool { return fact() })
	}
}

// book counts the deliveries per customer, over all senders of a test.
type book struct {
	mu    sync.Mutex
	keys  map[string]int
	names map[string]int
}

func newBook() *book { return &book{keys: map[string]int{}, names: map[string]int{}} }

func (b *book) record(batch []push.Reminder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range batch {
		b.keys[r.Key]++
		b.names[r.CustomerID]++
	}
}

func (b *book) push(_ context.Context, batch []push.Reminder) error {
	b.record(batch)
	return nil
}

func (b *book) deliveries(customer string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.names[customer]
}

func (b *book) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.keys)
}

// once fails the test unless n customers were delivered to, each once.
func (b *book) once(t *testing.T, n int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.keys) != n || len(b.names) != n {
		t.Errorf("%d keys and %d customers were delivered, want %d", len(b.keys), len(b.names), n)
	}
	for key, times := range b.keys {
		if times != 1 {
			t.Errorf("%s was delivered %d times", key, times)
		}
	}
}

// sender is a Pusher in a process of its own, as far as NATS knows.
type sender struct {
	*push.Pusher
	conn *nats.Conn
	stop func() error // ends it, and waits until it has ended
	done chan struct{}
	err  error // of Run, when done
}

func (r *rig) sender(t *testing.T, opts push.Options, f push.Func) *sender {
	t.Helper()
	s := &sender{conn: r.server.Conn(t), done: make(chan struct{})}
	js, err := jetstream.New(s.conn)
	streamtest.Must(t, err)
	if opts.Name == "" {
		opts.Name = "test"
	}
	if opts.Pause == 0 {
		opts.Pause = 10 * time.Millisecond
	}
	if opts.AckWait == 0 {
		opts.AckWait = never
	}
	if opts.Logger == nil {
		opts.Logger = discard
	}
	if opts.Since == (push.Since{}) && opts.Name == "test" {
		opts.Since = push.FromStart()
	}
	if s.Pusher, err = push.New(js, opts); err != nil {
		t.Fatal(err)
	}
	s.Changed = r.changed
	if opts.AckWait < never {
		s.AckFor(opts.AckWait) // what is not acknowledged is delivered again then
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		s.err = s.Run(ctx, f)
		close(s.done)
	}()
	s.stop = func() error {
		cancel()
		<-s.done
		return s.err
	}
	t.Cleanup(func() { _ = s.stop() })
	return s
}

// positions are those of a name, lane by lane; ok is false before it has all its consumers.
func (r *rig) positions(t *testing.T, name string) (at []push.Position, ok bool) {
	t.Helper()
	at, err := push.Positions(within(t), r.js, name)
	return at, err == nil && len(at) == r.log.Lanes+1 && at[r.log.Lanes].Lane == push.OutLane
}

// settled waits until nothing of a name is left to be done.
func (r *rig) settled(t *testing.T, name string) {
	t.Helper()
	streamtest.Eventually(t, "nothing is left of "+name, func() bool {
		at, ok := r.positions(t, name)
		return ok && !slices.ContainsFunc(at, func(p push.Position) bool { return p.Waiting > 0 })
	})
}

// letters are the dead letters of a name.
func (r *rig) letters(t *testing.T, name string) []push.DeadLetter {
	t.Helper()
	var all []push.DeadLetter
	for l, err := range push.Letters(within(t), r.js, name) {
		streamtest.Must(t, err)
		all = append(all, l)
	}
	return all
}

func customers(l push.DeadLetter) string {
	var out []string
	for _, r := range l.Reminders {
		out = append(out, r.CustomerID)
	}
	return strings.Join(out, " ")
}

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return out
}
