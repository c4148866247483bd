package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	defaultMaxLines = 20_000
	defaultMaxBytes = 8 << 20
	// takeMessages is how many messages are taken from a reader at a time while a batch is filled: at most 8 MiB.
	takeMessages = 16
	// unreadableLogged is how many unreadable lines are logged one by one. All are counted.
	unreadableLogged = 20
)

// Options of a replay.
type Options struct {
	Filter Filter
	// Follow continues with new events until the context ends.
	Follow bool
	// MaxLines and MaxBytes: a batch is complete once it has that many lines or payload bytes. It may exceed them,
	// because it consists of whole messages (at most 512 KiB each), taken up to 16 at a time. Default to 20,000 and 8
	// MiB.
	MaxLines, MaxBytes int
	// Progress, if not nil, is called after each batch, by the goroutine of Run.
	Progress func(Progress)
	// Logger logs what no error reports: lines and messages that are ignored, and a database that is unavailable.
	// Defaults to slog.Default.
	Logger *slog.Logger
}

// Progress is the state of a replay.
type Progress struct {
	Summary
	// Total is the number of messages to read, counted when the replay began.
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

// Run replays a log into a sink: all messages present when it begins, and with Follow new ones until ctx ends, which
// then is not an error. It returns the summary also with an error.
//
// Errors: *InvalidError for a wrong filter; eventlog.ErrNewerFormat if the log has a newer format than this program
// supports; eventlog.ErrLostTail and similar if the log is not the one that the sink was filled from; otherwise the
// sink's. Each sink documents what it keeps after an error.
func Run(ctx context.Context, js jetstream.JetStream, log topology.Log, sink Sink, opts Options) (Summary, error) {
	if opts.MaxLines == 0 {
		opts.MaxLines = defaultMaxLines
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = defaultMaxBytes
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Progress == nil {
		opts.Progress = func(Progress) {}
	}
	r := &run{js: js, log: log, sink: sink, opts: opts}
	if err := opts.Filter.Check(log.Lanes); err != nil {
		return r.done.Summary, err
	}
	if opts.Follow && (opts.Filter.Until != 0 || len(opts.Filter.To) > 0) {
		return r.done.Summary, invalid("follow", "it has no end; leave out --until and --to, or --follow")
	}
	return r.run(ctx)
}

// run is one replay, owned by the goroutine of Run.
type run struct {
	js   jetstream.JetStream
	log  topology.Log
	sink Sink
	opts Options
	done Progress

	messages []eventlog.Message
	events   []Event
}

// run replays, and with Follow retries while the database is unavailable.
func (r *run) run(ctx context.Context) (Summary, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 2*time.Second
	waiting := false
	for {
		before := r.done.Messages
		err := r.once(ctx, func() {
			if waiting {
				waiting = false
				r.opts.Logger.InfoContext(ctx, "the database is available again")
			}
		})
		if r.done.Messages != before {
			pause.Reset()
		}
		switch {
		case err == nil:
			return r.done.Summary, nil
		case ctx.Err() != nil && r.opts.Follow:
			return r.done.Summary, nil
		case ctx.Err() != nil:
			return r.done.Summary, fmt.Errorf("stopped before the end: %w", context.Cause(ctx))
		case !r.opts.Follow || !isUnavailable(err):
			return r.done.Summary, err
		}
		if !waiting {
			waiting = true
			r.opts.Logger.WarnContext(ctx, "the database is unavailable; retrying", "err", err)
		}
		_ = topology.Pause(ctx, pause.NextBackOff()) // the loop checks ctx
	}
}

// once reads from the sink's positions to the end of the log, then follows if Follow is set.
func (r *run) once(ctx context.Context, began func()) (err error) {
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
	began()
	var lanes []*reading
	r.done.Total, r.done.Following = r.done.Messages, false
	for n := range r.log.Lanes {
		if !r.opts.Filter.reads(n) {
			continue
		}
		s, err := r.start(ctx, n, positions[n])
		if err != nil {
			return err
		}
		r.done.Total += s.last - min(s.last, s.after.Sequence)
		lanes = append(lanes, &reading{section: s, run: r, at: s.after, matcher: newMatcher(&r.opts.Filter)})
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
	r.done.Following = true
	r.opts.Progress(r.done)
	return r.follow(ctx, lanes)
}

// follow reads all lanes as events arrive.
func (r *run) follow(ctx context.Context, lanes []*reading) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	wake := make(chan *reading)
	resume := make(chan resumed)
	watching := 0
	defer func() {
		cancel()
		for range watching {
			<-ended
		}
	}()
	for _, l := range lanes {
		if err := l.open(ctx); err != nil {
			return err
		}
		defer l.reader.Close()
		watching++
		go func() {
			defer func() { ended <- struct{}{} }()
			l.watch(ctx, wake)
		}()
	}
	saving, _ := r.sink.(saver)
	var later <-chan time.Time
	for {
		select {
		case <-later:
		case at := <-resume:
			at.lane.waits = false
			at.lane.reader.Resume(at.skips)
		case l := <-wake:
			for !l.waits {
				some, err := l.take(ctx, 0)
				var stop *eventlog.StopError
				if errors.As(err, &stop) {
					r.opts.Logger.WarnContext(ctx, "this lane stopped at a message; other lanes continue, and this one continues when the message is skipped (scrip serve --skip-message)", "lane", l.lane, "sequence", stop.Sequence, "err", err)
					l.waits = true
					watching++
					go func() {
						defer func() { ended <- struct{}{} }()
						l.awaitSkip(ctx, err, resume)
					}()
					break
				}
				if err != nil {
					return err
				}
				if !some {
					break
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := r.sink.Flush(ctx); err != nil {
			return err
		}
		if later = nil; saving != nil {
			if due := saving.due(); due > 0 {
				later = time.After(due)
			}
		}
	}
}
