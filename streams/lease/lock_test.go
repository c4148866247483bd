package lease

import (
	"context"
	"errors"
	"testing"
	"time"
)

// holder returns who holds a lock, "" = it is free.
func (o *office) holder(name string) string {
	o.t.Helper()
	note, _, held, err := readLock(o.t.Context(), o.bucket.site(), name)
	if err != nil {
		o.t.Fatal(err)
	}
	if !held {
		return ""
	}
	return note.By
}

func (o *office) lock(by string, patience time.Duration) (*site, *Lock) {
	o.t.Helper()
	at := o.bucket.site()
	l, err := takeLock(o.t.Context(), at, "a", by, patience)
	if err != nil {
		o.t.Fatal(err)
	}
	return at, l
}

// TestALock: it has one holder at a time; released, it is free at once; a dead holder's expires; a former holder finds out.
func TestALock(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		ctx := t.Context()
		_, first := o.lock("first", 0)
		if o.holder("a") != "first" || o.holder("b") != "" {
			t.Errorf("a is held by %q, b by %q", o.holder("a"), o.holder("b"))
		}
		var other *LockedError
		if _, err := takeLock(ctx, o.bucket.site(), "a", "second", LockTTL-time.Second); !errors.As(err, &other) || other.Note.By != "first" {
			t.Errorf("a second one: %v", err)
		}
		if err := first.Release(ctx); err != nil || o.holder("a") != "" {
			t.Errorf("released: %v, held by %q", err, o.holder("a"))
		}
		_, dead := o.lock("dead", 0)
		started := time.Now()
		_, second := o.lock("second", 3*LockTTL)
		if waited := time.Since(started); waited < LockTTL || waited > LockTTL+lockPoll {
			t.Errorf("taken from a dead holder after %s", waited)
		}
		// The first comes back to life.
		if err := dead.Run(ctx); !errors.Is(err, ErrLockLost) {
			t.Errorf("it goes on: %v", err)
		}
		if err := dead.Release(ctx); err == nil || o.holder("a") != "second" {
			t.Errorf("it released another holder's lock: %v", err)
		}
		if err := second.Release(ctx); err != nil {
			t.Error(err)
		}
		pass(2 * markerTTL) // the marker goes, too
		o.lock("third", 0)
	})
}

// TestALockIsRenewed for as long as its holder runs, whatever answers are lost and although the bucket is silent for a while,
// but not for longer than the TTL.
func TestALockIsRenewed(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		at, l := o.lock("a long one", 0)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		for _, fault := range []func(bool){func(bool) {}, at.deaf.Store, at.cut} {
			fault(true)
			pass(LockTTL - lockRenewal - lockAttempt)
			fault(false)
			pass(time.Minute)
			if o.holder("a") != "a long one" {
				t.Fatal("not held any more")
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != nil || o.holder("a") != "" {
			t.Errorf("released: %v, held by %q", err, o.holder("a"))
		}
		at, l = o.lock("one that is cut off", 0)
		started := time.Now()
		at.cut(true)
		if err := l.Run(t.Context()); !errors.Is(err, ErrLockLost) || time.Since(started) > LockTTL+lockRenewal+2*lockAttempt {
			t.Errorf("after %s: %v", time.Since(started), err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := takeLock(cancelled, o.bucket.site(), "a", "none", time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("for a caller that waits no longer: %v", err)
		}
	})
}

// TestALockWhoseTTLWasForgotten: a key that a dead holder left and that the server never removes ends nevertheless. A crash of
// nats-server at the wrong moment leaves such a key.
func TestALockWhoseTTLWasForgotten(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		o.bucket.forgets = true
		o.lock("a dead one", 0)
		pass(abandoned - time.Second)
		if o.holder("a") == "" {
			t.Fatal("a lock is not seen")
		}
		pass(2 * time.Second)
		if o.holder("a") != "" {
			t.Error("still held long after the last renewal")
		}
		if o.lock("the next", 0); o.holder("a") != "the next" {
			t.Error("not taken")
		}
	})
}
