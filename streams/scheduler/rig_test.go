package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

func TestMain(m *testing.M) {
	// nats.go leaves this goroutine when a connection closes right after an object was put.
	streamtest.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

// clock is a time that tests set, as a scheduler sees it. Whatever waits for it wakes at each step, so that none sleeps
// through one: a scheduler that wakes early finds nothing to do.
type clock struct {
	*streamtest.Clock
	mu   sync.Mutex
	read time.Time // first, since it waited last
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	if c.read.IsZero() {
		c.read = now
	}
	return now
}

func (c *clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	fires := c.Clock.After(min(d, time.Microsecond))
	if !c.read.IsZero() && !c.Clock.Now().Equal(c.read) { // it was set since the caller looked
		fires = c.Clock.After(0)
	}
	c.read = time.Time{}
	return fires
}

// rig is a lane without its command loop: a real server, the domain's own lane deciding at the rig's clock, and a
// goroutine that answers what schedulers request.
type rig struct {
	t      *testing.T
	server *streamtest.Server
	js     jetstream.JetStream
	log    string
	clock  wall.Clock // the lane's, and by default the schedulers'
	reg    *prometheus.Registry
	heard  testsignal.Signal[int] // requests that the lane has read, all in all
	ran    *running               // last

	mu         sync.Mutex
	domainLane *domain.Lane
	ids        int // of people's commands
	appender   *eventlog.Appender
	last       uint64         // of the event stream
	covered    uint64         // commands, by the steps written
	silent     bool           // do not answer
	requests   []wire.Command // as the lane read them
	metrics    *Metrics
}

// sealed is the log with its seal key.
func (r *rig) sealed() topology.Log { return topology.Log{UUID: r.log}.WithKey([32]byte{1}) }

const start = wire.Instant(1_800_000_000_000_000) // 2027-01-15T08:00:00Z

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, server: streamtest.Start(t, authtest.Servers(1)), domainLane: domain.NewLane(domain.LaneOptions{Lanes: 1}), reg: prometheus.NewRegistry()}
	shown := &streamtest.Clock{}
	shown.Set(start.Time())
	r.clock = shown
	r.heard.Watch()
	r.js = r.server.JetStream(t)
	r.metrics = NewMetrics(r.reg)
	log, err := topology.Ensure(t.Context(), r.js, topology.Spec{Lanes: 1, KeyFingerprint: "test"})
	streamtest.Must(t, err)
	r.log = log.UUID
	r.appender, err = eventlog.Events(r.js, 0).NewAppender(0)
	streamtest.Must(t, err)
	t.Cleanup(r.appender.Close)

	feed, err := eventlog.Commands(r.js, 0).OpenFeed(t.Context(), 0, streamtest.Logger(t))
	streamtest.Must(t, err)
	t.Cleanup(feed.Close)
	streamtest.Background(t, func(ctx context.Context) error {
		for {
			select {
			case <-feed.Ready():
			case <-ctx.Done():
				return nil
			}
			batch, err := feed.TryBatch(100, nil)
			if err != nil {
				return err
			}
			for i := range batch {
				r.answer(batch[i].Data)
			}
		}
	})
	return r
}

// answer decides one message of requests.
func (r *rig) answer(payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var events []wire.Event
	at := wire.At(r.clock.Now())
	for _, line := range eventlog.Lines(payload) {
		var cmd wire.Command
		if err := wire.ParseCommand(line, wire.Defaults{}, &cmd); err != nil || !wire.ScopeScheduler.Allows(cmd.Type) {
			r.t.Errorf("request %s: %v", line, err)
		}
		r.requests = append(r.requests, cmd)
		if !r.silent {
			events, _ = r.domainLane.Decide(&cmd, at, events)
		}
	}
	r.write(events)
	r.heard.Send(len(r.requests))
}

// write puts a step on the event stream.
func (r *rig) write(events []wire.Event) {
	var payload []byte
	for i := range events {
		payload = append(events[i].AppendJSON(payload), '\n')
	}
	h := eventlog.Header{
		Commands: [2]uint64{r.covered + 1, r.covered + 1}, CommandTime: r.clock.Now(), LaneTime: r.clock.Now(), Owner: "rig",
	}
	seq, err := r.appender.Publish(context.Background(), eventlog.Attempt{Expected: r.last, Header: eventlog.Events(nil, 0).In(r.sealed()).Sealer().Encode(h, r.last+1, payload), Payload: payload})
	if err != nil {
		r.t.Errorf("writing a step: %v", err)
		return
	}
	r.last = seq
	r.covered++
}

// do decides people's commands, given without ids, in one step.
func (r *rig) do(lines ...string) []wire.Event {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var events []wire.Event
	for _, line := range lines {
		r.ids++
		line = fmt.Sprintf(`{"id":"c-%d",%s}`, r.ids, line)
		var cmd wire.Command
		if err := wire.ParseCommand([]byte(line), wire.Defaults{}, &cmd); err != nil {
			r.t.Fatalf("%s: %v", line, err)
		}
		events, _ = r.domainLane.Decide(&cmd, wire.At(r.clock.Now()), events)
	}
	r.write(events)
	return events
}

func (r *rig) create(name, more string) {
	r.t.Helper()
	r.do(fmt.Sprintf(`"type":"create_campaign","campaign":%q,"codes":100000%s`, name, more))
}

// remind subscribes customers c<from> to c<through> to the opening, in steps of a thousand.
func (r *rig) remind(campaign string, from, through int, before string) {
	r.t.Helper()
	var lines []string
	for i := from; i <= through; i++ {
		lines = append(lines, fmt.Sprintf(`"type":"remind","campaign":%q,"customer_id":"c%d","kind":"opens","before":%q`, campaign, i, before))
		if len(lines) == 1000 || i == through {
			r.do(lines...)
			lines = nil
		}
	}
}

func (r *rig) setSilent(silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = silent
}

// set sets the clock. What has passed changes nothing.
func (r *rig) set(at wire.Instant) { r.clock.(*streamtest.Clock).Set(at.Time()) }

// requested is what the lane has read so far.
func (r *rig) requested() []wire.Command {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// scheduler makes one on the rig's clock.
func (r *rig) scheduler(change ...func(*Options)) *Scheduler {
	o := Options{
		Clock: r.clock, Config: settings.Fixed(settings.Default()), Metrics: r.metrics, Logger: streamtest.Logger(r.t),
		Load: load.NewMeter(1), Decides: func() bool { return true },
	}
	if shown, ok := r.clock.(*streamtest.Clock); ok {
		o.Clock = &clock{Clock: shown}
	}
	for _, c := range change {
		c(&o)
	}
	return New(r.js, r.sealed(), 0, o)
}

// value is the sum of a metric of this package.
func (r *rig) value(name string) (sum float64) {
	r.t.Helper()
	families, err := r.reg.Gather()
	streamtest.Must(r.t, err)
	for _, f := range families {
		if f.GetName() == "scrip_scheduler_"+name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// running is a Run under way.
type running struct {
	*rig
	s      *Scheduler
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	rested rest // last, as the test knows
}

func (r *rig) run(s *Scheduler) *running {
	ctx, cancel := context.WithCancel(context.Background())
	w := &running{rig: r, s: s, cancel: cancel, done: make(chan struct{})}
	r.ran = w
	s.signals.Rested.Watch()
	go func() {
		w.err = s.Run(ctx)
		s.signals.Rested.Send(rest{}) // who waits need not any more
		close(w.done)                 // another run of s may follow, with a signal of its own
	}()
	r.t.Cleanup(func() { cancel(); <-w.done })
	return w
}

// rests waits until the run has seen the present time, all events and the present settings, and rests as is requested. It
// returns false if the run ended before.
func (w *running) rests(as func(rest) bool) bool {
	w.t.Helper()
	now := wire.At(w.clock.Now())
	config, _ := w.s.opts.Config.Current()
	is := func(x rest) bool {
		w.mu.Lock()
		last := w.last
		w.mu.Unlock()
		w.rested = x
		return x.settings == nil || x.at >= now && x.folded >= last && x.settings == config && as(x)
	}
	if w.rested.settings == nil || !is(w.rested) {
		w.s.signals.Rested.WaitFor(w.t, is)
	}
	return w.rested.settings != nil
}

// seen waits until it rests, whatever is left to do.
func (w *running) seen() bool { w.t.Helper(); return w.rests(func(rest) bool { return true }) }

// quiet waits until it rests with nothing left to do.
func (w *running) quiet() bool { w.t.Helper(); return w.rests(func(x rest) bool { return x.quiet }) }

func (r *rig) seen()  { r.t.Helper(); r.ran.seen() }
func (r *rig) quiet() { r.t.Helper(); r.ran.quiet() }

// stop ends the run cleanly.
func (w *running) stop() {
	w.t.Helper()
	w.cancel()
	<-w.done
	if !errors.Is(w.err, context.Canceled) {
		w.t.Fatalf("Run ended with %v", w.err)
	}
}

// fails waits for Run to end with an error.
func (w *running) fails() error {
	w.t.Helper()
	<-w.done
	if w.err == nil || errors.Is(w.err, context.Canceled) {
		w.t.Fatalf("Run ended with %v, expected a failure", w.err)
	}
	return w.err
}

// published is every reminder of the reminder stream, in order.
func (r *rig) published() []wire.Event { return r.lines(r.reminderMessages()) }

func (r *rig) events() []wire.Event { return r.lines(r.read(eventlog.Events(r.js, 0))) }

func (r *rig) reminderMessages() []eventlog.Message { return r.read(eventlog.Reminders(r.js, 0)) }

// lines are the events in the payloads of messages.
func (r *rig) lines(messages []eventlog.Message) (all []wire.Event) {
	r.t.Helper()
	for i := range messages {
		for _, line := range eventlog.Lines(messages[i].Payload) {
			var ev wire.Event
			if err := wire.ParseEvent(line, &ev); err != nil {
				r.t.Fatalf("line %s of message %d: %v", line, messages[i].Sequence, err)
			}
			for one := range ev.Each() {
				all = append(all, *one)
			}
		}
	}
	return all
}

// read returns all messages of a stream.
func (r *rig) read(stream eventlog.Stream) (all []eventlog.Message) {
	r.t.Helper()
	reader, err := stream.Open(r.t.Context(), r.log, eventlog.Position{Log: r.log}, eventlog.ReaderOptions{Logger: streamtest.Logger(r.t)})
	streamtest.Must(r.t, err)
	defer reader.Close()
	streamtest.Must(r.t, reader.CatchUp(r.t.Context(), func(batch []eventlog.Message) error { all = append(all, batch...); return nil }))
	return all
}

// waitPublished waits until all that is due is done, and as many reminders must be on the reminder stream.
func (r *rig) waitPublished(want int) []wire.Event {
	r.t.Helper()
	r.quiet()
	published := r.published()
	if len(published) != want {
		r.t.Fatalf("%d reminders published, expected %d", len(published), want)
	}
	return published
}

// expired waits until all that is due is done, and returns the one event with which that campaign expired.
func (r *rig) expired(campaign string) (found wire.Event) {
	r.t.Helper()
	r.quiet()
	n := 0
	for _, ev := range r.events() {
		if ev.Type == wire.CouponsExpired && ev.Campaign == campaign {
			found, n = ev, n+1
		}
	}
	if n != 1 {
		r.t.Fatalf("%s expired %d times", campaign, n)
	}
	return found
}

func (r *rig) count(typ wire.EventType) (n int) {
	for _, ev := range r.events() {
		if ev.Type == typ {
			n++
		}
	}
	return n
}
