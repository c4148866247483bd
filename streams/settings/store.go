package settings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Options for Open.
type Options struct {
	// Replicas of the bucket, if it has to be made. 0 = as many as the log has.
	Replicas int
	// Defaults are in force where nothing was set. Defaults to Default.
	Defaults *Settings
	// Logger defaults to slog.Default.
	Logger *slog.Logger
	// Now is the clock that changes are stamped with. Defaults to time.Now.
	Now func() time.Time
}

// Store is the history of the settings. It may be used by several goroutines at once.
type Store struct {
	js   jetstream.JetStream
	opts Options
}

// Open prepares a store; it sends no request and makes nothing. The first Set or Live.Run makes the bucket. The error names
// the defaults that are not valid.
func Open(_ context.Context, js jetstream.JetStream, opts Options) (*Store, error) {
	if opts.Defaults == nil {
		opts.Defaults = Default()
	}
	if err := opts.Defaults.Validate(); err != nil {
		return nil, fmt.Errorf("the defaults of the settings are not valid: %w", err)
	}
	opts.Defaults = opts.Defaults.clone()
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Store{js, opts}, nil
}

// Read folds all changes that were stored before the call, and perhaps later ones. ctx bounds the retries to a server that
// does not answer. Without a bucket there are no changes.
func (s *Store) Read(ctx context.Context) (*State, error) {
	var state *State
	err := retry(ctx, func(ctx context.Context) (err error) {
		state, err = s.read(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the settings: %w", err)
	}
	return state, nil
}

// read is one attempt of Read.
func (s *Store) read(ctx context.Context) (*State, error) {
	state := newState(s.opts.Defaults)
	f, err := follow(ctx, s.js)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return state, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.stop()
	for state.Revision < f.until {
		select {
		case c := <-f.changes:
			state.apply(c)
		case err := <-f.trouble:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return state, nil
}

// History returns all changes, oldest first, the ignored ones with the reason. Errors as of Read.
func (s *Store) History(ctx context.Context) ([]Change, error) {
	state, err := s.Read(ctx)
	if err != nil {
		return nil, err
	}
	return state.Changes(), nil
}

// ErrUnknown is the kind of error after which the change may have been stored or not.
var ErrUnknown = errors.New("it is not known whether the change was stored")

// Set changes a setting; by names the author. It returns when the change is stored: it is then in force within a second at
// every server that can be reached. value [ToDefault] restores the default. A setting that has the value already is set all
// the same: author and time are part of the history.
//
// ctx bounds the retries to a server that does not answer. Errors: *InvalidError, and nothing was stored; of kind
// ErrUnknown, see there; any other, and nothing was stored.
func (s *Store) Set(ctx context.Context, setting, value, by string) (Change, error) {
	value, err := Check(setting, value)
	if err != nil {
		return Change{}, err
	}
	if err := CheckBy(by); err != nil {
		return Change{}, &InvalidError{Setting: setting, Value: value, Problem: err.Error()}
	}
	w := &writing{Store: s, change: Change{Setting: setting, Value: value, By: by, At: s.opts.Now().UTC()}}
	err = retry(ctx, w.try)
	var invalid *InvalidError
	switch {
	case err == nil:
		return w.change, nil
	case errors.As(err, &invalid):
		return Change{}, err
	case w.sent != 0:
		return Change{}, fmt.Errorf("%w: %w; see `scrip config history`", ErrUnknown, err)
	}
	return Change{}, fmt.Errorf("nothing was stored: %w", err)
}

// writing is one run of Set.
type writing struct {
	*Store
	change Change
	sent   uint64 // the first number of a write whose result is not known; 0 = none
}

// try writes under the number after the last one, unless an earlier try turns out to have succeeded. An earlier write that
// is in flight cannot be stored later: its number is taken by then, by this try or by another change.
func (w *writing) try(ctx context.Context) error {
	state, err := w.read(ctx)
	if err != nil {
		return err
	}
	if w.sent != 0 {
		if c, ok := state.stored(&w.change, w.sent); ok {
			w.change = c
			return nil
		}
	}
	c := w.change
	c.N, c.Was = state.next(), state.was(c.Setting)
	value, err := c.encode()
	if err != nil {
		return final{err}
	}
	// The whole record is checked, not only the new value.
	if judged := state.apply(c); judged.Ignored != "" {
		return final{&InvalidError{Setting: c.Setting, Value: c.Value, Problem: judged.Ignored}}
	}
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	kv, err := w.bucket(ctx)
	if err != nil {
		return err
	}
	c.Revision, err = kv.Create(ctx, changeKey(c.N), value)
	var answered *jetstream.APIError
	switch {
	case err == nil:
		w.change = c
		return nil
	case errors.Is(err, jetstream.ErrKeyExists): // another change was faster, or it is an earlier try
	case !errors.As(err, &answered) && w.sent == 0:
		w.sent = c.N
	}
	return fmt.Errorf("storing change %d: %w", c.N, err)
}
