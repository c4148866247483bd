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

const (
	// returnGrace is how long a function may take to return after its context has ended, before it counts as hanging. It is
	// never longer than its timeout.
	returnGrace = time.Second
	// retryAfterMost bounds Away.RetryAfter.
	retryAfterMost = 24 * time.Hour
)

var (
	errHangs  = errors.New("the function hangs: it has not returned although its context ended")
	errGoexit = errors.New("the function ended its goroutine")
	errEnding = errors.New("the sender is ending")
)

// caller calls the function. A panic, a hang or a Goexit of the function fails one call and nothing else.
type caller struct {
	push    func(context.Context, []item) error
	batch   int
	timeout time.Duration
	// optedOut returns which customers want no reminders; nil = all calls are made.
	optedOut func(ctx context.Context, customers []string) (map[string]bool, error)
	suspects suspects
	hung     atomic.Int64 // calls that were given up and have not returned
}

// result is what came of the calls for some items.
type result struct {
	left       []item // not delivered
	dropped    int    // customers who want no reminders
	cause      error  // the last one, nil = all were delivered
	gateway    gatewayState
	refused    bool          // the gateway answered that it does not take some: a failed try, whatever others do
	retryAfter time.Duration // of the gateway
	mixed      bool          // a call for several campaigns failed as a whole, so none of them is to blame
	final      bool          // the gateway will not take any of what is left
}

// try passes all items to the function, one batch after the other. A batch that fails does not keep the others from being
// delivered, unless the gateway is away.
func (c *caller) try(ctx context.Context, all []item, split bool) (r result) {
	for _, batch := range c.batches(all, split) {
		if r.gateway == away {
			r.left = append(r.left, batch...)
			continue
		}
		r.merge(c.one(ctx, batch))
	}
	return r
}

// batches divides items; with split a batch is of one campaign.
func (c *caller) batches(all []item, split bool) (list [][]item) {
	for _, part := range campaigns(all, split) {
		list = slices.AppendSeq(list, slices.Chunk(part, c.batch))
	}
	return list
}

// campaigns divides items by campaign, in the order of the first of each; without split it divides nothing.
func campaigns(all []item, split bool) [][]item {
	if !split {
		return [][]item{all}
	}
	var parts [][]item
	at := map[string]int{}
	for _, it := range all {
		n, known := at[it.Campaign]
		if !known {
			n = len(parts)
			at[it.Campaign] = n
			parts = append(parts, nil)
		}
		parts[n] = append(parts[n], it)
	}
	return parts
}

// one passes what is wanted of one batch to the function.
func (c *caller) one(ctx context.Context, batch []item) (r result) {
	if ctx.Err() != nil {
		return result{left: batch, cause: errEnding}
	}
	all := batch
	batch, r.dropped, r.cause = c.wanted(ctx, all)
	if r.cause != nil {
		r.left = all
	}
	if len(batch) == 0 {
		return r
	}
	err := c.call(ctx, slices.Clone(batch))
	one := !slices.ContainsFunc(batch, func(it item) bool { return it.Campaign != batch[0].Campaign })
	if err == nil {
		r.gateway = answered
		for i := range batch {
			if i == 0 || !one {
				c.suspects.count(batch[i].Campaign, true)
			}
		}
		return r
	}
	r.left, r.cause = undelivered(batch, err), err
	var gone *Away
	var refused *Refused
	var some *Partial
	r.final = errors.As(err, &refused) && refused.Final
	switch {
	case errors.Is(err, errEnding):
		return r
	case errors.As(err, &gone):
		r.gateway, r.retryAfter = away, min(gone.RetryAfter, retryAfterMost)
		return r
	case len(r.left) < len(batch):
		r.gateway, r.refused = answered, true
		c.suspects.count(batch[0].Campaign, true)
		return r
	case refused != nil, errors.As(err, &some):
		r.gateway, r.refused = answered, true
	default:
		r.gateway = failed
	}
	if one {
		c.suspects.count(batch[0].Campaign, false)
	}
	r.mixed = !one
	return r
}

// merge adds what came of another batch.
func (r *result) merge(o result) {
	if o.cause != nil {
		r.final = o.final && (r.cause == nil || r.final)
		r.cause = o.cause
	}
	r.left, r.dropped = append(r.left, o.left...), r.dropped+o.dropped
	switch {
	case r.gateway == away, o.gateway == untried, o.gateway == failed && r.gateway == answered:
	default:
		r.gateway = o.gateway
	}
	r.refused, r.mixed = r.refused || o.refused, r.mixed || o.mixed
	r.retryAfter = max(r.retryAfter, o.retryAfter)
}

// cutOff reports whether nothing failed: not all were tried, since Run is to end, or since it is not known who wants no reminders.
func (r *result) cutOff() bool {
	return (errors.Is(r.cause, errEnding) || errors.Is(r.cause, errUnchecked)) && !r.refused && (r.gateway == untried || r.gateway == answered)
}

// undelivered returns the items of a batch that an error leaves undelivered.
func undelivered(batch []item, err error) []item {
	var some *Partial
	if !errors.As(err, &some) || len(some.Failed) == 0 {
		return batch
	}
	bad := slices.Compact(slices.Sorted(slices.Values(some.Failed)))
	if bad[0] < 0 || bad[len(bad)-1] >= len(batch) {
		return batch
	}
	left := make([]item, len(bad))
	for i, n := range bad {
		left[i] = batch[n]
	}
	return left
}

// call is one call of the function. A call that does not return in time continues in its goroutine, which cannot be ended
// from here; its effect is not known.
func (c *caller) call(ctx context.Context, batch []item) error {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	result := make(chan error, 1)
	var ended atomic.Bool // true: it returned, or it was given up
	go func() {
		err := errGoexit
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("the function panicked: %v\n%s", v, debug.Stack())
			}
			result <- err
			if !ended.CompareAndSwap(false, true) {
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
	if ended.CompareAndSwap(false, true) {
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

// Partial is the error of a Func that delivered to some customers and not to others: only the others are retried. It is a
// failed try of those, as Refused is.
type Partial struct {
	// Failed are the indexes in the batch of those that were not delivered. None at all, or one outside the batch, counts as
	// if none was delivered.
	Failed []int
	// Err is the reason.
	Err error
}

func (e *Partial) Error() string {
	return fmt.Sprintf("%d not delivered: %v", len(e.Failed), e.Err)
}

func (e *Partial) Unwrap() error { return e.Err }

// Refused is the error of a Func whose gateway works and does not take this batch. It is a failed try, also while nothing
// else is delivered.
type Refused struct {
	Err error
	// Final: another try would not help. The batch becomes a dead letter at once, unless others of its message are tried again.
	Final bool
}

func (e *Refused) Error() string { return e.Err.Error() }

func (e *Refused) Unwrap() error { return e.Err }

// Away is the error of a Func whose gateway cannot be reached, or requests a pause. It is no failed try, and no more calls are
// made, but one probe at a time, until the gateway works.
type Away struct {
	Err error
	// RetryAfter is the pause that the gateway requested, 0 = none. More than 24 h count as 24 h.
	RetryAfter time.Duration
}

func (e *Away) Error() string { return e.Err.Error() }

func (e *Away) Unwrap() error { return e.Err }
