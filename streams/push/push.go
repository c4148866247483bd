package push

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// ErrHangs ends Run when so many calls of the function hang that the process should be restarted.
var ErrHangs = errors.New("the push function hangs")

// ErrGone ends Run when the consumer with the Pusher's name no longer exists.
var ErrGone = errors.New("the consumer of the push sender is gone")

var errNoLog = errors.New("there is no log on this NATS server; `scrip serve` makes one, or connect to another server")

const (
	// hungPerWorker bounds what a function that ignores its context leaks: Run ends after so many hanging calls per worker.
	hungPerWorker = 8
	// pausedPerWorker is how many messages per worker may wait here for their next try without occupying a worker. More
	// than that do occupy one, so that a process whose gateway is unreachable takes no new messages.
	pausedPerWorker = 4
	// startParallel is how many lanes are checked at once at the start.
	startParallel = 8
	// flushFor bounds the flush of the last acknowledgements to the server.
	flushFor = 2 * time.Second
)

// Pusher passes reminders to a function. Make one with New for each Run.
type Pusher struct {
	js   jetstream.JetStream
	opts Options
	ran  atomic.Bool

	count   counters
	call    caller
	tracker *tracker
	log     topology.Log
	reads   []*eventlog.Judge // of each lane, used by the goroutine that pulls

	slots  chan struct{} // one for each call in progress
	paused chan struct{} // one for each message that waits here without a worker
	works  sync.WaitGroup
	dead   *deadStream
	beats  time.Duration // between progress reports of a message in flight

	// ctx ends when Run is to end: no new message is taken. hard ends Grace later: calls in progress are to return.
	ctx, hard context.Context
	fail      context.CancelCauseFunc // ends ctx because of an error
}

// New makes a Pusher. It starts nothing and sends no request. Errors name the option whose value is not valid.
func New(js jetstream.JetStream, opts Options) (*Pusher, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Pusher{
		js: js, opts: opts, tracker: newTracker(),
		call:   caller{batch: opts.Batch, timeout: opts.Timeout},
		slots:  make(chan struct{}, opts.Workers),
		paused: make(chan struct{}, opts.Workers*pausedPerWorker),
	}, nil
}

// Run passes reminders to the function until ctx ends; then it takes no more messages, gives calls in progress their Grace,
// returns unfinished messages to NATS and returns nil. It may be called once.
//
// Errors: there is no log, or it has a newer format, or it ends in a message of one ([eventlog.ErrNewerFormat]: use a newer
// program; at such a message that comes later its lane waits, see Stats.Stopped); the consumer was removed (ErrGone); the
// function hangs too often (ErrHangs); the connection was closed. While the server is unreachable Run waits for it; at the
// start it does so for half a minute.
func (p *Pusher) Run(ctx context.Context, push Func) error {
	if p.ran.Swap(true) {
		return errors.New("push: Run may be called once; make another Pusher with New")
	}
	p.call.push = push
	p.ctx, p.fail = context.WithCancelCause(ctx)
	defer p.fail(nil)
	consumers, err := p.prepare(p.ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var release context.CancelFunc
	p.hard, release = context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	context.AfterFunc(p.ctx, func() {
		grace := time.NewTimer(p.opts.Grace)
		defer grace.Stop()
		select {
		case <-grace.C:
			release()
		case <-p.hard.Done():
		}
	})

	var lanes sync.WaitGroup
	for lane, consumer := range consumers {
		lanes.Go(func() {
			if err := p.pull(lane, consumer); err != nil {
				p.fail(err)
			}
		})
	}
	lanes.Wait()
	p.works.Wait()
	p.flush()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(p.ctx)
}

// prepare finds the log and makes what is missing: one consumer for each lane, and the stream of dead letters.
func (p *Pusher) prepare(ctx context.Context) ([]jetstream.Consumer, error) {
	log, found, err := topology.Inspect(ctx, p.js)
	switch {
	case err != nil:
		return nil, fmt.Errorf("push: %w", err)
	case !found:
		return nil, fmt.Errorf("push: %w", errNoLog)
	case log.Format > topology.Format:
		return nil, fmt.Errorf("push: %w: log %s has format %d, this program knows %d; use a newer scrip", eventlog.ErrNewerFormat, log.UUID, log.Format, topology.Format)
	}
	if p.opts.SealKey != "" {
		if log, err = log.WithSealKey(p.opts.SealKey); err != nil {
			return nil, fmt.Errorf("push: SealKey: %w", err)
		}
	}
	p.log = log
	consumers := make([]jetstream.Consumer, log.Lanes)
	p.reads = make([]*eventlog.Judge, log.Lanes)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(startParallel)
	for lane := range consumers {
		g.Go(func() (err error) {
			// Checked before anything is taken from the stream: each message taken and returned counts as a delivery.
			stream, err := eventlog.Reminders(p.js, lane).In(log).Settled(gctx)
			if err == nil {
				_, err = stream.Tail(gctx)
			}
			if err == nil {
				p.reads[lane], err = stream.Judge(gctx)
			}
			if err != nil {
				return fmt.Errorf("push: %w", err)
			}
			consumers[lane], err = p.consumer(gctx, lane)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	// AckWait is the one that the consumer was created with.
	p.beats = consumers[0].CachedInfo().Config.AckWait
	for _, c := range consumers {
		p.beats = min(p.beats, c.CachedInfo().Config.AckWait)
	}
	if p.beats != p.opts.AckWait {
		p.opts.Logger.InfoContext(ctx, "the push sender's AckWait was fixed at its first start and stays as it is",
			"name", p.opts.Name, "ack_wait", p.beats, "requested", p.opts.AckWait)
	}
	p.beats /= 3 // two in a row may be lost
	p.dead, err = openDead(ctx, p.js)
	return consumers, err
}

// flush sends the last acknowledgements before the process may end.
func (p *Pusher) flush() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), flushFor)
	defer cancel()
	// What is not flushed in time is delivered again after AckWait.
	_ = p.js.Conn().FlushWithContext(ctx)
}
