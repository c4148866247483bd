package ops

import (
	"context"
	"time"
)

// listFor is after how long a page reads no further part: its caller gets what was found, and where to go on.
const listFor = time.Second

// list reads a page of a list in parts until it is full, the list ends, or the time is over; then it is short, and may be empty. Each
// part reads a bounded number of rows, however few of them are wanted. The caller has a turn while they are read; of a list that an
// index serves only from the second part on. One part is read in any case, so that who goes on gets to the end.
func list[T any](ctx context.Context, o *Ops, who Caller, indexed bool, p Paging, part func(context.Context, Paging) (Page[T], error)) (page Page[T], err error) {
	end, began := (func())(nil), time.Now()
	for read := false; ; read = true {
		if end == nil && (read || !indexed) {
			if end, err = o.lists.take(ctx, who.Client(), &listTurn); err == nil {
				defer end()
				began = time.Now()
			}
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
