package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	defaultMaxLines = 20_000
	defaultMaxBytes = 8 << 20
	// takeMessages is how many messages are taken from a reader at a time while a batch is filled: 8 MiB at most.
	takeMessages = 16
	// unreadableLogged is how many unreadable lines are logged one by one. All are counted.
	unreadableLogged = 20
)

// Options of a replay.
type Options struct {
	Filter Filter
	// Follow goes on with new events until the context ends.
	Follow bool
	// MaxLines and MaxBytes say when a batch is complete: once it has as many lines or payload bytes. It may have some
	// more, being made of whole messages (512 KiB each at most), taken up to 16 at a time. Default to 20,000 and 8 MiB.
	MaxLines, MaxBytes int
	// Progress, if given, is called after each batch, by the goroutine of Run.
	Progress func(Progress)
	// Logger takes what a person should know and no error tells: lines and messages passed over, a database that is
	// waited for. Defaults to slog.Default.
	Logger *slog.Logger
}

// Progress is how far a replay is.
type Progress struct {
	Summary
	// Total is how many messages there were to read when it began.
	Total uint64
	// Following says that all of these are read, and new ones waited for.
	Following bool
}

// Summary is what a replay did.
type Summary struct {
	Events   uint64 `json:"events"`   // that passed the filter and were kept
	Messages uint64 `json:"messages"` // read
	// Unreadable lines are left out: they are no events that this version knows. Each of the first ones is logged.
	Unreadable uint64 `json:"unreadable,omitempty"`
	// Foreign messages, that scrip did not write, are passed over.
	Foreign uint64 `json:"foreign,omitempty"`
}

// Run replays a log into a sink: all that is there when it begins, and with Follow what comes, until ctx ends, which
// then is no error. It returns what it did, in any case.
//
// Errors: *InvalidError for a wrong filter; eventlog.ErrNewerFormat where the log goes on in a format newer than this
// program; eventlog.ErrLostTail and its kin where the log is not the one a sink was filled from; else the sink's. What
// the sink keeps is told by its own description.
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
		return r.done.Summary, invalid("follow", "what is followed has no end; leave out --until and --to, or --follow")
	}
	return r.run(ctx)
}

// run is one replay. All of it belongs to the goroutine of Run.
type run struct {
	js   jetstream.JetStream
	log  topology.Log
	sink Sink
	opts Options
	done Progress

	messages []eventlog.Message
	events   []Event
}

// run replays, again and again while a followed database is away.
func (r *run) run(ctx context.Context) (Summary, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 2*time.Second
	waiting := false
	for {
		before := r.done.Messages
		err := r.once(ctx, func() {
			if waiting {
				waiting = false
				r.opts.Logger.InfoContext(ctx, "the database is back")
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
		case !r.opts.Follow || !isAway(err):
			return r.done.Summary, err
		}
		if !waiting {
			waiting = true
			r.opts.Logger.WarnContext(ctx, "the database is away; waiting for it", "err", err)
		}
		_ = topology.Pause(ctx, pause.NextBackOff()) // the loop looks at ctx
	}
}

// once goes from where the sink is to the end, and on from there if asked to follow.
func (r *run) once(ctx context.Context, began func()) (err error) {
	places, err := r.sink.Begin(ctx, r.log, &r.opts.Filter)
	if err != nil {
		return err
	}
	defer func() {
		cause := err
		if r.opts.Follow && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			cause = nil // ended as it was meant to
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
		s, err := r.start(ctx, n, places[n])
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

// reading is a lane being read.
type reading struct {
	section
	run     *run
	matcher *matcher
	reader  *eventlog.Reader
	at      eventlog.Position // behind the last message taken
	over    bool              // the filter wants nothing further
	foreign uint64            // of reader, counted already
	waits   bool              // at a message that an operator may have passed over
}

func (l *reading) open(ctx context.Context) (err error) {
	l.reader, err = l.stream.Open(ctx, l.run.log.UUID, l.at, eventlog.ReaderOptions{Logger: l.run.opts.Logger})
	l.foreign = 0
	return explainPlace(l.at, err)
}

// catchUp reads to the end of the section.
func (l *reading) catchUp(ctx context.Context) error {
	if l.at.Sequence >= l.last {
		return nil
	}
	if err := l.open(ctx); err != nil {
		return err
	}
	defer l.reader.Close()
	for !l.over && l.reader.Sequence() < l.last {
		some, err := l.take(ctx, l.last)
		if err != nil {
			return err
		}
		if some || l.reader.Sequence() >= l.last {
			continue
		}
		select {
		case <-l.reader.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
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
					r.opts.Logger.WarnContext(ctx, "a message stops this lane; the others go on, and so does this one once the message is passed over (scrip serve --skip-message)", "lane", l.lane, "sequence", stop.Sequence, "err", err)
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

// watch passes on that a lane has something.
func (l *reading) watch(ctx context.Context, wake chan<- *reading) {
	for {
		select {
		case <-l.reader.Ready():
		case <-ctx.Done():
			return
		}
		select {
		case wake <- l:
		case <-ctx.Done():
			return
		}
	}
}

// resumed is a lane that may go on.
type resumed struct {
	lane  *reading
	skips eventlog.Skips
}

// awaitSkip passes on that an operator has the message passed over at which the lane stopped.
func (l *reading) awaitSkip(ctx context.Context, cause error, resume chan<- resumed) {
	skips, err := l.stream.AwaitSkip(ctx, cause)
	if err != nil {
		return
	}
	select {
	case resume <- resumed{l, skips}:
	case <-ctx.Done():
	}
}

// take writes what has arrived, one batch at most, not beyond message last (0 = no end). some says whether there was
// something.
func (l *reading) take(ctx context.Context, last uint64) (some bool, err error) {
	r := l.run
	clear(r.messages)
	r.messages = r.messages[:0]
	lines, bytes := 0, 0
	for lines < r.opts.MaxLines && bytes < r.opts.MaxBytes {
		most, had := min(takeMessages, r.opts.MaxLines-lines), len(r.messages)
		if last != 0 {
			most = int(min(uint64(most), last-min(last, l.reader.Sequence())))
		}
		if most > 0 {
			r.messages, err = l.reader.TryBatch(most, r.messages)
		}
		if err != nil && len(r.messages) == 0 {
			return false, explainPlace(l.at, fmt.Errorf("lane %d: %w", l.lane, err))
		}
		if err != nil || len(r.messages) == had {
			break // an error stays, and is told once what came before it is kept
		}
		for i := range r.messages[had:] {
			m := &r.messages[had+i]
			bytes += len(m.Payload)
			for range eventlog.Lines(m.Payload) {
				lines++
			}
		}
	}
	r.done.Foreign += l.reader.Foreign() - l.foreign
	l.foreign = l.reader.Foreign()
	if len(r.messages) == 0 {
		return false, nil
	}
	return true, l.write(ctx)
}

// write hands the messages taken to the sink.
func (l *reading) write(ctx context.Context) error {
	r := l.run
	clear(r.events)
	r.events = r.events[:0]
	silent := 0
	for i := range r.messages {
		m := &r.messages[i]
		l.decode(m, m.Sequence <= l.silent)
		if m.Sequence <= l.silent {
			silent++
		}
		// Later messages hold later events.
		if until := r.opts.Filter.Until; until != 0 && wire.At(m.LaneTime) >= until {
			l.over = true
			r.messages = r.messages[:i+1]
			break
		}
	}
	last := &r.messages[len(r.messages)-1]
	to := last.Position(r.log.UUID, l.lane)
	if silent < len(r.messages) {
		b := Batch{Lane: l.lane, First: r.messages[silent].Sequence, Last: last.Sequence, Events: r.events, To: to, Clock: wire.At(last.LaneTime)}
		if err := r.sink.Write(ctx, &b); err != nil {
			return err
		}
	}
	l.at = to
	r.done.Events += uint64(len(r.events))
	r.done.Messages += uint64(len(r.messages))
	r.done.Total = max(r.done.Total, r.done.Messages)
	r.opts.Progress(r.done)
	return nil
}

// decode adds the events of a message that pass the filter; with silent they are only looked at.
func (l *reading) decode(m *eventlog.Message, silent bool) {
	r := l.run
	for n, line := range eventlog.Lines(m.Payload) {
		if !l.matcher.may(line) {
			continue
		}
		r.events = append(r.events, Event{})
		e := &r.events[len(r.events)-1]
		err := wire.ParseEvent(line, &e.Event)
		if err == nil && e.At <= 0 {
			err = errors.New("the event line has no at")
		}
		pass := err == nil && l.matcher.match(&e.Event) && !silent
		if pass {
			e.Place, e.Raw = Place{l.lane, m.Sequence, n + 1}, line
			if mask := r.opts.Filter.Mask; mask != nil {
				mask.event(e)
			}
			continue
		}
		r.events = r.events[:len(r.events)-1]
		if err != nil && !silent {
			if r.done.Unreadable++; r.done.Unreadable <= unreadableLogged {
				r.opts.Logger.WarnContext(context.Background(), "a line that this version cannot read is left out",
					"lane", l.lane, "sequence", m.Sequence, "line", n+1, "err", err)
			}
		}
	}
}
