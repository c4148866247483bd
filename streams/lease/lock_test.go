package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/lease"
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
	_, held, err := lease.Locked(t.Context(), js, name)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// TestALock: it has one holder at a time; released, it is free at once; a dead holder's expires; a former holder
// finds out.
func TestALock(t *testing.T) {
	t.Parallel()
	js := streamtest.Start(t).JetStream(t)
	if held(t, js, "a") {
		t.Error("held without a bucket")
	}
	if _, err := lease.TakeLock(t.Context(), js, "a", "early", 0); err == nil {
		t.Error("taken without a bucket")
	}
	bucket(t, js, 1)
	ctx := t.Context()
	first, err := lease.TakeLock(ctx, js, "a", "first", 0)
	if err != nil {
		t.Fatal(err)
	}
	if note, is, err := lease.Locked(ctx, js, "a"); err != nil || !is || note.By != "first" || time.Since(note.Since) > time.Minute {
		t.Errorf("held: %+v %v %v", note, is, err)
	}
	if held(t, js, "b") {
		t.Error("another name is held, too")
	}
	var other *lease.LockedError
	if _, err := lease.TakeLock(ctx, js, "a", "second", 0); !errors.As(err, &other) || other.Note.By != "first" {
		t.Errorf("a second one: %v", err)
	}
	if err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if held(t, js, "a") {
		t.Error("held after its release")
	}
	dead, err := lease.TakeLock(ctx, js, "a", "dead", 0)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	second, err := lease.TakeLock(ctx, js, "a", "second", 3*lease.LockTTL)
	if err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(begun); waited < lease.LockTTL/2 {
		t.Errorf("taken from a holder that might have lived, after %s", waited)
	}
	// The first comes back to life.
	if err := dead.Run(ctx); !errors.Is(err, lease.ErrLockLost) {
		t.Errorf("it goes on: %v", err)
	}
	if err := dead.Release(ctx); err == nil {
		t.Error("it released another holder's lock")
	}
	if note, is, err := lease.Locked(ctx, js, "a"); err != nil || !is || note.By != "second" {
		t.Errorf("held: %+v %v %v", note, is, err)
	}
	if err := second.Release(ctx); err != nil {
		t.Error(err)
	}
}

// TestALockLastsOnACluster: renewed for longer than it would last by itself, also over a change of leaders.
func TestALockLastsOnACluster(t *testing.T) {
	t.Parallel()
	c := streamtest.StartCluster(t)
	js := bucket(t, c.JetStream(t), 3)
	h, err := lease.TakeLock(t.Context(), js, "a", "test", 5*time.Second)
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
		return time.Since(begun) > lease.LockTTL+time.Second && status.Values() > 0
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

// TestALockWhoseTTLWasForgotten: a key that a dead holder left and that the server never removes ends nevertheless. A crash of
// nats-server at the wrong moment leaves such a key.
func TestALockWhoseTTLWasForgotten(t *testing.T) {
	ctx := t.Context()
	js := bucket(t, streamtest.Start(t).JetStream(t), 1)
	note := `{"by":"a dead one","since":"2026-01-01T00:00:00Z","nonce":"dead"}`
	if _, err := js.Publish(ctx, "$KV."+topology.LeaseBucket+".hold.a", []byte(note)); err != nil {
		t.Fatal(err)
	}
	if !held(t, js, "a") {
		t.Fatal("a lock is not seen")
	}
	lease.SetClock(func() time.Time { return time.Now().Add(lease.Abandoned) })
	defer lease.SetClock(time.Now)
	if held(t, js, "a") {
		t.Error("still held long after the last renewal")
	}
	if _, err := lease.TakeLock(ctx, js, "a", "the next", 0); err != nil {
		t.Error(err)
	}
	lease.SetClock(time.Now)
	if !held(t, js, "a") {
		t.Error("not taken")
	}
}
