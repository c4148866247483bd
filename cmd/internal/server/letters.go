package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// letters are the dead letters of the read tables, for actions of people.
type letters struct {
	*readmodel.Letters
	js    jetstream.JetStream
	lanes *command.Lanes
}

func newLetters(db *pgxpool.Pool, js jetstream.JetStream, lanes *command.Lanes) *letters {
	return &letters{readmodel.NewLetters(db), js, lanes}
}

// filter is the filter of a selection. One that has no meaning is refused.
func filter(q ops.ListLetters, masked bool) (readmodel.LetterFilter, error) {
	f := readmodel.LetterFilter{Stream: q.Stream, Lane: q.Lane, Since: q.Since, Cause: q.Cause, Limit: q.Limit, Before: q.After, Masked: masked}
	if q.State != "all" {
		f.State = readmodel.LetterState(q.State)
	}
	if err := f.Check(); err != nil {
		return f, &ops.Refusal{Code: wire.Invalid, Message: err.Error()}
	}
	return f, nil
}

// List implements ops.Letters.
func (l *letters) List(ctx context.Context, q ops.ListLetters, masked bool) (page ops.Page[any], err error) {
	f, err := filter(q, masked)
	if err != nil {
		return page, err
	}
	list, older, looked, err := l.Letters.List(ctx, f)
	for i := range list {
		page.Items = append(page.Items, &list[i])
	}
	page.Next, page.Looked = older, looked
	return page, err
}

// find returns the dead letter of an id.
func (l *letters) find(ctx context.Context, given string) (readmodel.Letter, error) {
	id, err := readmodel.ParseLetterID(given)
	if err != nil {
		return readmodel.Letter{}, &ops.Refusal{Code: wire.Invalid, Field: "id", Message: err.Error()}
	}
	letter, err := l.Find(ctx, id)
	switch {
	case errors.Is(err, readmodel.ErrNoLetter):
		err = &ops.Refusal{Code: ops.NotFound, Field: "id", Message: err.Error()}
	case errors.Is(err, readmodel.ErrManyLetters):
		err = &ops.Refusal{Code: wire.Invalid, Field: "id", Message: err.Error()}
	}
	return letter, err
}

// Show implements ops.Letters.
func (l *letters) Show(ctx context.Context, q ops.ShowLetter, masked bool) (any, error) {
	letter, err := l.find(ctx, q.ID)
	if err != nil {
		return nil, err
	}
	return letter.Shown(ctx, l.source, masked), nil
}

// source reads the message that a dead letter quotes.
func (l *letters) source(ctx context.Context, letter *readmodel.Letter, sequence uint64) (eventlog.Raw, error) {
	if letter.IsEvent() {
		return eventlog.Events(l.js, letter.Lane).Get(ctx, sequence)
	}
	return eventlog.Commands(l.js, letter.Lane).Get(ctx, sequence)
}

// Retry implements ops.Letters. Lines that took effect before a failure are repeats when it is sent again.
func (l *letters) Retry(ctx context.Context, who ops.Caller, q ops.RetryLetter) (any, error) {
	letter, err := l.find(ctx, q.ID)
	if err != nil {
		return nil, err
	}
	if letter.IsEvent() {
		return nil, &ops.Refusal{Code: ops.NotRetriable, Message: q.ID + " is an event. It cannot be applied now: later events were applied without it. " +
			"With a scrip version that supports it, `scrip rebuild` applies it in log order"}
	}
	r := readmodel.Retry{Letter: &letter, ID: q.CommandID, Lines: "lines", IDName: "command_id", Clear: who.Clear()}
	if q.Lines != nil {
		r.Text = []byte(strings.Join(q.Lines, "\n"))
	}
	commands, err := r.Commands(ctx, l.source)
	if err != nil {
		return nil, &ops.Refusal{Code: ops.NotRetriable, Message: err.Error()}
	}
	out, accepted, all := api.Retried{State: string(letter.State), Outcomes: []api.Outcome{}}, map[string]int{}, 0
	for _, cmd := range commands {
		got, err := l.send(ctx, cmd, who.By())
		if err != nil {
			return nil, fmt.Errorf("%w; the dead letter stays %s: retry it again, lines that took effect are repeats", err, letter.State)
		}
		if who.Hide(&got); !who.Customers {
			got.CustomerID = ""
		}
		if out.Outcomes = append(out.Outcomes, api.Outcome{Outcome: got}); !got.Refused() {
			accepted[got.Status]++
			all++
		}
	}
	if all < len(commands) {
		return out, nil
	}
	if err := l.Settle(ctx, &letter, readmodel.Retried, readmodel.RetryNote(accepted, all)); err != nil {
		return nil, &ops.Refusal{Code: ops.UnknownOutcome, Message: "the lines took effect, and the dead letter stays open: " + err.Error()}
	}
	out.State = string(readmodel.Retried)
	return out, nil
}

// send sends a command and waits for its outcome.
func (l *letters) send(ctx context.Context, cmd wire.Command, by string) (wire.Outcome, error) {
	wait := command.NewWaiter()
	ticket, err := l.lanes.Send(ctx, &cmd, command.Call{By: by, To: wait})
	return wait.Wait(ctx, cmd.ID, ticket, err)
}

// Discard implements ops.Letters. Those before the one that fails stay discarded.
func (l *letters) Discard(ctx context.Context, q ops.DiscardLetters) (ops.LettersDone, error) {
	if q.All {
		f, err := filter(ops.ListLetters{SelectLetters: q.SelectLetters}, false)
		if err != nil {
			return ops.LettersDone{}, err
		}
		n, err := l.DiscardAll(ctx, f, q.Note)
		return ops.LettersDone{Discarded: n}, err
	}
	var done ops.LettersDone
	for _, id := range q.IDs {
		letter, err := l.find(ctx, id)
		switch {
		case err == nil && q.Undo:
			err = l.Reopen(ctx, &letter)
		case err == nil:
			err = l.Settle(ctx, &letter, readmodel.Discarded, q.Note)
		}
		var no *ops.Refusal
		switch {
		case errors.Is(err, readmodel.ErrRetried):
			return done, &ops.Refusal{Code: ops.AlreadyRetried, Message: fmt.Sprintf("%s (done before it: %d)", err, done.Discarded+done.Reopened)}
		case errors.As(err, &no):
			return done, &ops.Refusal{Code: no.Code, Field: "ids", Message: fmt.Sprintf("%s (done before it: %d)", err, done.Discarded+done.Reopened)}
		case err != nil:
			return done, err
		case q.Undo:
			done.Reopened++
		default:
			done.Discarded++
		}
	}
	return done, nil
}
