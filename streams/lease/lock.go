package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// LockTTL is how long a lock outlives its holder. The server counts in whole seconds.
	LockTTL = 10 * time.Second
	// lockRenewal allows two renewals to be lost.
	lockRenewal = 3 * time.Second
	// lockAttempt bounds one request.
	lockAttempt = 2 * time.Second
	// lockPoll is how often TakeLock checks whether the lock is free.
	lockPoll = 250 * time.Millisecond

	lockPrefix = "hold."
)

// RestoreLock is the lock of a restore on a NATS server.
const RestoreLock = "restore"

// PurgeLock is the lock against purges of a lane's commands.
func PurgeLock(lane int) string { return "purge-" + strconv.Itoa(lane) }

// ErrLockLost ends Lock.Run: the lock expired, or another holder has it.
var ErrLockLost = errors.New("lock lost")

// LockedError: another holder has the lock, and renews it.
type LockedError struct {
	Name string
	Note Note
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s has held %q since %s", e.Note.By, e.Name, e.Note.Since.Format(time.RFC3339))
}

// Note describes the holder of a lock.
type Note struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	Nonce string    `json:"nonce"`
}

// Lock is a lock that this process has. It is used by one goroutine at a time.
type Lock struct {
	bucket   store
	name     string
	note     Note
	revision uint64
	renewed  time.Time // when the last renewal that succeeded was sent
}

// TakeLock takes a lock. It waits for at most patience while another holder has it: the lock of a dead one expires after
// LockTTL. by describes this holder for people. Errors: *LockedError, and NATS not answering. Call Run and, in the end,
// Release.
func TakeLock(ctx context.Context, js jetstream.JetStream, name, by string, patience time.Duration) (*Lock, error) {
	return takeLock(ctx, lockStore(js), name, by, patience)
}

// lockStore is the bucket for locks; a write without responders is tried again.
func lockStore(js jetstream.JetStream) store {
	return natsStore{js: js, retries: jetstream.DefaultPubRetryAttempts}
}

func takeLock(ctx context.Context, bucket store, name, by string, patience time.Duration) (*Lock, error) {
	l := &Lock{bucket: bucket, name: name, note: Note{By: by, Since: time.Now().UTC().Truncate(time.Second), Nonce: uuid.NewString()}}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; {
		note, revision, held, err := readLock(ctx, bucket, name)
		if err != nil {
			return nil, fmt.Errorf("taking lock %q: %w", name, err)
		}
		if !held || note.Nonce == l.note.Nonce { // the latter: this call's write, whose answer was lost
			err := l.write(ctx, revision)
			if err == nil {
				return l, nil
			}
			if ctx.Err() != nil || time.Now().After(deadline) {
				return nil, fmt.Errorf("taking lock %q: %w", name, err)
			}
		} else if time.Now().After(deadline) {
			return nil, &LockedError{name, note}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Run renews the lock until ctx ends, and returns nil then, or ErrLockLost.
func (l *Lock) Run(ctx context.Context) error {
	tick := time.NewTicker(lockRenewal)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		// A renewal in flight is completed after ctx has ended: Release needs its revision.
		if err := l.renew(context.WithoutCancel(ctx)); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// renew writes the key again. An error is ignored until LockTTL is over.
func (l *Lock) renew(ctx context.Context) error {
	err := l.write(ctx, l.revision)
	if err == nil {
		return nil
	}
	note, revision, held, readErr := readLock(ctx, l.bucket, l.name)
	switch {
	case readErr == nil && held && note.Nonce == l.note.Nonce:
		l.revision = revision // this holder's renewal, whose answer was lost
	case readErr == nil:
		return fmt.Errorf("%w: %q expired or was taken by another holder", ErrLockLost, l.name)
	}
	if time.Since(l.renewed) > LockTTL {
		return fmt.Errorf("%w: %q could not be renewed for %s: %w", ErrLockLost, l.name, LockTTL, err)
	}
	return nil
}

// write writes the key with an expected revision and a TTL.
func (l *Lock) write(ctx context.Context, revision uint64) error {
	value, err := json.Marshal(l.note)
	if err != nil {
		return err
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(ctx, lockAttempt)
	defer cancel()
	revision, err = l.bucket.put(ctx, lockPrefix+l.name, value, LockTTL, revision)
	if err != nil {
		return err
	}
	l.revision, l.renewed = revision, sent
	return nil
}

// Release releases the lock. If that fails it expires.
func (l *Lock) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lockAttempt)
	defer cancel()
	if err := l.bucket.remove(ctx, lockPrefix+l.name, l.revision); err != nil {
		return fmt.Errorf("releasing lock %q, it expires in %s: %w", l.name, LockTTL, err)
	}
	return nil
}

// Locked returns the holder of a lock as the bucket's leader knows it: every call of Locked that starts after a TakeLock has
// returned sees its lock. Without a bucket no lock is held.
func Locked(ctx context.Context, js jetstream.JetStream, name string) (Note, bool, error) {
	note, _, held, err := readLock(ctx, lockStore(js), name)
	if err != nil {
		err = fmt.Errorf("reading lock %q: %w", name, err)
	}
	return note, held, err
}

// readLock reads from the leader. revision is that of the marker if there is one. A key older than abandoned counts as
// expired: see there. If clocks differ by more than that, purges and a second holder continue beside a living holder, which
// finds out as after any lost lock.
func readLock(ctx context.Context, bucket store, name string) (note Note, revision uint64, held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lockAttempt)
	defer cancel()
	u, found, err := bucket.last(ctx, lockPrefix+name)
	switch {
	case natsx.HasCode(err, jetstream.JSErrCodeStreamNotFound):
		return Note{}, 0, false, nil
	case err != nil || !found:
		return Note{}, 0, false, err
	case u.gone || json.Unmarshal(u.value, &note) != nil: // the latter: not a lock of this package
		return Note{}, u.revision, false, nil
	}
	return note, u.revision, time.Since(u.stored) < abandoned, nil
}
