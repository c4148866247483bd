package push

import (
	"context"
	"errors"
	"fmt"

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
	call := &caller{push: onReminders(push), batch: opts.Batch, timeout: opts.Timeout}
	for letter, err := range Letters(ctx, js, opts.Name) {
		if err != nil {
			return sum, err
		}
		items := make([]item, len(letter.Reminders))
		for i, r := range letter.Reminders {
			items[i] = item{Reminder: r}
		}
		got := call.try(context.WithoutCancel(ctx), items, false)
		sum.Pushed += len(letter.Reminders) - len(got.left)
		sum.Left += len(got.left)
		if err := stream.after(ctx, letter, bare(got.left), got.cause); err != nil {
			return sum, fmt.Errorf("push: dead letter %d was retried, but the result could not be stored: %w", letter.ID, err)
		}
		if ctx.Err() != nil {
			return sum, ctx.Err()
		}
	}
	return sum, nil
}

// after stores the result of a retry, also if ctx has ended meanwhile.
func (d *deadStream) after(ctx context.Context, l DeadLetter, left []Reminder, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if len(left) == 0 {
		return d.remove(ctx, l.ID)
	}
	replaces := l.ID
	l.Reminders, l.Error = left, oneLine(cause)
	l.Tries++
	if err := d.keep(ctx, &l, replaces); !errors.Is(err, errChanged) { // changed: another Retry handled it, too
		return err
	}
	return nil
}
