package ops

import (
	"context"
	"time"
)

// listFor is after how long a page reads no further part: its caller gets what was found, and where to go on.
const listFor = time.Second

// turnKey is the key of the turn of a context.
type turnKey struct{}

// WithTurn returns a context in which Turn calls take.
func WithTurn(ctx context.Context, take func(context.Context) error) context.Context {
	return context.WithValue(ctx, turnKey{}, take)
}

// Turn waits for the turn of the caller of a list, once in a page. Who reads a part calls it before it reads rows that no index
// selects: only the reader knows which index serves a filter. The error is a refusal. Without a list there are no turns.
func Turn(ctx context.Context) error {
	if take, ok := ctx.Value(turnKey{}).(func(context.Context) error); ok {
		return take(ctx)
	}
	return nil
}

// list reads a page of a list in parts until it is full, the list ends, or the time is over; then it is short, and may be empty. Each
// part reads a bounded number of rows, however few of them are wanted. The caller has a turn from the first part on that calls Turn, and
// from the second part on in any case. One part is read in any case, so that who goes on gets to the end.
func list[T any](ctx context.Context, o *Ops, who Caller, p Paging, part func(context.Context, Paging) (Page[T], error)) (page Page[T], err error) {
	end, began := (func())(nil), time.Now()
	ctx = WithTurn(ctx, func(ctx context.Context) (err error) {
		if end == nil {
			end, err = o.lists.take(ctx, who.Client(), &listTurn)
			began = time.Now()
		}
		return err
	})
	defer func() {
		if end != nil {
			end()
		}
	}()
	for read := false; ; read = true {
		if read {
			err = Turn(ctx)
		}
		var got Page[T]
		if err == nil {
			got, err = part(ctx, p)
		}
		switch {
		case err != nil && read: // the caller goes on where it was
			return page, nil
		case err != nil:
			return page, err
		}
		page.Items, page.Next, page.Looked = append(page.Items, got.Items...), got.Next, got.Looked
		p.After, p.Limit = got.Next, p.Limit-len(got.Items)
		switch {
		case p.After == "" || p.Limit <= 0:
			page.Looked = ""
			return page, nil
		case time.Since(began) >= listFor:
			return page, nil
		}
	}
}
