package push

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
)

// returnGrace is how long a function may take to return after its context has ended, before it counts as hanging. It is
// never longer than its timeout.
const returnGrace = time.Second

var (
	errHangs  = errors.New("the function hangs: it has not returned although its context ended")
	errGoexit = errors.New("the function ended its goroutine")
	errEnding = errors.New("the sender is ending")
)

// caller calls the function. A panic, a hang or a Goexit of the function fails one call and nothing else.
type caller struct {
	push    Func
	batch   int
	timeout time.Duration
	hung    atomic.Int64 // calls that were given up and have not returned
}

// try passes all reminders to the function, in batches, and returns those that were not delivered with the last error. A
// batch that fails does not keep the others from being delivered.
func (c *caller) try(ctx context.Context, all []Reminder) (left []Reminder, cause error) {
	for batch := range slices.Chunk(all, c.batch) {
		if ctx.Err() != nil {
			left, cause = append(left, batch...), errEnding
			continue
		}
		if err := c.call(ctx, slices.Clone(batch)); err != nil {
			left, cause = append(left, undelivered(batch, err)...), err
		}
	}
	return left, cause
}

// undelivered returns the reminders of a batch that an error leaves undelivered.
func undelivered(batch []Reminder, err error) []Reminder {
	var some *Partial
	if !errors.As(err, &some) || len(some.Failed) == 0 {
		return batch
	}
	failed := slices.Compact(slices.Sorted(slices.Values(some.Failed)))
	if failed[0] < 0 || failed[len(failed)-1] >= len(batch) {
		return batch
	}
	left := make([]Reminder, len(failed))
	for i, n := range failed {
		left[i] = batch[n]
	}
	return left
}

// call is one call of the function. A call that does not return in time continues in its goroutine, which cannot be ended
// from here; its effect is not known.
func (c *caller) call(ctx context.Context, batch []Reminder) error {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	result := make(chan error, 1)
	var fate atomic.Bool // true: it returned, or it was given up
	go func() {
		err := errGoexit
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("the function panicked: %v\n%s", v, debug.Stack())
			}
			result <- err
			if !fate.CompareAndSwap(false, true) {
				c.hung.Add(-1)
			}
		}()
		err = c.push(limited, batch)
	}()
	select {
	case err := <-result:
		return c.explain(limited, err)
	case <-limited.Done():
	}
	last := time.NewTimer(min(returnGrace, c.timeout))
	defer last.Stop()
	select {
	case err := <-result:
		return c.explain(limited, err)
	case <-last.C:
	}
	c.hung.Add(1)
	if fate.CompareAndSwap(false, true) {
		return c.explain(limited, errHangs)
	}
	c.hung.Add(-1)
	return c.explain(limited, <-result)
}

// explain adds the reason to a bare "context deadline exceeded".
func (c *caller) explain(limited context.Context, err error) error {
	switch {
	case err == nil, limited.Err() == nil:
		return err
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return fmt.Errorf("not done within %s: %w", c.timeout, err)
	}
	return fmt.Errorf("%w: %w", errEnding, err)
}
