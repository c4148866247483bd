package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// mayReplay refuses a replay from after an event that is not delivered: a replay forgets what waits, and that event would
// be neither delivered nor a dead letter. What is delivered during the check only makes the replay possible.
func (s *Store) mayReplay(ctx context.Context, c *Change) error {
	if c.From.IsZero() || c.From.After(s.history.Clock.Now()) {
		return nil // refused as any change that is not valid
	}
	e, err := s.Show(ctx, c.Webhook)
	if errors.Is(err, ErrNotFound) {
		return nil // likewise
	}
	var oldest time.Time
	if err == nil {
		oldest, err = s.undelivered(ctx, &e)
	}
	switch {
	case err != nil:
		return fmt.Errorf("nothing was stored: %w", err)
	case oldest.IsZero() || !c.From.After(oldest):
		return nil
	}
	return &InvalidError{Err: fmt.Errorf("from is %s, and what happened since %s is not delivered yet: give that time or an earlier one; to lose it, delete the webhook and create another",
		c.From.UTC().Format(time.RFC3339), oldest.UTC().Format(time.RFC3339))}
}

// undelivered returns when the oldest message was stored that may have an event to deliver, zero = there is none. On a lane
// that was never read it is the time from which the endpoint delivers.
func (s *Store) undelivered(ctx context.Context, e *Endpoint) (oldest time.Time, err error) {
	log, found, err := topology.Inspect(ctx, s.js)
	if err != nil || !found {
		return oldest, err
	}
	for kind, a := range e.audiences {
		if !e.wants(kind == reminders) {
			continue
		}
		all, err := push.Positions(ctx, s.js, e.name(kind))
		if err != nil {
			return oldest, err
		}
		if len(all) < log.Lanes {
			all = append(all, push.Position{Oldest: a.since})
		}
		for _, p := range all {
			if !p.Oldest.IsZero() && (oldest.IsZero() || p.Oldest.Before(oldest)) {
				oldest = p.Oldest
			}
		}
	}
	return oldest, nil
}
