package push

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Retried is what Retry did, in customers.
type Retried struct {
	// Pushed were told, and are no dead letters any more.
	Pushed int
	// Left were not, and still are.
	Left int
}

// Retry hands the dead letters of opts.Name to the function, one after the other and each once, whatever it did to them
// before; Batch and Timeout of opts count. A letter whose customers were all told is removed. One that failed, or for
// some, is kept with what is left, one try more and the new reason. It ends with the list as it was at the beginning, or
// with ctx, after the call under way.
//
// At least once holds here, too: a crash between push and removal leaves the letter, and two Retry at the same time both
// push. Reminder.Key is as it was.
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
	call := &caller{push: push, batch: opts.Batch, timeout: opts.Timeout}
	for letter, err := range Letters(ctx, js, opts.Name) {
		if err != nil {
			return sum, err
		}
		left, cause := call.try(context.WithoutCancel(ctx), letter.Reminders)
		sum.Pushed += len(letter.Reminders) - len(left)
		sum.Left += len(left)
		if err := stream.after(ctx, letter, left, cause); err != nil {
			return sum, fmt.Errorf("push: dead letter %d was tried again, which it does not show: %w", letter.ID, err)
		}
		if ctx.Err() != nil {
			return sum, ctx.Err()
		}
	}
	return sum, nil
}

// after puts down what a retry brought, also if ctx has ended meanwhile.
func (d *deadStream) after(ctx context.Context, l DeadLetter, left []Reminder, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askFor)
	defer cancel()
	if len(left) == 0 {
		return d.remove(ctx, l.ID)
	}
	replaces := l.ID
	l.Reminders, l.Error = left, oneLine(cause)
	l.Tries++
	if err := d.keep(ctx, &l, replaces); !errors.Is(err, errChanged) { // changed: somebody else retried it, too
		return err
	}
	return nil
}
