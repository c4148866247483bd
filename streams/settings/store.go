package settings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// Options for Open.
type Options struct {
	// Defaults are in force where nothing was set. Defaults to Default.
	Defaults *Settings
	// Logger defaults to slog.Default.
	Logger *slog.Logger
	// Clock stamps changes. Nil is the machine's.
	Clock wall.Clock
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
	if opts.Clock == nil {
		opts.Clock = wall.Machine
	}
	return &Store{js, opts}, nil
}

// Read folds all changes that were stored before the call, and perhaps later ones. ctx bounds the retries to a server that
// does not answer. Without a bucket there are no changes.
func (s *Store) Read(ctx context.Context) (*State, error) {
	var state *State
	err := s.bucket().Read(ctx, func() { state = newState(s.opts.Defaults) }, func(m changelog.Message) { state.apply(parseMessage(m)) })
	if err != nil {
		return nil, fmt.Errorf("reading the settings: %w", err)
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
var ErrUnknown = changelog.ErrUnknown

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
	w := &writing{store: s, change: Change{Setting: setting, Value: value, By: by, At: s.opts.Clock.Now().UTC()}}
	revision, err := s.bucket().Write(ctx, w)
	switch {
	case errors.Is(err, ErrUnknown):
		return Change{}, fmt.Errorf("%w; see `scrip config history`", err)
	case err != nil:
		return Change{}, err
	case revision != 0:
		w.change.Revision = revision
	}
	return w.change, nil
}

// writing is a change that is being stored: a [changelog.Change].
type writing struct {
	store  *Store
	state  *State
	change Change
}

func (w *writing) Begin() { w.state = newState(w.store.opts.Defaults) }

func (w *writing) Apply(m changelog.Message) { w.state.apply(parseMessage(m)) }

func (w *writing) Stored(from uint64) bool {
	stored, ok := w.state.stored(&w.change, from)
	if ok {
		w.change = stored
	}
	return ok
}

func (w *writing) Record() (n uint64, value []byte, err error) {
	c := &w.change
	c.N, c.Was = w.state.Next(), w.state.was(c.Setting)
	if value, err = c.encode(); err != nil {
		return 0, nil, fmt.Errorf("nothing was stored: %w", err)
	}
	// The whole record is checked, not only the new value.
	if judged := w.state.apply(*c); judged.Ignored != "" {
		return 0, nil, &InvalidError{Setting: c.Setting, Value: c.Value, Problem: judged.Ignored}
	}
	return c.N, value, nil
}
