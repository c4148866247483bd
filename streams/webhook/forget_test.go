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

// A server that gets the lease of deleted webhooks delivers to the active ones before it has removed what is kept of those, and
// a removal that fails is retried without another change.
func TestDeletedOnesAreForgottenInTheBackground(t *testing.T) {
	r := newRig(t)
	deleted, _ := r.create(t, Config{})
	stop := r.serve(t, r.runner(r.js, nil), deleted)
	kept := func() int {
		all, err := push.Positions(within(t), r.js, deleted.name(0))
		if err != nil {
			return -1
		}
		return len(all)
	}
	r.until(t, "its position is recorded", func() bool { return kept() == 1 })
	stop()
	if _, err := r.store.Make(within(t), ann, Change{Webhook: deleted.ID, What: Delete}, 0); err != nil {
		t.Fatal(err)
	}
	active, _ := r.create(t, Config{})
	for slotOf(active.ID) != slotOf(deleted.ID) {
		if _, err := r.store.Make(within(t), ann, Change{Webhook: active.ID, What: Delete}, 0); err != nil {
			t.Fatal(err)
		}
		active, _ = r.create(t, Config{})
	}

	js := &heldRemoval{JetStream: r.js, id: deleted.ID, release: make(chan struct{})}
	run := r.runner(js, func(o *Options) { o.again = 10 * time.Millisecond })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	r.event(t, claimed("ann"))
	r.until(t, "ann's claim is delivered to the active one", func() bool { return run.Stats()[active.ID].Pushed == 1 })
	if n := kept(); n != 1 {
		t.Errorf("%d positions of the deleted one are kept while their removal is held", n)
	}
	close(js.release)
	r.until(t, "nothing is kept of the deleted one", func() bool { return kept() == 0 && js.failed.Load() })
}

// A webhook is delivered to after a replay before what is kept of the audience before it is removed, and a removal that fails
// is retried.
func TestEarlierAudiencesAreForgottenInTheBackground(t *testing.T) {
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
	e, err := r.store.Make(within(t), ann, Change{Webhook: e.ID, What: Replay, From: e.Created}, 0)
	if err != nil || e.name(0) == before {
		t.Fatalf("%s, %v", e.name(0), err)
	}

	js := &heldRemoval{JetStream: r.js, id: before, release: make(chan struct{})}
	run := r.runner(js, func(o *Options) { o.again = 10 * time.Millisecond })
	r.serve(t, run, e)
	r.event(t, claimed("ann"))
	r.until(t, "ann's claim is delivered", func() bool { return run.Stats()[e.ID].Pushed == 1 })
	if n := kept(); n != 1 {
		t.Errorf("%d positions of the audience before are kept while their removal is held", n)
	}
	close(js.release)
	r.until(t, "nothing is kept of the audience before", func() bool { return kept() == 0 && js.failed.Load() })
}
