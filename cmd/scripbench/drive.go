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

// job is one system ready to do one plan: by callers that wait, or as a stream.
type job struct {
	// inFlight is how many operations are under way at most.
	inFlight int
	// callers ask at once, each for batch operations in one go, and wait for the answers.
	callers, batch int
	// caller makes number i of them.
	caller func(ctx context.Context, i int) (caller, error)
	// stream, in place of callers, takes operation i and calls done later. It waits while too many are under way.
	stream func(ctx context.Context, i int, done func(answer)) error
	// check asks the server itself if it holds what was answered. nil = there is nothing to ask.
	check func(ctx context.Context, t tally) error
	// close gives back what the job holds.
	close func()
}

// caller asks for operations [from, to), waits, and writes their answers.
type caller interface {
	ask(ctx context.Context, from, to int, answers []answer) error
	close()
}

// pace says how long and how fast to ask.
type pace struct {
	n int
	// limit ends a run early; what is under way is waited for.
	limit time.Duration
	// rate, if not 0, is the number of operations a second of an open loop: each has an instant at which it is meant to
	// be sent, and its latency counts from there, however late the system lets it go. 0 is a closed loop: a caller asks
	// when it was answered, and its latency counts from when it asked, so that a stall is seen by those under way only.
	rate float64
	// stop, if not nil, ends a stream early when it is closed, as limit does.
	stop <-chan struct{}
}

// driven is what the driver saw.
type driven struct {
	answers []answer
	took    time.Duration
	latency Latency
}

// patience is how long answers may take after the last was asked for.
const patience = time.Minute

// drive has a job done.
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
	next int        // operation to ask for next
}

// meant is when operation i of an open loop is to be sent, after the beginning.
func (d *driver) meant(i int) time.Duration {
	return time.Duration(float64(i) / d.rate * float64(time.Second))
}

// take gives a caller its next operations, none when the run is over. In an open loop it says when the first is meant
// to be sent; the others are those that have become due by now.
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
				asked := time.Since(d.begun)
				if err := c.ask(ctx, from, to, d.answers); err != nil {
					return fmt.Errorf("operations %d to %d: %w", from, to-1, err)
				}
				answered := time.Since(d.begun)
				if d.rate == 0 {
					d.lat.recordMany(i, answered-asked, to-from)
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

// errUnanswered is what is left when patience is over.
var errUnanswered = errors.New("not answered")

// stream hands in operations from one goroutine.
func (d *driver) stream(ctx context.Context) error {
	asked := make([]time.Duration, d.n)
	var under sync.WaitGroup
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
		asked[i] = now
		under.Add(1)
		err := d.job.stream(ctx, i, func(a answer) {
			now := time.Since(d.begun)
			d.lat.record(i, now-asked[i])
			d.answers[i] = a
			last.Store(int64(now))
			under.Done()
		})
		if err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	done := make(chan struct{})
	go func() { under.Wait(); close(done) }()
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
