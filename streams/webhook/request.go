package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// errChangedMeanwhile ends a retry whose endpoint has another config now: its URL may not be the owner's any more.
var errChangedMeanwhile = errors.New("the webhook was changed or deleted; retry again")

// current reports whether an endpoint still has its config.
func (r *Runner) current(e *Endpoint) bool {
	now, _, _ := r.state()
	return slices.ContainsFunc(now, func(n Endpoint) bool { return n.ID == e.ID && reflect.DeepEqual(n.Config, e.Config) })
}

// test makes the request that a change requests, and stores its result.
func (r *Runner) test(ctx context.Context, e Endpoint) {
	result := TestDelivered
	s, err := r.sender(e)
	if err == nil {
		err = s.test(ctx, e.test)
		s.client.CloseIdleConnections()
	}
	if err != nil {
		result = fmt.Sprintf("%.300s", err)
	}
	_ = r.record(ctx, Change{Webhook: e.ID, What: Tested, Reason: result})
}

// retry delivers the dead letters of an endpoint again, each once, and stores the result. A server that stops in the middle
// stores none: the next one retries those that are left.
func (r *Runner) retry(ctx context.Context, e Endpoint) {
	s, err := r.sender(e)
	if err != nil {
		_ = r.record(ctx, Change{Webhook: e.ID, What: Retried, Reason: err.Error()})
		return
	}
	defer s.client.CloseIdleConnections()
	var sum push.Retried
	var failed error
	deliver := func(ctx context.Context, batch []push.Line) error {
		if !r.current(&e) {
			return &push.Away{Err: errChangedMeanwhile} // ends the pass
		}
		return s.push(ctx, batch)
	}
	every := func(*wire.Event) bool { return true } // also what the config has excluded since
	for kind := range e.audiences {
		for _, name := range e.names(kind, true) {
			p, err := push.NewEvents(r.o.JetStream, r.options(&e, name, time.Time{}), push.Events{Reminders: kind == reminders, Pass: every})
			if err != nil {
				r.o.Logger.Error("dead letters of a webhook cannot be retried", "webhook", e.ID, "err", err)
				continue
			}
			got, err := p.RetryEvents(ctx, deliver)
			if ctx.Err() != nil {
				return
			}
			sum.Pushed, sum.Left = sum.Pushed+got.Pushed, sum.Left+got.Left
			if err != nil {
				failed = err
			}
		}
	}
	result := fmt.Sprintf("%d delivered, %d not", sum.Pushed, sum.Left)
	if failed != nil {
		result += fmt.Sprintf(": %.300s", failed)
	}
	_ = r.record(ctx, Change{Webhook: e.ID, What: Retried, Reason: result})
}

// rehearsalMost bounds the waits of a rehearsal in all: they are those of the schedule, scaled.
const rehearsalMost = 40 * time.Second

// rehearse delivers the newest event that the endpoint gets as it is delivered in earnest, but sooner, and stores what came of it.
// The answers of the first tries are ignored, as if they were lost; the requests are made. What fails for good is a dead letter like
// any other. A server that stops in the middle stores nothing: the next one rehearses again.
func (r *Runner) rehearse(ctx context.Context, e Endpoint) {
	waits, sum := e.waits(), time.Duration(0)
	for _, d := range waits {
		sum += d
	}
	most, tries, text := cmp.Or(r.o.rehearsal, rehearsalMost), 0, ""
	s, err := r.sender(e)
	if err == nil {
		defer s.client.CloseIdleConnections()
		kind := 0
		if !e.wants(false) {
			kind = reminders
		}
		o := r.options(&e, e.name(kind), time.Time{})
		o.Batch, o.Schedule = 1, nil
		for _, d := range waits {
			o.Schedule = append(o.Schedule, time.Duration(float64(d)*min(1, float64(most)/float64(sum))))
		}
		var p *push.Pusher
		var letter uint64
		if p, err = push.NewEvents(r.o.JetStream, o, push.Events{Reminders: kind == reminders, Pass: e.passes}); err == nil {
			letter, err = p.Rehearse(ctx, func(ctx context.Context, batch []push.Line) error {
				err := s.push(ctx, batch)
				wait := ""
				if tries > 0 {
					wait = " after " + e.Schedule[tries-1].String()
				}
				tries++
				result := "delivered"
				if err == nil && tries <= e.fail {
					result, err = "the answer is ignored", errors.New("rehearsal: the answer is ignored")
				} else if err != nil {
					result = fmt.Sprintf("%.60s", err)
				}
				text += fmt.Sprintf("try %d of %d%s: %s; ", tries, len(waits)+1, wait, result)
				return err
			})
		}
		if letter != 0 {
			text += fmt.Sprintf("dead letter %d; ", letter)
		}
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		text += fmt.Sprintf("%.300s; ", err)
	}
	_ = r.record(ctx, Change{Webhook: e.ID, What: Rehearsed, Reason: strings.TrimSuffix(text, "; ")})
}

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
