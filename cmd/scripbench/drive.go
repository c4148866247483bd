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

// until waits for an instant.
func until(ctx context.Context, at time.Time) error { return natsx.Pause(ctx, time.Until(at)) }

// patience is how long answers may take after the last operation was sent.
const patience = time.Minute

// driven is the result of drive.
type driven struct {
	answers []answer
	took    time.Duration
	latency report.Latency
}

// drive runs n operations of a job, or as many as are sent within the limit; those in flight are waited for. The loop is
// closed: latency counts from the send, so that a stall counts for operations in flight only.
func drive(ctx context.Context, j job, n int, limit time.Duration) (driven, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+patience)
	defer cancel()
	d := &driver{job: j, limit: limit, lat: report.NewLatencies(), answers: make([]answer, n)}
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
	limit   time.Duration
	lat     *report.Latencies
	answers []answer
	started time.Time
	took    time.Duration
	next    atomic.Int64 // operation to send next
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
				sent := time.Since(d.started)
				from := int(d.next.Add(int64(d.batch))) - d.batch
				to := min(from+d.batch, len(d.answers))
				if from >= to || sent >= d.limit {
					return nil
				}
				if err := c.send(ctx, from, to, d.answers); err != nil {
					return fmt.Errorf("operations %d to %d: %w", from, to-1, err)
				}
				d.lat.Record(time.Since(d.started)-sent, to-from)
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
	for i := range d.answers {
		sent := time.Since(d.started)
		if sent >= d.limit {
			break
		}
		inFlight.Add(1)
		err := d.job.stream(ctx, i, func(a answer) {
			answered := time.Since(d.started)
			d.lat.Record(answered-sent, 1)
			d.answers[i] = a
			last.Store(int64(answered))
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
