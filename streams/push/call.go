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
	push     func(context.Context, []item) error
	batch    int
	timeout  time.Duration
	suspects suspects
	hung     atomic.Int64 // calls that were given up and have not returned
}

// result is what came of the calls for some items.
type result struct {
	left       []item // not delivered
	cause      error  // the last one, nil = all were delivered
	fate       fate
	refused    bool          // the gateway answered that it does not take some: a failed try, whatever others do
	retryAfter time.Duration // of the gateway
	mixed      bool          // a call for several campaigns failed as a whole, so none of them is to blame
}

// try passes all items to the function, in batches; with split a batch is of one campaign. A batch that fails does not keep
// the others from being delivered, unless the gateway is away.
func (c *caller) try(ctx context.Context, all []item, split bool) (r result) {
	for _, part := range campaigns(all, split) {
		for batch := range slices.Chunk(part, c.batch) {
			if ctx.Err() != nil {
				r.left, r.cause = append(r.left, batch...), errEnding
				continue
			}
			if r.fate == away {
				r.left = append(r.left, batch...)
				continue
			}
			r.add(batch, c.call(ctx, slices.Clone(batch)), &c.suspects)
		}
	}
	return r
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

// add takes in how the call for one batch ended.
func (r *result) add(batch []item, err error, s *suspects) {
	one := !slices.ContainsFunc(batch, func(it item) bool { return it.Campaign != batch[0].Campaign })
	if err == nil {
		r.fate = answered
		for i := range batch {
			if i == 0 || !one {
				s.count(batch[i].Campaign, true)
			}
		}
		return
	}
	left := undelivered(batch, err)
	r.left, r.cause = append(r.left, left...), err
	var gone *Away
	var refused *Refused
	var some *Partial
	switch {
	case errors.Is(err, errEnding):
		return
	case errors.As(err, &gone):
		r.fate, r.retryAfter = away, max(r.retryAfter, min(gone.RetryAfter, retryAfterMost))
		return
	case len(left) < len(batch):
		r.fate, r.refused = answered, true
		s.count(batch[0].Campaign, true)
		return
	case errors.As(err, &refused), errors.As(err, &some):
		r.fate, r.refused = answered, true
	case r.fate == untried:
		r.fate = failed
	}
	if one {
		s.count(batch[0].Campaign, false)
	}
	r.mixed = r.mixed || !one
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
