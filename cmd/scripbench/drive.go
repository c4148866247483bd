package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// job is one system ready for one plan: with callers that wait, or as a stream.
type job struct {
	// inFlight is how many operations are in flight at most.
	inFlight int
	// callers send concurrently, each batch operations at once, and wait for the answers.
	callers, batch int
	// caller makes number i of them.
	caller func(ctx context.Context, i int) (caller, error)
	// stream, in place of callers, takes operation i and calls done later. It blocks while too many are in flight.
	stream func(ctx context.Context, i int, done func(answer)) error
	// check compares the server's state with the answers. nil = no check.
	check func(ctx context.Context, t tally) error
	// close releases the job's resources.
	close func()
}

// sender sends operations [from, to), waits, and writes their answers.
type sender func(ctx context.Context, from, to int, answers []answer) error

// caller is a sender; close, which may be nil, releases what it has.
type caller struct {
	send  sender
	close func()
}

// each sends one operation after the other.
func each(one func(ctx context.Context, i int) answer) sender {
	return func(ctx context.Context, from, to int, answers []answer) error {
		for i := from; i < to; i++ {
			answers[i] = one(ctx, i)
		}
		return nil
	}
}

// pace is how many operations to send, for how long and how fast.
type pace struct {
	n int
	// limit ends a run early; operations in flight are waited for.
	limit time.Duration
	// rate, if not 0, is the number of operations a second of an open loop: each has an instant at which it is to be
	// sent, and its latency counts from there, however late it is sent. 0 is a closed loop: a caller sends after it was
	// answered, and latency counts from the send, so that a stall counts for operations in flight only.
	rate float64
	// stop, if not nil, ends a stream early when it is closed, as limit does.
	stop <-chan struct{}
	// sent, if not nil, is called for each operation of a stream when it is sent, with the instant at which it was to be
	// sent; what it returns is called with the answer's latency from there.
	sent func(i int, due time.Time) (answered func(took time.Duration))
}

// meant is when operation i of an open loop is to be sent, after the start.
func (p pace) meant(i int) time.Duration {
	return time.Duration(float64(i) / p.rate * float64(time.Second))
}

// until waits for an instant.
func until(ctx context.Context, at time.Time) error { return natsx.Pause(ctx, time.Until(at)) }

// driven is the result of drive.
type driven struct {
	answers []answer
	took    time.Duration
	latency report.Latency
}

// patience is how long answers may take after the last operation was sent.
const patience = time.Minute

// drive runs a job.
func drive(ctx context.Context, j job, p pace) (driven, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit+patience)
	defer cancel()
	d := &driver{job: j, pace: p, lat: report.NewLatencies(), answers: make([]answer, p.n)}
	send := d.callers
	if j.stream != nil {
		send = d.stream
	}
	if err := send(ctx); err != nil {
		return driven{}, err
	}
	return driven{answers: d.answers, took: d.took, latency: d.lat.Result()}, nil
}

type driver struct {
	job
	pace
	lat     *report.Latencies
	answers []answer
	started time.Time
	took    time.Duration

	mu   sync.Mutex // guards next
	next int        // operation to send next
}

// take returns a caller's next operations, none when the run is over. In an open loop, at is when the first is to be sent;
// the others are those that are due by now.
func (d *driver) take() (from, to int, at time.Duration) {
	now := time.Since(d.started)
	d.mu.Lock()
	defer d.mu.Unlock()
	from = d.next
	if from >= d.n || now >= d.limit {
		return 0, 0, 0
	}
	to = min(from+d.batch, d.n)
	if d.rate > 0 {
		at = d.meant(from)
		if at >= d.limit {
			return 0, 0, 0
		}
		to = min(to, max(from+1, int(now.Seconds()*d.rate)+1))
	}
	d.next = to
	return from, to, at
}

func (d *driver) callers(ctx context.Context) error {
	var all []caller
	defer func() {
		for _, c := range all {
			if c.close != nil {
				c.close()
			}
		}
	}()
	for i := range d.job.callers {
		c, err := d.caller(ctx, i)
		if err != nil {
			return fmt.Errorf("caller %d: %w", i, err)
		}
		all = append(all, c)
	}
	g, ctx := errgroup.WithContext(ctx)
	d.started = time.Now()
	for _, c := range all {
		g.Go(func() error {
			for {
				from, to, at := d.take()
				if from == to {
					return nil
				}
				if err := until(ctx, d.started.Add(at)); err != nil {
					return err
				}
				sent := time.Since(d.started)
				if err := c.send(ctx, from, to, d.answers); err != nil {
					return fmt.Errorf("operations %d to %d: %w", from, to-1, err)
				}
				answered := time.Since(d.started)
				if d.rate == 0 {
					d.lat.Record(answered-sent, to-from)
					continue
				}
				for op := from; op < to; op++ {
					d.lat.Record(answered-d.meant(op), 1)
				}
			}
		})
	}
	err := g.Wait()
	d.took = time.Since(d.started)
	return err
}

// errUnanswered is the error after patience.
var errUnanswered = errors.New("not answered")

// stream sends operations from one goroutine.
func (d *driver) stream(ctx context.Context) error {
	var inFlight sync.WaitGroup
	var last atomic.Int64
	d.started = time.Now()
	for i := range d.n {
		now := time.Since(d.started)
		if d.rate > 0 {
			at := d.meant(i)
			if at < d.limit && at > now {
				if err := until(ctx, d.started.Add(at)); err != nil {
					return err
				}
			}
			now = at
		}
		if now >= d.limit || d.stopped() {
			break
		}
		answered := func(time.Duration) {}
		if d.sent != nil {
			answered = d.sent(i, d.started.Add(now))
		}
		inFlight.Add(1)
		err := d.job.stream(ctx, i, func(a answer) {
			then := time.Since(d.started)
			d.lat.Record(then-now, 1)
			answered(then - now)
			d.answers[i] = a
			last.Store(int64(then))
			inFlight.Done()
		})
		if err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	done := make(chan struct{})
	go func() { inFlight.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return errors.Join(errUnanswered, context.Cause(ctx))
	}
	d.took = time.Duration(last.Load())
	return nil
}

func (p pace) stopped() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

// claimAt has scrip claim a plan, at a pace, and checks the answers. It returns how many were sent.
func (o options) claimAt(ctx context.Context, b *bench, p *plan, at pace) (n int, l report.Latency, err error) {
	j, err := openScrip(ctx, b, p, 1)
	if err != nil {
		return 0, l, err
	}
	defer j.close()
	d, err := drive(ctx, j, at)
	if err != nil {
		return 0, l, err
	}
	t, err := tallyOf(p, d.answers)
	return t.done, d.latency, err
}
