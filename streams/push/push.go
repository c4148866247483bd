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

// ErrHangs ends Run when so many calls of the function hang that the process had better be started anew.
var ErrHangs = errors.New("the push function hangs")

// ErrGone ends Run when the consumer under the name is not there any more.
var ErrGone = errors.New("the consumer of the push sender is gone")

var errNoLog = errors.New("there is no log on this NATS server; `scrip serve` makes one, or connect to another server")

const (
	// hungPerWorker bounds what a function that ignores its context leaks: after so many calls for each worker Run ends.
	hungPerWorker = 8
	// pausedPerWorker is how many messages for each worker may wait for their next try here without holding a worker.
	// Beyond it they do hold one, so that a process whose gateway is away takes up nothing more.
	pausedPerWorker = 4
	// startParallel is how many lanes are looked at at once when starting.
	startParallel = 8
	// flushFor is how long the last acknowledgements may take to reach the server.
	flushFor = 2 * time.Second
)

// Pusher hands reminders to a function. Make one with New for each Run.
type Pusher struct {
	js   jetstream.JetStream
	opts Options
	ran  atomic.Bool

	count counters
	call  caller
	desk  *desk
	log   topology.Log
	reads []*eventlog.Judge // of each lane, used by the one who pulls

	turns  chan struct{} // one for each call under way
	paused chan struct{} // one for each message that waits here without a turn
	works  sync.WaitGroup
	dead   *deadStream
	beats  time.Duration // between signs of life of a message in hand

	// ctx ends when Run is to end: nothing new is taken up. hard ends Grace later: calls under way are to return.
	ctx, hard context.Context
	fail      context.CancelCauseFunc // ends ctx because of an error
}

// New makes a Pusher. It starts nothing and asks nothing. Errors name the option that makes no sense.
func New(js jetstream.JetStream, opts Options) (*Pusher, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Pusher{
		js: js, opts: opts, desk: newDesk(),
		call:   caller{batch: opts.Batch, timeout: opts.Timeout},
		turns:  make(chan struct{}, opts.Workers),
		paused: make(chan struct{}, opts.Workers*pausedPerWorker),
	}, nil
}

// Run hands reminders to the function until ctx ends; then it takes up no more, gives calls under way their Grace, gives
// back what is not done and returns nil. It may be called once.
//
// Errors: there is no log, or one of a newer format, or it ends in a message of one
// ([eventlog.ErrNewerFormat]: use a newer program; at such a message that comes later its lane waits, see Stats.Stopped); the consumer was
// removed (ErrGone); the function hangs too often (ErrHangs); the connection was closed. While the server is away Run
// waits for it; at the start it does so for half a minute.
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

// prepare finds the log and makes what is not there yet: one consumer for each lane, and the stream of dead letters.
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
			// Looked at before anything is taken from the stream: each message taken and given back counts as a delivery.
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
	// The one who made the consumer decided how long a silence may be.
	p.beats = consumers[0].CachedInfo().Config.AckWait
	for _, c := range consumers {
		p.beats = min(p.beats, c.CachedInfo().Config.AckWait)
	}
	if p.beats != p.opts.AckWait {
		p.opts.Logger.InfoContext(ctx, "the push sender's AckWait was fixed at its first start and stays as it is",
			"name", p.opts.Name, "ack_wait", p.beats, "asked", p.opts.AckWait)
	}
	p.beats /= 3 // two may get lost
	p.dead, err = openDead(ctx, p.js)
	return consumers, err
}

// flush sees the last acknowledgements off before the process may end.
func (p *Pusher) flush() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), flushFor)
	defer cancel()
	// What does not get through is delivered again after AckWait.
	_ = p.js.Conn().FlushWithContext(ctx)
}
