package hold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/hold"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func bucket(t *testing.T, js jetstream.JetStream, replicas int) jetstream.JetStream {
	t.Helper()
	if _, err := js.CreateKeyValue(t.Context(), topology.LeaseConfig(replicas)); err != nil {
		t.Fatal(err)
	}
	return js
}

func held(t *testing.T, js jetstream.JetStream, name string) bool {
	t.Helper()
	_, held, err := hold.Held(t.Context(), js, name)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// TestAHold: one has a name at a time; released, it is free at once; a dead holder's runs out by itself; who had it then
// finds out.
func TestAHold(t *testing.T) {
	t.Parallel()
	js := streamtest.Start(t).JetStream(t)
	if held(t, js, "a") {
		t.Error("held without a bucket")
	}
	if _, err := hold.Take(t.Context(), js, "a", "nobody", 0); err == nil {
		t.Error("taken without a bucket")
	}
	bucket(t, js, 1)
	ctx := t.Context()
	first, err := hold.Take(ctx, js, "a", "first", 0)
	if err != nil {
		t.Fatal(err)
	}
	if note, is, err := hold.Held(ctx, js, "a"); err != nil || !is || note.By != "first" || time.Since(note.Since) > time.Minute {
		t.Errorf("held: %+v %v %v", note, is, err)
	}
	if held(t, js, "b") {
		t.Error("another name is held, too")
	}
	var other *hold.HeldError
	if _, err := hold.Take(ctx, js, "a", "second", 0); !errors.As(err, &other) || other.Note.By != "first" {
		t.Errorf("a second one: %v", err)
	}
	if err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if held(t, js, "a") {
		t.Error("held after its release")
	}
	dead, err := hold.Take(ctx, js, "a", "dead", 0)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	second, err := hold.Take(ctx, js, "a", "second", 3*hold.TTL)
	if err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(begun); waited < hold.TTL/2 {
		t.Errorf("taken from a holder that might have lived, after %s", waited)
	}
	// The first comes back to life.
	if err := dead.Run(ctx); !errors.Is(err, hold.ErrLost) {
		t.Errorf("it goes on: %v", err)
	}
	if err := dead.Release(ctx); err == nil {
		t.Error("it released another's hold")
	}
	if note, is, err := hold.Held(ctx, js, "a"); err != nil || !is || note.By != "second" {
		t.Errorf("held: %+v %v %v", note, is, err)
	}
	if err := second.Release(ctx); err != nil {
		t.Error(err)
	}
}

// TestAHoldLastsOnACluster: renewed for longer than it would last by itself, also over a change of leaders.
func TestAHoldLastsOnACluster(t *testing.T) {
	t.Parallel()
	c := streamtest.StartCluster(t)
	js := bucket(t, c.JetStream(t), 3)
	h, err := hold.Take(t.Context(), js, "a", "test", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	c.StepDown(t, topology.LeaseStream)
	kv, err := js.KeyValue(t.Context(), topology.LeaseBucket)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	streamtest.Eventually(t, "it has been renewed for longer than its TTL", func() bool {
		status, err := kv.Status(t.Context())
		if err != nil {
			return false
		}
		return time.Since(begun) > hold.TTL+time.Second && status.Values() > 0
	})
	if !held(t, js, "a") {
		t.Error("not held any more")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if held(t, js, "a") {
		t.Error("held after its release")
	}
}

// TestAHoldWhoseTTLWasForgotten: a key that a dead holder left and that the server never removes ends nevertheless. A crash of
// nats-server at the wrong moment leaves such a key.
func TestAHoldWhoseTTLWasForgotten(t *testing.T) {
	ctx := t.Context()
	js := bucket(t, streamtest.Start(t).JetStream(t), 1)
	note := `{"by":"a dead one","since":"2026-01-01T00:00:00Z","nonce":"dead"}`
	if _, err := js.Publish(ctx, "$KV."+topology.LeaseBucket+".hold.a", []byte(note)); err != nil {
		t.Fatal(err)
	}
	if !held(t, js, "a") {
		t.Fatal("a hold is not seen")
	}
	hold.SetClock(func() time.Time { return time.Now().Add(hold.Abandoned) })
	defer hold.SetClock(time.Now)
	if held(t, js, "a") {
		t.Error("still held when nobody has renewed it for long")
	}
	if _, err := hold.Take(ctx, js, "a", "the next", 0); err != nil {
		t.Error(err)
	}
	hold.SetClock(time.Now)
	if !held(t, js, "a") {
		t.Error("not taken")
	}
}
