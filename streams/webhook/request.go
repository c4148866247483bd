package webhook

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/push"
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
	s, err := r.sender(e)
	result := ""
	if err != nil {
		result = err.Error()
	} else {
		result = s.test(ctx, e.test)
		s.client.CloseIdleConnections()
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
