package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// errUnchecked: a call was not made, since it is not known who wants no reminders.
var errUnchecked = errors.New("who wants no reminders could not be read")

// wanted leaves out the reminders of customers who want none, right before they are delivered; dropped is how many. Events are
// not concerned.
func wanted(ctx context.Context, from backend, s *source, all []item) (some []item, dropped int, err error) {
	if s.events || len(all) == 0 {
		return all, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	customers := make([]string, len(all))
	for i := range all {
		customers[i] = all[i].CustomerID
	}
	out, err := from.optedOut(ctx, customers)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errUnchecked, err)
	}
	if len(out) == 0 {
		return all, 0, nil
	}
	some = slices.DeleteFunc(slices.Clone(all), func(it item) bool { return out[it.CustomerID] })
	return some, len(all) - len(some), nil
}

// deliver passes what is wanted of a batch to the function.
func (p *Pusher) deliver(batch []item) (r result) {
	some, dropped, err := wanted(p.hard, p.from, &p.source, batch)
	switch {
	case err != nil:
		return result{left: batch, cause: err}
	case len(some) > 0:
		r = p.call.one(p.hard, some)
	}
	r.dropped = dropped
	return r
}
