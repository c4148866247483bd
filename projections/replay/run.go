package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// unreadableLogged is how many unreadable lines are logged one by one. All are counted.
	unreadableLogged = 20
	// flushEvery is how often a sink is flushed while the replay follows and nothing arrives.
	flushEvery = time.Second
)

// Options of a replay.
type Options struct {
	Filter Filter
	// Follow continues with new events until the context ends.
	Follow bool
	// Limits of a batch: see fill.Limits.
	Limits fill.Limits
	// Narrow: read little ahead, see eventlog.Stream.Narrow. For many replays in one process.
	Narrow bool
	// Progress, if not nil, is called after each batch, one call at a time.
	Progress func(Progress)
	// Logger logs what no error reports: lines and messages that are ignored, and a database that is unavailable.
	// Defaults to slog.Default.
	Logger *slog.Logger
	// Remote is where events are read; nil = from the log itself.
	Remote *Remote
}

// Progress is the state of a replay.
type Progress struct {
	Summary
	// Total is the number of messages to read, counted when the replay started.
	Total uint64
	// Following: all of these are read, and the replay waits for new ones.
	Following bool
}

// Summary is the result of a replay.
type Summary struct {
	Events   uint64 `json:"events"`   // selected and written
	Messages uint64 `json:"messages"` // read
	// Unreadable lines are ignored: this version cannot parse them as events. The first unreadableLogged of them are
	// logged.
	Unreadable uint64 `json:"unreadable,omitempty"`
	// Foreign messages, which scrip did not write, are ignored.
	Foreign uint64 `json:"foreign,omitempty"`
}

// Run replays a log into a sink: all messages present when it starts, and with Follow new ones until ctx ends, which
// then is not an error. It returns the summary also with an error.
//
// Errors: *InvalidError for a wrong filter; eventlog.ErrNewerFormat if the log has a newer format than this program
// supports; eventlog.ErrLostTail and similar if the log is not the one that the sink was filled from; otherwise the
// sink's. Each sink documents what it keeps after an error.
func Run(ctx context.Context, js jetstream.JetStream, log topology.Log, sink Sink, opts Options) (Summary, error) {
	opts.Limits = opts.Limits.OrDefault()
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Progress == nil {
		opts.Progress = func(Progress) {}
	}
	r := &run{js: js, log: log, sink: sink, opts: opts}
	lanes := log.Lanes
	if opts.Remote != nil {
		lanes = 0 // not known
	}
	if err := opts.Filter.Check(lanes); err != nil {
		return r.done.Summary, err
	}
	if opts.Follow && (opts.Filter.Until != 0 || len(opts.Filter.To) > 0) {
		return r.done.Summary, invalid("follow", "it has no end; leave out --until and --to, or --follow")
	}
	return r.run(ctx)
}

// run is one replay.
type run struct {
	js   jetstream.JetStream
	log  topology.Log
	sink Sink
	opts Options

	mu      sync.Mutex // guards what follows and the sink; while following, each lane has a goroutine
	done    Progress
	waiting bool  // for the database
	failed  error // of the sink or of a lane while following
	batch   fill.Batch
	events  []Event
}

// run replays, and with Follow retries while the database is unavailable.
func (r *run) run(ctx context.Context) (Summary, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 2*time.Second
	for {
		before := r.done.Messages
		err := r.once(ctx)
		if r.done.Messages != before {
			pause.Reset()
		}
		switch {
		case err == nil, ctx.Err() != nil && r.opts.Follow:
			return r.done.Summary, nil
		case ctx.Err() != nil:
			return r.done.Summary, fmt.Errorf("stopped before the end: %w", context.Cause(ctx))
		case !r.opts.Follow || !isUnavailable(err):
			return r.done.Summary, err
		}
		if !r.waiting {
			r.waiting = true
			r.opts.Logger.WarnContext(ctx, "the database is unavailable; retrying", "err", err)
		}
		_ = natsx.Pause(ctx, pause.NextBackOff()) // the loop checks ctx
	}
}

// once reads from the sink's positions to the end of the log, then follows if Follow is set.
func (r *run) once(ctx context.Context) (err error) {
	positions, err := r.sink.Begin(ctx, r.log, &r.opts.Filter)
	if err != nil {
		return err
	}
	defer func() {
		cause := err
		if r.opts.Follow && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			cause = nil // ended as intended
		}
		err = errors.Join(err, r.sink.End(context.WithoutCancel(ctx), cause))
	}()
	if r.waiting {
		r.waiting = false
		r.opts.Logger.InfoContext(ctx, "the database is available again")
	}
	if r.opts.Remote != nil {
		return r.remote(ctx, positions)
	}
	var lanes []*reading
	r.done.Total, r.done.Following = r.done.Messages, false
	for n := range r.log.Lanes {
		if !r.opts.Filter.reads(n) {
			continue
		}
		l, err := r.start(ctx, n, positions[n])
		if err != nil {
			return err
		}
		r.done.Total += l.last - min(l.last, l.at.Sequence)
		lanes = append(lanes, l)
	}
	r.opts.Progress(r.done)
	for _, l := range lanes {
		if err := l.catchUp(ctx); err != nil {
			return err
		}
	}
	if err := r.sink.Flush(ctx); err != nil || !r.opts.Follow {
		return err
	}
	r.done.Following, r.failed = true, nil
	r.opts.Progress(r.done)
	g, within := errgroup.WithContext(ctx)
	for _, l := range lanes {
		g.Go(func() error { return l.follow(within) })
	}
	g.Go(func() error { return r.flush(within) })
	return g.Wait()
}

// flush flushes the sink once a second until ctx ends: it may have something to save although nothing arrives.
func (r *run) flush(ctx context.Context) error {
	for {
		if err := natsx.Pause(ctx, flushEvery); err != nil {
			return err
		}
		if err := r.alone(func() error { return r.sink.Flush(ctx) }); err != nil {
			return err
		}
	}
}

// alone runs f, which uses the sink, while no other goroutine does. After an error only End is called: those that wait for their
// turn get that error. At a StopError one lane waits, and the others go on.
func (r *run) alone(f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return r.failed
	}
	err := f()
	var stop *eventlog.StopError
	if !errors.As(err, &stop) {
		r.failed = err
	}
	return err
}

// Sink writes what is replayed. One Run uses it, one call at a time: Begin, then Write and Flush, then End.
type Sink interface {
	// Begin prepares for a log's events under a filter, and returns the position after which each lane continues. Lanes
	// without a position start where the filter starts. After an error End is not called.
	Begin(ctx context.Context, log topology.Log, filter *Filter) (map[int]eventlog.Position, error)
	// Write writes a batch, completely or not at all. After an error only End is called.
	Write(ctx context.Context, b *Batch) error
	// Flush makes what was written visible. It is called when no more messages have arrived, and once a second while
	// following.
	Flush(ctx context.Context) error
	// End releases all resources. cause is nil if all was replayed, or following was ended; otherwise it is the error.
	// An all-or-nothing sink removes its output if cause is not nil.
	End(ctx context.Context, cause error) error
}

// Position is the position of an event. With the log's UUID it identifies the event permanently.
type Position struct {
	Lane     int
	Sequence uint64 // of the event message
	Line     int    // within it, from 1; empty lines count
}

// Event is one event line. Position and wire.Event both have a Sequence and a Line (those of wire.Event belong to
// the command that a command.rejected refers to): use e.Position.Sequence.
type Event struct {
	Position
	wire.Event
	// Raw is the line as it is in the log, without its newline.
	Raw []byte
}

// Batch holds the events of one lane that passed the filter, from whole messages in log order. A sink must not retain
// any part of it after Write returns.
type Batch struct {
	Lane int
	// First and Last are the sequences of the first and last message in the batch, whether or not an event of theirs
	// passed the filter.
	First, Last uint64
	Events      []Event
	// To is the position after which the lane continues once the batch is written.
	To eventlog.Position
	// Clock is the lane time at To.
	Clock wire.Instant
}
