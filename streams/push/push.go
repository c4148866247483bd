package push

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// ErrHangs ends Run when so many calls of the function hang that the process should be restarted.
var ErrHangs = errors.New("the push function hangs")

// ErrGone ends Run when a stream that it reads no longer exists.
var ErrGone = errors.New("the stream or consumer of the push sender is gone")

const (
	// hungPerWorker bounds what a function that ignores its context leaks: Run ends after so many hanging calls per worker.
	hungPerWorker = 8
	// flushFor bounds the flush of the last acknowledgements to the server.
	flushFor = 2 * time.Second
)

// Pusher passes reminders to a function. Make one with New for each Run.
type Pusher struct {
	js      jetstream.JetStream
	opts    Options
	source  source
	from    backend
	process string // names it in entries of WaitStream
	ran     atomic.Bool

	count   counters
	call    caller
	gate    *gate
	tracker *tracker
	log     string // UUID
	lanes   map[int]*laneState

	// Changed is for tests: it is sent when Stats have changed, and when all is prepared.
	Changed testsignal.Signal[struct{}]

	works         sync.WaitGroup
	progress      sync.WaitGroup
	progressEvery time.Duration // between progress reports of a message in flight

	ackFor time.Duration // the constant; shorter in tests

	// ctx ends when Run is to end: no new message is taken. hard ends Grace later: calls in progress are to return.
	ctx, hard context.Context
	fail      context.CancelCauseFunc // ends ctx because of an error
}

// laneState is what a Pusher has of a lane of the log.
type laneState struct {
	laneJudge
	used time.Time // when the name was used first
	// Not recorded in Bucket yet:
	delivered, dead, failed, optedOut atomic.Uint64
}

// New makes a Pusher of fired reminders. The connection logged in with the credentials of servers, or with a key of role sender:
// then it was made with [natsx.Keyed], and may do what is the name's alone. New starts nothing and sends no request. Errors name
// the option whose value is not valid.
func New(js jetstream.JetStream, opts Options) (*Pusher, error) {
	return newPusher(js, opts, reminders())
}

func newPusher(js jetstream.JetStream, opts Options, from source) (*Pusher, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	on := newBackend(js, &opts, from)
	return &Pusher{
		js: js, opts: opts, source: from, from: on, process: uuid.NewString(), tracker: newTracker(),
		gate: newGate(&opts), call: caller{batch: opts.Batch, timeout: opts.Timeout, optedOut: from.optedOut(on)}, ackFor: ackFor,
	}, nil
}

func onReminders(push Func) func(context.Context, []item) error {
	return func(ctx context.Context, batch []item) error { return push(ctx, bare(batch)) }
}

// Run passes reminders to the function until ctx ends; then it takes no more messages, gives calls in progress their Grace,
// returns unfinished messages to NATS and returns nil. It may be called once.
//
// Errors: there is no log, or it has a newer format, or it ends in a message of one ([eventlog.ErrNewerFormat]: use a newer
// program; at such a message that comes later its lane waits, see Stats.Stopped); a stream of the log was removed (ErrGone);
// the function hangs too often (ErrHangs); the connection was closed. While the server is unreachable Run waits for it; at
// the start it does so for half a minute.
func (p *Pusher) Run(ctx context.Context, push Func) error { return p.run(ctx, onReminders(push)) }

func (p *Pusher) run(ctx context.Context, push func(context.Context, []item) error) error {
	if p.ran.Swap(true) {
		return errors.New("push: Run may be called once; make another Pusher with New")
	}
	p.call.push = push
	p.ctx, p.fail = context.WithCancelCause(ctx)
	defer p.fail(nil)
	defer p.gate.end()
	defer p.from.close()
	if err := p.prepare(p.ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("push: %w", err)
	}
	var release context.CancelFunc
	p.hard, release = longer(p.ctx, p.opts.Grace)
	defer release()

	p.Changed.Send(struct{}{})
	var feeds, saver sync.WaitGroup
	pull := func(at place, take func(delivery) error) {
		feeds.Go(func() {
			if err := p.pull(at, take); err != nil {
				p.fail(fmt.Errorf("push: %w", err))
			}
		})
	}
	for n := range p.lanes {
		pull(place{lane: n}, func(msg delivery) error { return p.take(n, msg) })
	}
	for c := range classes {
		pull(place{waits: true, class: c}, p.takeEntry)
	}
	saver.Go(func() { p.saving(p.ctx) })
	feeds.Wait()
	p.works.Wait()
	p.progress.Wait()
	saver.Wait()
	p.flush()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(p.ctx)
}

// prepare finds the log, and has made what the name needs.
func (p *Pusher) prepare(ctx context.Context) error {
	o, err := p.from.open(ctx)
	if err != nil {
		return err
	}
	if o.Format > topology.Format {
		return fmt.Errorf("%w: log %s has format %d, this program reads up to %d; use a newer scrip", eventlog.ErrNewerFormat, o.Log, o.Format, topology.Format)
	}
	log := topology.Log{UUID: o.Log, Format: o.Format}
	if p.opts.SealKey != "" {
		if log, err = log.WithSealKey(p.opts.SealKey); err != nil {
			return fmt.Errorf("SealKey: %w", err)
		}
	}
	p.log, p.lanes = log.UUID, map[int]*laneState{}
	for _, l := range o.Lanes {
		p.lanes[l.Lane] = &laneState{laneJudge: laneJudge{judge: p.source.stream(nil, l.Lane).In(log).JudgeWith(l.Skips)}, used: l.Used}
	}
	// AckWait is the one that the consumers were created with.
	ackWait := time.Duration(o.AckWait)
	if ackWait != p.opts.AckWait {
		p.opts.Logger.InfoContext(ctx, "the push sender's AckWait was fixed at its first start and stays as it is",
			"name", p.opts.Name, "ack_wait", ackWait, "requested", p.opts.AckWait)
	}
	p.progressEvery = ackWait / 3 // two in a row may be lost
	return nil
}

func (p *Pusher) saving(ctx context.Context) {
	for natsx.Pause(ctx, saveEvery) == nil {
		short, done := context.WithTimeout(ctx, requestTimeout)
		if err := p.save(short); err != nil && ctx.Err() == nil {
			p.opts.Logger.Debug("the positions were not recorded; they are later", "err", err)
		}
		done()
	}
}

// save records the positions and counts of all lanes, where they changed.
func (p *Pusher) save(ctx context.Context) error {
	var problems []error
	for n, l := range p.lanes {
		c := counts{Lane: n, Delivered: l.delivered.Swap(0), Dead: l.dead.Swap(0), Failed: l.failed.Swap(0), OptedOut: l.optedOut.Swap(0)}
		if err := p.from.save(ctx, c); err != nil {
			l.delivered.Add(c.Delivered)
			l.dead.Add(c.Dead)
			l.failed.Add(c.Failed)
			l.optedOut.Add(c.OptedOut)
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// flush sends the last acknowledgements before the process may end, and records the positions.
func (p *Pusher) flush() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), flushFor)
	defer cancel()
	// What is not flushed in time is delivered again after AckWait; what is not recorded is of no harm.
	_ = p.js.Conn().FlushWithContext(ctx)
	_ = p.save(ctx)
}

// counters of a Pusher since it was made.
type counters struct {
	pushed, failed, dead, optedOut, skipped, repeated atomic.Uint64
	stopped                                           atomic.Int64
}

// Stats is what a Pusher has done since it was made and what it does now.
type Stats struct {
	// Pushed customers: the function returned and did not report them as failed.
	Pushed uint64
	// FailedTries is how many tries of a message, one or more calls, failed for at least one customer.
	FailedTries uint64
	// Dead customers: they are in dead letters that this process wrote.
	Dead uint64
	// OptedOut customers want no reminders, and got none.
	OptedOut uint64
	// Skipped are foreign messages, lines that are no reminders, and messages in the skip list.
	Skipped uint64
	// Stopped lanes wait at a message that this program cannot read: run a newer one, or add it to the skip list.
	Stopped int
	// Repeated are messages that NATS delivered again although they were finished.
	Repeated uint64
	// InFlight are messages taken and not finished: in a call, or waiting for one here.
	InFlight int
	// Calling are calls in progress; Hanging those given up that have not returned.
	Calling, Hanging int
	// Limit is how many calls may be in progress: Workers, or fewer while the gateway is slow or fails.
	Limit int
	// Away: the gateway does not work, and no call is made but a probe at Probe.
	Away  bool
	Probe time.Time
}

// Stats returns the numbers as they are now. It sends no request.
func (p *Pusher) Stats() Stats {
	calling, limit, open, probe := p.gate.state()
	return Stats{
		Pushed: p.count.pushed.Load(), FailedTries: p.count.failed.Load(), Dead: p.count.dead.Load(), OptedOut: p.count.optedOut.Load(),
		Skipped: p.count.skipped.Load(), Repeated: p.count.repeated.Load(),
		InFlight: p.tracker.inFlight(), Calling: calling, Limit: limit, Hanging: int(p.call.hung.Load()),
		Stopped: int(p.count.stopped.Load()), Away: open, Probe: probe,
	}
}
