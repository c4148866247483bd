package push

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Retried is what Retry did, in customers.
type Retried struct {
	// Pushed were delivered, and are no dead letters any more.
	Pushed int
	// Left were not, and are dead letters still.
	Left int
}

// Retry passes the dead letters of opts.Name to the function, one after the other and each once, however often they were
// tried before; of opts Batch and Timeout count. A letter whose customers were all delivered is removed. One that failed
// for some is stored again with those, one try more and the new reason. It ends with the list as it was at the beginning,
// or with ctx, after the call in progress.
//
// At least once holds here, too: a crash between push and removal leaves the letter, and two Retry at the same time both
// push. Reminder.Key does not change.
func Retry(ctx context.Context, js jetstream.JetStream, opts Options, push Func) (Retried, error) {
	var sum Retried
	opts, err := opts.withDefaults()
	if err != nil {
		return sum, err
	}
	stream, err := openDead(ctx, js)
	if err != nil {
		return sum, err
	}
	return retry(ctx, Letters(ctx, js, opts.Name), stream, opts, push)
}

// RetryKeyed is Retry for a sender that has a key, see NewKeyed.
func RetryKeyed(ctx context.Context, nc *nats.Conn, opts Options, push Func) (Retried, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Retried{}, err
	}
	client := &proxyClient{nc: nc, name: opts.Name}
	return retry(ctx, client.letters(ctx), client, opts, push)
}

// settler stores the result of a retry.
type settler interface {
	settle(ctx context.Context, l DeadLetter, left []Reminder, cause error) error
}

func retry(ctx context.Context, letters iter.Seq2[DeadLetter, error], store settler, opts Options, push Func) (sum Retried, err error) {
	call := &caller{push: onReminders(push), batch: opts.Batch, timeout: opts.Timeout}
	for letter, err := range letters {
		if err != nil {
			return sum, err
		}
		items := make([]item, len(letter.Reminders))
		for i, r := range letter.Reminders {
			items[i] = item{Reminder: r}
		}
		if _, err := sum.one(ctx, context.WithoutCancel(ctx), store, call, &letter, items); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// one retries one letter and adds the result. calling is the context of the calls. The error is that of ctx, or of storing the
// result.
func (sum *Retried) one(ctx, calling context.Context, store settler, call *caller, letter *DeadLetter, items []item) (result, error) {
	got := call.try(calling, items, false)
	if calling.Err() != nil && got.fate == untried {
		return got, ctx.Err()
	}
	sum.Pushed += len(items) - len(got.left)
	sum.Left += len(got.left)
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
	if err := p.openLog(ctx); err != nil {
		return sum, err
	}
	stream, err := openDead(ctx, p.js)
	if err != nil {
		return sum, err
	}
	call := &caller{push: onLines(push), batch: p.opts.Batch, timeout: p.opts.Timeout}
	var failed error
	for letter, err := range Letters(ctx, p.js, p.opts.Name) {
		if err != nil {
			return sum, err
		}
		items, err := p.letterItems(ctx, &letter)
		if err != nil || len(items) < len(letter.Reminders) {
			sum.Left += len(letter.Reminders)
			failed = errors.Join(fmt.Errorf("%d events of message %d of %s are not in the log any more, or do not pass the filter", len(letter.Reminders)-len(items), letter.Sequence, letter.Stream), err)
			continue
		}
		got, err := sum.one(ctx, ctx, stream, call, &letter, items)
		if err != nil {
			return sum, err
		}
		if got.cause != nil {
			failed = got.cause
		}
		if got.fate == away {
			break
		}
	}
	return sum, failed
}

// letterItems reads the lines of a dead letter from the log.
func (p *Pusher) letterItems(ctx context.Context, letter *DeadLetter) ([]item, error) {
	stream := p.source.stream(p.js, letter.Lane).In(p.log)
	raw, err := stream.Get(ctx, letter.Sequence)
	if err != nil {
		return nil, err
	}
	judge, err := stream.Judge(ctx)
	if err != nil {
		return nil, err
	}
	m, err := judge.Read(&raw)
	if err != nil {
		return nil, err
	}
	all, _ := p.source.lines(p.log.UUID, letter.Lane, &m)
	return slices.DeleteFunc(all, func(it item) bool {
		return !slices.ContainsFunc(letter.Reminders, func(r Reminder) bool { return r.Key == it.Key })
	}), nil
}

// settle stores the result of a retry, also if ctx has ended meanwhile.
func (d *deadStream) settle(ctx context.Context, l DeadLetter, left []Reminder, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if len(left) == 0 {
		return d.delete(ctx, l.ID)
	}
	replaces := l.ID
	l.Reminders, l.Error = left, oneLine(cause)
	l.Tries++
	if err := d.store(ctx, &l, replaces); !errors.Is(err, errChanged) { // changed: another Retry handled it, too
		return err
	}
	return nil
}
