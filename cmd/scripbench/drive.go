package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
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

// caller sends operations [from, to), waits, and writes their answers.
type caller interface {
	send(ctx context.Context, from, to int, answers []answer) error
	close()
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
}

// driven is the result of drive.
type driven struct {
	answers []answer
	took    time.Duration
	latency Latency
}

// patience is how long answers may take after the last operation was sent.
const patience = time.Minute

// drive runs a job.
func drive(ctx context.Context, j job, p pace) (driven, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit+patience)
	defer cancel()
	d := &driver{job: j, pace: p, lat: newLatencies(), answers: make([]answer, p.n)}
	var err error
	if j.stream != nil {
		err = d.stream(ctx)
	} else {
		err = d.callers(ctx)
	}
	if err != nil {
		return driven{}, err
	}
	return driven{answers: d.answers, took: d.took, latency: d.lat.result()}, nil
}

type driver struct {
	job
	pace
	lat     *latencies
	answers []answer
	begun   time.Time
	took    time.Duration

	mu   sync.Mutex // guards next
	next int        // operation to send next
}

// meant is when operation i of an open loop is to be sent, after the beginning.
func (p pace) meant(i int) time.Duration {
	return time.Duration(float64(i) / p.rate * float64(time.Second))
}

// take returns a caller's next operations, none when the run is over. In an open loop, at is when the first is to be sent;
// the others are those that are due by now.
func (d *driver) take() (from, to int, at time.Duration) {
	now := time.Since(d.begun)
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
	all := make([]caller, d.job.callers)
	defer func() {
		for _, c := range all {
			if c != nil {
				c.close()
			}
		}
	}()
	for i := range all {
		var err error
		if all[i], err = d.caller(ctx, i); err != nil {
			return fmt.Errorf("caller %d: %w", i, err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	d.begun = time.Now()
	for i, c := range all {
		g.Go(func() error {
			for {
				from, to, at := d.take()
				if from == to {
					return nil
				}
				if err := until(ctx, d.begun.Add(at)); err != nil {
					return err
				}
				sent := time.Since(d.begun)
				if err := c.send(ctx, from, to, d.answers); err != nil {
					return fmt.Errorf("operations %d to %d: %w", from, to-1, err)
				}
				answered := time.Since(d.begun)
				if d.rate == 0 {
					d.lat.recordMany(i, answered-sent, to-from)
					continue
				}
				for op := from; op < to; op++ {
					d.lat.record(i, answered-d.meant(op))
				}
			}
		})
	}
	err := g.Wait()
	d.took = time.Since(d.begun)
	return err
}

// errUnanswered is the error after patience.
var errUnanswered = errors.New("not answered")

// stream sends operations from one goroutine.
func (d *driver) stream(ctx context.Context) error {
	sent := make([]time.Duration, d.n)
	var inFlight sync.WaitGroup
	var last atomic.Int64
	d.begun = time.Now()
	for i := range d.n {
		now := time.Since(d.begun)
		if d.rate > 0 {
			at := d.meant(i)
			if at >= d.limit {
				break
			}
			if at > now {
				if err := until(ctx, d.begun.Add(at)); err != nil {
					return err
				}
			}
			now = at
		}
		if now >= d.limit || d.stopped() {
			break
		}
		sent[i] = now
		inFlight.Add(1)
		err := d.job.stream(ctx, i, func(a answer) {
			now := time.Since(d.begun)
			d.lat.record(i, now-sent[i])
			d.answers[i] = a
			last.Store(int64(now))
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

// until waits for an instant.
func until(ctx context.Context, at time.Time) error {
	wait := time.Until(at)
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
