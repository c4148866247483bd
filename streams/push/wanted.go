package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/optout"
)

// errUnchecked: a call was not made, since it is not known who wants no reminders.
var errUnchecked = errors.New("who wants no reminders could not be read")

// wanted leaves out the reminders of customers who want none, right before the call for a batch; dropped is how many. A look that
// took long is repeated: its customers may have opted out since, also while the answer of the service was on its way.
func (c *caller) wanted(ctx context.Context, batch []item) (some []item, dropped int, err error) {
	if c.optedOut == nil {
		return batch, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	customers := make([]string, len(batch))
	for i := range batch {
		customers[i] = batch[i].CustomerID
	}
	for {
		looked := time.Now()
		out, err := c.optedOut(ctx, customers)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %w", errUnchecked, err)
		}
		if time.Since(looked) < optout.LookFor {
			some = slices.DeleteFunc(slices.Clone(batch), func(it item) bool { return out[it.CustomerID] })
			return some, len(batch) - len(some), nil
		}
	}
}
