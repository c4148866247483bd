package lane

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// intakeBatch is how many command messages are taken from the feed at once.
const intakeBatch = 64

// considerEvery is how often the lane considers a snapshot and reports its status.
const considerEvery = time.Second

// loop is the lane's main loop. It takes the commands that have arrived, decides them at once, writes one step at a time,
// and collects the next one while a write is in flight: under load a write carries the commands that arrived during the one
// before it, and a single command does not wait.
func (o *owner) loop(ctx context.Context) error {
	tick := o.opt.Clock.After(considerEvery)
	defer o.resume(ctx)
	configured := o.configure()
	for {
		if o.full() {
			// No more fits: wait for the write, or publish the collected step.
		} else if err := o.collect(ctx); err != nil {
			return err
		}
		o.publish()
		if o.snapshotting && o.term.Settled() {
			o.snapshot(ctx)
			continue // messages that arrived since have been signalled and are not signalled again
		}
		var ready, acked <-chan struct{}
		if !o.full() {
			ready = o.feed.Ready()
		}
		if o.inFlight != nil {
			acked = o.inFlight.pending.Done()
		}
		var queries chan receivedQuery
		if len(o.walks) < maxWalks {
			queries = o.queries
		}
		var walking <-chan struct{}
		if len(o.walks) > 0 {
			walking = always
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ready:
			o.arrived = true
		case <-acked:
			if err := o.landed(ctx); err != nil {
				return err
			}
		case q := <-queries:
			if o.mayAnswer() {
				o.query(q)
			}
		case <-walking:
			o.walk()
		case c := <-o.confirmation.replies:
			if err := o.confirm(c); err != nil {
				return err
			}
		case err := <-o.saved:
			o.snapshotDone(ctx, err)
		case p := <-o.unpacked:
			o.install(p)
		case <-o.held.timer():
			// collect checks whether the first message may be decided now.
		case <-configured:
			configured = o.configure()
		case <-tick:
			tick = o.opt.Clock.After(considerEvery)
			o.considerSnapshot()
			o.considerUnpacking()
			o.considerConfirming(ctx)
			o.report(StateOwner)
		}
	}
}

// owner is one term of a lane: the protocol and its connection to NATS. Its fields are owned by the goroutine that runs
// load and loop, unless a comment names another.
type owner struct {
	term    *protocol.Term
	lane    *Lane
	opt     Options
	started time.Time

	stream   eventlog.Stream
	appender *eventlog.Appender
	feed     *eventlog.Feed
	arrived  bool           // the feed may hold messages
	buffer   []eventlog.Raw // taken from the feed
	backlog  []eventlog.Raw // of it, not decided yet
	held     heldBack       // of the first of them
	inFlight *flight        // the write without a result yet; nil = none
	queries  chan receivedQuery
	walks    []*walk // queries in progress

	confirmation confirmation // the last proof of ownership

	replayed     int // event lines folded at the start
	snapshotting bool
	snapshotted  time.Time
	saved        chan error // result of the snapshot being written
	unpacked     chan *domain.Packed

	durable atomic.Uint64 // commands covered, for purge to read
}

// configure applies the settings in force to the commands that follow, and returns a channel that is closed at the next
// change. An event records what a setting decided: a fold of the log needs none.
func (o *owner) configure() (changed <-chan struct{}) {
	settings, changed := o.opt.Config.Current()
	o.term.State().SetGrace(settings.ReminderGrace)
	o.term.State().SetQuoted(settings.DeadLetterQuote)
	o.lane.signals.Configured.Send(settings)
	return changed
}

// full reports whether no more commands are collected: the step has its size, or a snapshot waits for a settled state.
func (o *owner) full() bool { return o.term.StepFull() || o.snapshotting }

// collect decides the messages that have arrived, without waiting, until the step has its size.
func (o *owner) collect(ctx context.Context) error {
	for !o.full() {
		if len(o.backlog) == 0 {
			if !o.arrived {
				return nil
			}
			batch, err := o.feed.TryBatch(intakeBatch, o.buffer[:0])
			o.buffer = batch
			if len(batch) == 0 {
				o.arrived = false
				clear(o.buffer[:cap(o.buffer)]) // an idle lane keeps no payloads: they may take 16 MiB
				if err != nil {
					return o.feedBroke(ctx, err)
				}
				return nil
			}
			o.backlog = batch
		}
		c, err := protocol.CommandOf(&o.backlog[0])
		if err != nil {
			return err
		}
		if !o.term.Fits(&c) {
			return nil
		}
		if o.early(ctx, &c) {
			return nil // it stays the first; steps decided before it are written and answered
		}
		o.backlog = o.backlog[1:]
		if c.BadReply {
			o.opt.Metrics.badOutcome.Inc()
		}
		if c.Scope != wire.ScopeScheduler {
			o.lane.load.Client.Store(time.Now().UnixNano())
		}
		if wrong := o.term.Decide(&c); wrong > 0 && o.opt.WrongCodes != nil {
			o.opt.WrongCodes(wrong)
		}
	}
	return nil
}

// maxAhead is how far a command's timestamp may be ahead of the machine's clock before the lane waits instead of expiring
// coupons too early. It is read at each use, so that a waiting lane continues as soon as an operator raises it.
func (o *owner) maxAhead() time.Duration {
	settings, _ := o.opt.Config.Current()
	return settings.ClockTolerance
}

const (
	// heldPoll is how often the clock is checked while the first message is held back: the clock may be corrected, and
	// operators may change the tolerance.
	heldPoll = 250 * time.Millisecond
	// heldAlarm is the interval of log messages while a message is held back.
	heldAlarm = 10 * time.Second
)

// heldBack is the state of a first undecided message that is held back, with all messages after it. Steps decided before it
// are written and answered, queries too; only lane time does not advance.
type heldBack struct {
	reason string // empty: nothing is held back
	logged time.Time
	until  <-chan time.Time // next check
}

// timer is ready at the next check; nil while nothing is held back.
func (h *heldBack) timer() <-chan time.Time {
	if h.reason == "" {
		return nil
	}
	return h.until
}

// early reports whether a command is stamped in the future, and holds the lane back while it is.
func (o *owner) early(ctx context.Context, c *protocol.Command) bool {
	now := o.opt.Clock.Now()
	wait := c.Early(now, o.maxAhead())
	if wait <= 0 {
		o.resume(ctx)
		return false
	}
	ahead := c.Stamped.Sub(now).Round(time.Millisecond)
	o.holdBack(ctx, "a command is stamped "+ahead.String()+" in the future; check the clocks of this machine and of the NATS servers", wait)
	return true
}

// holdBack holds the lane back. It logs the reason at first and every ten seconds, and schedules the next check after
// wait or sooner.
func (o *owner) holdBack(ctx context.Context, reason string, wait time.Duration) {
	h := &o.held
	h.until = o.opt.Clock.After(min(wait, heldPoll))
	if h.reason == "" {
		o.opt.Metrics.waiting.WithLabelValues(o.lane.label).Set(1)
	}
	fresh := h.reason == ""
	h.reason = reason
	if now := o.opt.Clock.Now(); fresh || now.Sub(h.logged) >= heldAlarm {
		h.logged = now
		o.opt.Logger.ErrorContext(ctx, "the lane waits: "+reason, "lag", o.feed.Lag())
		o.report(StateOwner)
	}
}

// resume ends the wait, if there is one.
func (o *owner) resume(ctx context.Context) {
	if o.held.reason == "" {
		return
	}
	o.held.reason = ""
	o.opt.Metrics.waiting.WithLabelValues(o.lane.label).Set(0)
	o.opt.Logger.InfoContext(ctx, "the lane continues")
	o.report(StateOwner)
}

// feedBroke returns the error for the end of the command feed.
func (o *owner) feedBroke(ctx context.Context, err error) error {
	if err = o.contradiction(ctx, fmt.Errorf("reading commands: %w", o.term.Broken(err))); errors.Is(err, ErrStopped) {
		return fmt.Errorf("%w (%w)", err, errDoubtful)
	}
	return err
}

// contradiction checks, before the lane stops because commands and events do not fit, whether the cause is only that
// another owner has written since.
func (o *owner) contradiction(ctx context.Context, err error) error {
	if !errors.Is(err, ErrStopped) {
		return err
	}
	bounds, unknown := o.stream.Bounds(ctx)
	switch {
	case unknown != nil:
		return unknown // checked again when the lane is loaded again
	case o.term.Outrun(bounds.Last):
		return fmt.Errorf("%w, and has continued: %s", errLost, err.Error())
	}
	return err
}

// flight is a write without a result yet.
type flight struct {
	pending *eventlog.Pending
	started time.Time
	traced  func(sequence uint64, commands int) // ends the span, nil = it has none
}

// publish sends the collected step, unless a write is in flight. Nothing is answered yet.
func (o *owner) publish() {
	if w := o.term.NextWrite(); w != nil {
		attempt := w.Attempt
		attempt.Wait = min(firstLook, o.opt.WriteTimeout)
		f := &flight{started: o.opt.Clock.Now()}
		if w.Traces != nil && o.opt.Trace != nil {
			var parent string
			parent, f.traced = o.opt.Trace(o.opt.Lane, w.Traces, w.Traced)
			attempt.Header[topology.HeaderStepTrace] = []string{parent} // no part of the seal and of digests
		}
		f.pending = o.appender.PublishAsync(attempt)
		o.inFlight = f
	}
}

// landed handles the result of the write in flight. Only here are answers sent.
func (o *owner) landed(ctx context.Context) error {
	f := o.inFlight
	sequence, err := f.pending.Result()
	if err != nil {
		if sequence, err = o.resolve(ctx, f.pending.Attempt, err); err != nil {
			return err
		}
	}
	o.inFlight = nil
	w := o.stored(sequence)
	// Publish the next write first: the disk works while this one is answered.
	o.publish()
	o.send(w.Replies)
	o.lane.load.Done.Add(uint64(w.Commands))
	m, label := o.opt.Metrics, o.lane.label
	m.steps.WithLabelValues(label).Inc()
	m.commands.WithLabelValues(label).Add(float64(w.Commands))
	m.size.WithLabelValues(label).Observe(float64(w.Commands))
	o.lane.tally(w.Outcomes)
	if f.traced != nil {
		f.traced(sequence, w.Commands)
	}
	m.write.WithLabelValues(label).Observe(o.opt.Clock.Now().Sub(f.started).Seconds())
	return nil
}

// stored records that the write in flight is durable.
func (o *owner) stored(sequence uint64) *protocol.Write {
	w := o.term.Acked(sequence)
	o.confirmation.since = o.opt.Clock.Now()
	o.opt.Mover.Answered()
	o.durable.Store(o.term.Covered())
	return w
}

// send publishes answers. They are core messages: after a lost one the client retries under the same id, and is answered
// from the state.
func (o *owner) send(answers []protocol.Reply) {
	nc := o.opt.JetStream.Conn()
	for _, a := range answers {
		if err := nc.PublishMsg(&nats.Msg{Subject: a.Subject, Data: a.Payload}); err != nil {
			// The client retries.
			o.opt.Logger.Warn("outcome not sent", "err", err)
			if !errors.Is(err, nats.ErrMaxPayload) {
				return // the connection is closing
			}
		}
	}
}

// finish waits, when the loop ends, for the write in flight: if it was stored, its answers are sent. It does not start
// another one.
func (o *owner) finish() {
	if o.inFlight != nil {
		// At the latest after the appender's wait for acknowledgements.
		if sequence, err := o.inFlight.pending.Result(); err == nil {
			o.send(o.stored(sequence).Replies)
		}
	}
	o.term.Abandon()
}
