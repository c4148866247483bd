package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/push"
)

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
// stores none: the next one begins with those that are left.
func (r *Runner) retry(ctx context.Context, e Endpoint) {
	s, err := r.sender(e)
	if err != nil {
		_ = r.record(ctx, Change{Webhook: e.ID, What: Retried, Reason: err.Error()})
		return
	}
	defer s.client.CloseIdleConnections()
	var sum push.Retried
	var failed error
	every := func(*wire.Event) bool { return true } // also what the settings have excluded since
	for kind := range e.audiences {
		for _, name := range e.names(kind, true) {
			p, err := push.NewEvents(r.o.JetStream, r.options(&e, name, time.Time{}), push.Events{Reminders: kind == reminders, Pass: every})
			if err != nil {
				r.o.Logger.Error("dead letters of a webhook cannot be retried", "webhook", e.ID, "err", err)
				continue
			}
			got, err := p.RetryEvents(ctx, s.push)
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
