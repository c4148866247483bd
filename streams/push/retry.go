package push

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Retried is what Retry did, in customers.
type Retried struct {
	// Pushed were delivered, and are no dead letters any more.
	Pushed int
	// Left were not, and are dead letters still.
	Left int
	// OptedOut customers want no reminders: theirs are no dead letters any more.
	OptedOut int
}

// Retry passes the dead letters of opts.Name to the function, one after the other and each once, however often they were
// tried before; of opts Batch and Timeout count. A letter whose customers were all delivered is removed. One that failed
// for some is stored again with those, one try more and the new reason. It ends with the list as it was at the start,
// or with ctx, after the call in progress.
//
// At least once holds here, too: a crash between push and removal leaves the letter, and two Retry at the same time both
// push. Reminder.Key does not change.
func Retry(ctx context.Context, js jetstream.JetStream, opts Options, push Func) (sum Retried, err error) {
	if opts, err = opts.withDefaults(); err != nil {
		return sum, err
	}
	of := reminders()
	from := newBackend(js, &opts, of)
	defer from.close()
	call := &caller{push: onReminders(push), batch: opts.Batch, timeout: opts.Timeout, optedOut: of.optedOut(from)}
	for letter, err := range from.letters(ctx) {
		if err != nil {
			return sum, err
		}
		items := make([]item, len(letter.Reminders))
		for i, r := range letter.Reminders {
			items[i] = item{Reminder: r}
		}
		if _, err := sum.one(ctx, context.WithoutCancel(ctx), from, call, &letter, items); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// one retries one letter and adds the result. calling is the context of the calls. The error is that of ctx, or of storing the
// result.
func (sum *Retried) one(ctx, calling context.Context, store letterStore, call *caller, letter *DeadLetter, items []item) (result, error) {
	got := call.try(calling, items, false)
	if got.gateway == untried && errors.Is(got.cause, errUnchecked) {
		return got, fmt.Errorf("push: %w", got.cause)
	}
	if calling.Err() != nil && got.gateway == untried {
		return got, ctx.Err()
	}
	sum.Pushed += len(items) - len(got.left) - got.dropped
	sum.Left += len(got.left)
	sum.OptedOut += got.dropped
	if err := store.settle(ctx, *letter, bare(got.left), got.cause); err != nil {
		return got, fmt.Errorf("push: dead letter %d was retried, but the result could not be stored: %w", letter.ID, err)
	}
	return got, ctx.Err()
}

// RetryEvents is Retry for a Pusher of NewEvents, instead of its Run: it reads the lines of the dead letters of its name from
// the log, and passes those that its filter passes. It ends at a letter whose call found the gateway away, and with ctx.
// Letters with lines that are not in the log any more stay. The error of the last call that failed is returned with what was
// done.
func (p *Pusher) RetryEvents(ctx context.Context, push func(ctx context.Context, batch []Line) error) (Retried, error) {
	var sum Retried
	from := newDirect(p.js, &p.opts, p.source)
	defer from.close()
	if err := from.find(ctx); err != nil {
		return sum, fmt.Errorf("push: %w", err)
	}
	call := &caller{push: onLines(push), batch: p.opts.Batch, timeout: p.opts.Timeout, optedOut: p.source.optedOut(from)}
	var failed error
	for letter, err := range from.letters(ctx) {
		if err != nil {
			return sum, err
		}
		items, err := from.items(ctx, &letter)
		if err != nil || len(items) < len(letter.Reminders) {
			sum.Left += len(letter.Reminders)
			failed = errors.Join(fmt.Errorf("%d events of message %d of %s are not in the log any more, or do not pass the filter", len(letter.Reminders)-len(items), letter.Sequence, letter.Stream), err)
			continue
		}
		got, err := sum.one(ctx, ctx, from, call, &letter, items)
		if err != nil {
			return sum, err
		}
		if got.cause != nil {
			failed = got.cause
		}
		if got.gateway == away {
			break
		}
	}
	return sum, failed
}

// items reads the lines of a dead letter from the log.
func (d *direct) items(ctx context.Context, letter *DeadLetter) ([]item, error) {
	raw, err := d.stream(letter.Lane).Get(ctx, letter.Sequence)
	if err != nil {
		return nil, err
	}
	judge, err := d.stream(letter.Lane).Judge(ctx)
	if err != nil {
		return nil, err
	}
	m, err := judge.Read(&raw)
	if err != nil {
		return nil, err
	}
	all, _ := d.source.lines(d.log.UUID, letter.Lane, &m)
	keys := map[string]bool{}
	for _, r := range letter.Reminders {
		keys[r.Key] = true
	}
	return slices.DeleteFunc(all, func(it item) bool { return !keys[it.Key] }), nil
}
