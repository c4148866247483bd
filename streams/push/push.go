package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// ErrHangs ends Run when so many calls of the function hang that the process should be restarted.
var ErrHangs = errors.New("the push function hangs")

// ErrGone ends Run when a stream that it reads no longer exists. Of Lag: the name was never used.
var ErrGone = errors.New("the stream or consumer of the push sender is gone")

var errNoLog = errors.New("there is no log on this NATS server; `scrip serve` makes one, or connect to another server")

const (
	// hungPerWorker bounds what a function that ignores its context leaks: Run ends after so many hanging calls per worker.
	hungPerWorker = 8
	// startParallel is how many lanes are checked at once at the start.
	startParallel = 8
	// flushFor bounds the flush of the last acknowledgements to the server.
	flushFor = 2 * time.Second
)

// Pusher passes reminders to a function. Make one with New for each Run.
type Pusher struct {
	js      jetstream.JetStream // nil with a key
	opts    Options
	source  source
	process string // names it in entries of WaitStream
	ran     atomic.Bool

	count     counters
	call      caller
	gate      *gate
	tracker   *tracker
	log       topology.Log
	judges    []laneJudge
	counts    []laneCounts
	begun     []atomic.Int64 // of each lane, when the name was used first, ns
	proxy     *proxyClient   // of a sender with a key; nil = this process has credentials of servers, js
	waiting   *waitStream
	positions *positions
	entries   entryStore
	dead      letterStore

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

// laneCounts are not recorded in Bucket yet. saved belongs to the goroutine that records.
type laneCounts struct {
	delivered, dead, failed atomic.Uint64
	saved                   uint64
}

// New makes a Pusher of fired reminders. It starts nothing and sends no request. Errors name the option whose value is not
// valid.
func New(js jetstream.JetStream, opts Options) (*Pusher, error) {
	return newPusher(js, opts, reminders())
}

func newPusher(js jetstream.JetStream, opts Options, from source) (*Pusher, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Pusher{
		js: js, opts: opts, source: from, process: uuid.NewString(), tracker: newTracker(), gate: newGate(&opts),
		call: caller{batch: opts.Batch, timeout: opts.Timeout}, ackFor: ackFor,
	}, nil
}

// onReminders makes a caller's function of a Func.
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
	lanes, waiting, err := p.prepare(p.ctx)
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

	p.Changed.Send(struct{}{})
	var feeds, saver sync.WaitGroup
	pull := func(f feed, from puller) {
		feeds.Go(func() {
			if err := p.pull(f, from); err != nil {
				p.fail(err)
			}
		})
	}
	for lane, consumer := range lanes {
		pull(p.lane(lane), consumer)
	}
	for c, consumer := range waiting {
		pull(p.waitingOf(class(c)), consumer)
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

// entryStore stores which messages wait, letterStore what could not be delivered.
type entryStore interface {
	put(ctx context.Context, c class, id messageID, e entry) error
}

type letterStore interface {
	get(ctx context.Context, name string, message messageID) (l DeadLetter, ok bool, err error)
	add(ctx context.Context, l *DeadLetter) error
	remove(ctx context.Context, name string, message messageID, gone []item) error
}

// openLog finds the log, and adds the seal key to it.
func (p *Pusher) openLog(ctx context.Context) error {
	log, found, err := topology.Inspect(ctx, p.js)
	switch {
	case err != nil:
		return fmt.Errorf("push: %w", err)
	case !found:
		return fmt.Errorf("push: %w", errNoLog)
	case log.Format > topology.Format:
		return fmt.Errorf("push: %w: log %s has format %d, this program reads up to %d; use a newer scrip", eventlog.ErrNewerFormat, log.UUID, log.Format, topology.Format)
	}
	if p.opts.SealKey != "" {
		if log, err = log.WithSealKey(p.opts.SealKey); err != nil {
			return fmt.Errorf("push: SealKey: %w", err)
		}
	}
	p.log = log
	return nil
}

// prepare finds the log and makes what is missing: the consumers of lanes and classes, the streams of dead letters and of
// waiting messages, and the bucket.
func (p *Pusher) prepare(ctx context.Context) (lanes, waiting []puller, err error) {
	if p.proxy != nil {
		return p.proxy.prepare(ctx, p)
	}
	if err := p.openLog(ctx); err != nil {
		return nil, nil, err
	}
	log := p.log
	if p.positions, err = openPositions(ctx, p.js); err != nil {
		return nil, nil, err
	}
	if p.waiting, err = openWaiting(ctx, p.js, p.opts.Name); err != nil {
		return nil, nil, err
	}
	dead, err := openDead(ctx, p.js)
	if err != nil {
		return nil, nil, err
	}
	p.entries, p.dead = p.waiting, dead
	lanes, waiting = make([]puller, log.Lanes), make([]puller, classes)
	p.judges, p.counts, p.begun = make([]laneJudge, log.Lanes), make([]laneCounts, log.Lanes), make([]atomic.Int64, log.Lanes)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(startParallel)
	for lane := range lanes {
		g.Go(func() (err error) {
			// Checked before anything is taken from the stream: each message taken and returned counts as a delivery.
			stream := p.source.stream(p.js, lane).In(log)
			if _, err = stream.Tail(gctx); err == nil {
				p.judges[lane].judge, err = stream.Judge(gctx)
			}
			if err != nil {
				return fmt.Errorf("push: %w", err)
			}
			lanes[lane], err = p.openLane(gctx, lane)
			return err
		})
	}
	for c := range waiting {
		g.Go(func() (err error) {
			waiting[c], err = p.openClass(gctx, class(c))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	p.setProgressEvery(ctx, lanes, waiting)
	return lanes, waiting, nil
}

// setProgressEvery decides how often progress is reported. AckWait is the one that the consumers were created with.
func (p *Pusher) setProgressEvery(ctx context.Context, lanes, waiting []puller) {
	p.progressEvery = lanes[0].ackWait()
	for _, c := range slices.Concat(lanes, waiting) {
		p.progressEvery = min(p.progressEvery, c.ackWait())
	}
	if p.progressEvery != p.opts.AckWait {
		p.opts.Logger.InfoContext(ctx, "the push sender's AckWait was fixed at its first start and stays as it is",
			"name", p.opts.Name, "ack_wait", p.progressEvery, "requested", p.opts.AckWait)
	}
	p.progressEvery /= 3 // two in a row may be lost
}

// flush sends the last acknowledgements before the process may end, and records the positions.
func (p *Pusher) flush() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), flushFor)
	defer cancel()
	// What is not flushed in time is delivered again after AckWait; what is not recorded is of no harm.
	_ = p.conn().FlushWithContext(ctx)
	_ = p.save(ctx)
}

func (p *Pusher) conn() *nats.Conn {
	if p.proxy != nil {
		return p.proxy.nc
	}
	return p.js.Conn()
}
