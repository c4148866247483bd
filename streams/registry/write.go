package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// valueMost bounds the value of a change: topology.MaxGrowing without headers.
const valueMost = topology.MaxGrowing - 1<<10

// Write stores a change under the number after the last one, and records it in the audit stream. by is the entry there without
// what was done. It returns the change, and the state after it. Two writers at once both succeed, one after the other: f makes
// the record for the state that the change is appended to, so it may be called several times; its error is final.
//
// ctx bounds the retries to a server that does not answer. Errors: *InvalidError; of kinds ErrUnknown and ErrUnrecorded; that
// of f; any other. Nothing was stored, unless the kind is ErrUnknown or ErrUnrecorded.
//
// A crash before the entry leaves a change without one. It was not answered, and the history has its author.
func (r *Registry[S, R]) Write(ctx context.Context, by audit.Entry, f func(state S, at time.Time) (R, error)) (Change[R], S, error) {
	var c Change[R]
	var state S
	err := wire.CheckBy("by", by.Actor)
	if err != nil {
		return c, state, &InvalidError{err}
	}
	if c, state, err = r.store(ctx, by.Actor, f); err != nil {
		if errors.Is(err, ErrUnknown) {
			err = fmt.Errorf("%w; see %s", err, r.spec.See)
		}
		return c, state, err
	}
	by.Kind = r.spec.Audit
	if by.Action, by.About = r.spec.Entry(state, &c); by.Action == "" {
		return c, state, nil
	}
	if err := r.Audit.Append(ctx, by); err != nil {
		return c, state, fmt.Errorf("%w: %s %s: %w; see %s", ErrUnrecorded, by.Action, by.About, err, r.spec.See)
	}
	return c, state, nil
}

// store is Write without the audit stream.
func (r *Registry[S, R]) store(ctx context.Context, by string, f func(S, time.Time) (R, error)) (c Change[R], state S, err error) {
	at := r.Clock.Now().UTC()
	// sent is the first number of a write whose result is not known, 0 = none, and tried the values of all writes. A write that
	// is in flight cannot be stored later: its number is taken by then, by another try or by another change.
	sent := uint64(0)
	var tried [][]byte
	for {
		fold, err := r.Read(ctx)
		if err != nil {
			return c, state, notStored(sent, err)
		}
		if sent != 0 {
			own := func(c Change[R]) bool {
				return c.N >= sent && slices.ContainsFunc(tried, func(v []byte) bool { return bytes.Equal(v, c.Value) })
			}
			if at := slices.IndexFunc(fold.Changes, own); at >= 0 {
				return fold.Changes[at], fold.State, nil
			}
		}
		record, err := f(fold.State, at)
		c = Change[R]{N: fold.next(), Record: record, By: by, At: at}
		switch {
		case errors.Is(err, ErrUnchanged):
			return c, fold.State, nil
		case err != nil:
			return c, state, err
		}
		if err := fold.check(&c); err != nil {
			return c, state, err
		}
		tried = append(tried, c.Value)
		revision, unknown, err := r.History.Create(ctx, Key(c.N), c.Value)
		if err == nil {
			c.Revision = revision
			return c, fold.State, nil
		}
		if unknown && sent == 0 {
			sent = c.N
		}
		if natsx.Pause(ctx, retryPause) != nil {
			return c, state, notStored(sent, fmt.Errorf("%w; the last try: storing change %d: %w", context.Cause(ctx), c.N, err))
		}
	}
}

// check encodes the next change, and folds it as every server will.
func (f *Fold[S, R]) check(c *Change[R]) error {
	if err := c.Encode(); err != nil {
		return fmt.Errorf("nothing was stored: %w", err)
	}
	if len(c.Value) > valueMost {
		return &InvalidError{fmt.Errorf("the change has %d bytes, at most %d can be stored; leave something out", len(c.Value), valueMost)}
	}
	if judged := f.Apply(Message{Key: Key(c.N), Value: c.Value}); judged.Ignored != "" {
		return &InvalidError{errors.New(judged.Ignored)}
	}
	return nil
}

// notStored is the error of a Write that ended for good; sent is described there.
func notStored(sent uint64, err error) error {
	if sent != 0 {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return fmt.Errorf("nothing was stored: %w", err)
}
