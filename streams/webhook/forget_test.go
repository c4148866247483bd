package webhook

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// heldRemoval holds removals of the consumers of one webhook, or of one of its audiences, until it is released; the first one
// fails then.
type heldRemoval struct {
	jetstream.JetStream
	id      string
	release chan struct{}
	failed  atomic.Bool
}

func (h *heldRemoval) DeleteConsumer(ctx context.Context, stream, consumer string) error {
	if strings.Contains(consumer, h.id) {
		select {
		case <-h.release:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !h.failed.Swap(true) {
			return errors.New("not removed")
		}
	}
	return h.JetStream.DeleteConsumer(ctx, stream, consumer)
}

// What is kept of a deleted webhook, and of an audience before a replay, is removed in the background: deliveries go on before it is,
// and a removal that fails is retried without another change.
func TestTheGoneAreForgottenInTheBackground(t *testing.T) {
	for what, leave := range map[string]func(t *testing.T, r *rig, e Endpoint) (active Endpoint){
		"deleted": replaced,
		"replayed": func(t *testing.T, r *rig, e Endpoint) Endpoint {
			return r.make(t, Change{Webhook: e.ID, What: Replay, From: e.Created})
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			e, _ := r.create(t, Config{})
			before := e.name(0)
			stop := r.serve(t, r.runner(r.js, nil), e)
			kept := func() int {
				all, err := push.Positions(within(t), r.js, before)
				if err != nil {
					return -1
				}
				return len(all)
			}
			r.until(t, "its position is recorded", func() bool { return kept() == 1 })
			stop()
			active := leave(t, r, e)
			if active.name(0) == before {
				t.Fatalf("the audience is still %s", before)
			}

			js := &heldRemoval{JetStream: r.js, id: before, release: make(chan struct{})}
			run := r.runner(js, func(o *Options) { o.again = 10 * time.Millisecond })
			streamtest.Background(t, run.Run)
			r.event(t, claimed("ann"))
			r.until(t, "ann's claim is delivered", func() bool { return run.Stats()[active.ID].Pushed == 1 })
			if n := kept(); n != 1 {
				t.Errorf("%d positions are kept while their removal is held", n)
			}
			close(js.release)
			r.until(t, "nothing is kept", func() bool { return kept() == 0 && js.failed.Load() })
		})
	}
}

// replaced deletes a webhook and creates another one whose lease is the same.
func replaced(t *testing.T, r *rig, e Endpoint) Endpoint {
	t.Helper()
	gone := slotOf(e.ID)
	for {
		r.make(t, Change{Webhook: e.ID, What: Delete})
		if e, _ = r.create(t, Config{}); slotOf(e.ID) == gone {
			return e
		}
	}
}
