package changelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// ErrUnknown is the kind of errors after which a change may be stored or not; a retry is safe where the writer recognises
// its own change.
var ErrUnknown = errors.New("it is not known whether the change was stored")

// Change is one that is to be stored. Its methods are called in turn by [Bucket.Write].
type Change interface {
	// Begin begins a fold of the history, and Apply folds its next change: the change is made for the state after the last.
	Begin()
	Apply(Message)
	// Stored reports whether the folded history has this change under number from or a later one. It is called after a write
	// whose result is not known.
	Stored(from uint64) bool
	// Record returns the change's number, which is the next one, and its value. The error is final: nothing is stored.
	Record() (n uint64, value []byte, err error)
}

// Write stores a change under the number after the last one. It returns when the change is stored, and its revision, 0 if
// an earlier try of this call had stored it. Two writers at once both succeed, one after the other: each makes its record
// for the history that it is appended to.
//
// ctx bounds the retries to a server that does not answer. Errors: of kind ErrUnknown; that of Record; any other. Nothing
// was stored, unless the kind is ErrUnknown.
func (b Bucket) Write(ctx context.Context, c Change) (revision uint64, err error) {
	// sent is the first number of a write whose result is not known, 0 = none. A write that is in flight cannot be stored
	// later: its number is taken by then, by another try or by another change.
	sent := uint64(0)
	for {
		if err := b.Read(ctx, c.Begin, c.Apply); err != nil {
			return 0, notStored(sent, err)
		}
		if sent != 0 && c.Stored(sent) {
			return 0, nil
		}
		n, value, err := c.Record()
		if err != nil {
			return 0, err
		}
		revision, unknown, err := b.create(ctx, n, value)
		if err == nil {
			return revision, nil
		}
		if unknown && sent == 0 {
			sent = n
		}
		if natsx.Pause(ctx, retryPause) != nil {
			return 0, notStored(sent, fmt.Errorf("%w; the last try: storing change %d: %w", context.Cause(ctx), n, err))
		}
	}
}

// create stores a value under its number, within attempt. After an error, unknown is true if it may be stored all the same.
// A crash in it leaves the change stored or not.
func (b Bucket) create(ctx context.Context, n uint64, value []byte) (revision uint64, unknown bool, err error) {
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	kv, err := b.KV(ctx)
	if err != nil {
		return 0, false, err
	}
	// A key that exists is of another change, or of an earlier try. All other errors are not definite: a disk that fills up
	// may fail after the write.
	revision, err = kv.Create(ctx, Key(n), value)
	return revision, !errors.Is(err, jetstream.ErrKeyExists), err
}

// notStored is the error of a Write that ended for good; sent is described there.
func notStored(sent uint64, err error) error {
	if sent != 0 {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return fmt.Errorf("nothing was stored: %w", err)
}
