package settings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
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
	r, err := s.open(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return state, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for state.Revision < r.until {
		select {
		case <-r.Ready():
			if err := r.take(func(c Change) { state.apply(c) }); err != nil {
				return nil, err
			}
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
	c := Change{Setting: setting, Value: value, By: by, At: s.opts.Now().UTC()}
	// sent is the first number of a write whose result is not known, 0 = none. A write that is in flight cannot be stored
	// later: its number is taken by then, by another try or by another change.
	sent := uint64(0)
	for {
		state, err := s.Read(ctx)
		if err != nil {
			return Change{}, notStored(sent, err)
		}
		if stored, ok := state.stored(&c, sent); ok && sent != 0 {
			return stored, nil
		}
		c.N, c.Was = state.next(), state.was(setting)
		record, err := c.encode()
		if err != nil {
			return Change{}, notStored(sent, err)
		}
		// The whole record is checked, not only the new value.
		if judged := state.apply(c); judged.Ignored != "" {
			return Change{}, &InvalidError{Setting: setting, Value: value, Problem: judged.Ignored}
		}
		unknown, err := s.create(ctx, &c, record)
		if err == nil {
			return c, nil
		}
		if unknown && sent == 0 {
			sent = c.N
		}
		if topology.Pause(ctx, retryPause) != nil {
			return Change{}, notStored(sent, fmt.Errorf("%w; the last try: storing change %d: %w", context.Cause(ctx), c.N, err))
		}
	}
}

// create stores a change under its number, within attempt. After an error, unknown is true if it may be stored all the same.
// A crash in it leaves the change stored or not.
func (s *Store) create(ctx context.Context, c *Change, record []byte) (unknown bool, err error) {
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	kv, err := s.bucket(ctx)
	if err != nil {
		return false, err
	}
	// A key that exists is of another change, or of an earlier try. All other errors are not definite: a disk that fills up
	// may fail after the write.
	c.Revision, err = kv.Create(ctx, changeKey(c.N), record)
	return !errors.Is(err, jetstream.ErrKeyExists), err
}

// notStored is the error of a Set that ended for good; sent is described there.
func notStored(sent uint64, err error) error {
	if sent != 0 {
		return fmt.Errorf("%w: %w; see `scrip config history`", ErrUnknown, err)
	}
	return fmt.Errorf("nothing was stored: %w", err)
}
