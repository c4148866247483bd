package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// record is the stored form of a change: of several settings, all or none.
type record []struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Was     string `json:"was"`
}

// Change is one change of one setting, as recorded in the history. Those that were made together have the same number.
type Change struct {
	// N numbers the changes from 1, without gaps unless a key was written by hand. 0 where the key is no number.
	N uint64 `json:"change"`
	// Revision is the bucket's, rising.
	Revision uint64 `json:"revision"`
	Setting  string `json:"setting"`
	// Value is the new value, and Was the one before; null is the default.
	Value json.RawMessage `json:"value"`
	Was   json.RawMessage `json:"was"`
	By    string          `json:"by"`
	At    time.Time       `json:"at"`
	// Ignored is the reason why the change is not in force, nor ever was; "" where it is or was.
	Ignored string `json:"ignored,omitempty"`
}

// changesOf is a change as users see it, one for each setting. Of one that cannot be read they see the text.
func changesOf(c *registry.Change[record]) (all []Change) {
	of := Change{N: c.N, Revision: c.Revision, By: c.By, At: c.At, Ignored: c.Ignored, Was: json.RawMessage(null)}
	for _, one := range c.Record {
		k, err := find(one.Setting)
		if err != nil || c.Ignored != "" {
			k.kind = Text
		}
		of.Setting, of.Value, of.Was = one.Setting, k.json(one.Value), k.json(one.Was)
		all = append(all, of)
	}
	if len(all) == 0 {
		of.Value, _ = json.Marshal(wire.Shorten(strings.ToValidUTF8(string(c.Value), "\uFFFD"), 200)) // never fails
		all = append(all, of)
	}
	return all
}

// Options for Open.
type Options struct {
	// Defaults are in force where nothing was set. Defaults to Default.
	Defaults *Settings
	// Logger defaults to slog.Default.
	Logger *slog.Logger
	// Clock stamps changes. Nil is the machine's.
	Clock wall.Clock
	// Audit records changes; nil = nothing is recorded.
	Audit *audit.Log
}

// Store is the history of the settings. It may be used by several goroutines at once.
type Store struct {
	registry *registry.Registry[*State, record]
	defaults *Settings
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
	defaults := opts.Defaults.clone()
	spec := &registry.Spec[*State, record]{
		Bucket: topology.Settings, Noun: "settings", See: "`scrip config changes`",
		Restore: "the first `scrip config set` starts a new history, and every other setting has its default then; restore the log from a backup, or set the settings again, pauses first",
		New:     func() *State { return newState(defaults) }, Take: (*State).take,
		Audit: audit.Settings, Entry: func(_ *State, c *registry.Change[record]) (action, about string) {
			return "set", c.Record.String()
		},
	}
	return &Store{registry.New(js, spec, registry.Options{Logger: opts.Logger, Clock: opts.Clock, Audit: opts.Audit}), defaults}, nil
}

// Read folds all changes that were stored before the call, and perhaps later ones. ctx bounds the retries to a server that
// does not answer. Without a bucket there are no changes.
func (s *Store) Read(ctx context.Context) (*State, error) {
	f, err := s.registry.Read(ctx)
	if err != nil {
		return nil, err
	}
	f.State.Ignored = f.Ignored
	return f.State, nil
}

// History returns all changes, oldest first, the ignored ones with the reason. Errors as of Read.
func (s *Store) History(ctx context.Context) ([]Change, error) {
	f, err := s.registry.Read(ctx)
	if err != nil {
		return nil, err
	}
	var all []Change
	for i := range f.Changes {
		all = append(all, changesOf(&f.Changes[i])...)
	}
	return all, nil
}

// ErrChanged: the settings have changed since the version that a change is for.
var ErrChanged = errors.New("the settings have changed since; read them again")

// Set changes settings, all or none. It returns when the change is stored: it is then in force within a second at every server
// that can be reached. version, if not nil, is the revision that the change is for, else the error is of kind ErrChanged. A setting
// that has the value already is set all the same: author and time are part of the history. Errors as of
// [registry.Registry.Write]; *InvalidError names the setting.
func (s *Store) Set(ctx context.Context, values Object, version *uint64, by access.Author) ([]Change, error) {
	next := make(record, len(values))
	for i, name := range slices.Sorted(maps.Keys(values)) {
		value, err := Check(name, values[name])
		if err != nil {
			return nil, err
		}
		next[i].Setting, next[i].Value = name, value
	}
	c, _, err := s.registry.Write(ctx, by.Entry(audit.Settings, "", ""), func(s *State, _ time.Time) (record, error) {
		if version != nil && *version != s.Revision {
			return nil, ErrChanged
		}
		for i := range next {
			next[i].Was = s.was(next[i].Setting)
		}
		return slices.Clone(next), nil
	})
	if err != nil && !errors.Is(err, registry.ErrUnrecorded) {
		return nil, err
	}
	return changesOf(&c), err
}

// String is the change for people.
func (r record) String() string {
	var all []string
	for _, one := range r {
		all = append(all, one.Setting+" "+one.Was+" → "+one.Value)
	}
	return strings.Join(all, ", ")
}

// skipRecord is the value of a skip list key. Readers need the key only.
type skipRecord struct {
	Stream   string    `json:"stream"`
	Sequence uint64    `json:"sequence"`
	SHA256   string    `json:"sha256"` // see eventlog.Hash
	By       string    `json:"by"`
	At       time.Time `json:"at"`
}

// Skip adds one message to the skip list, for good; it is named by its stream, sequence and hash. The caller has called
// eventlog.Stream.CheckSkip. A second call has no effect. ctx bounds the retries to a server that does not answer.
//
// A crash before the key is made leaves the skip list as it was. After it every reader that starts ignores the message.
func (s *Store) Skip(ctx context.Context, stream string, sequence uint64, hash, by string) error {
	err := wire.CheckBy("by", by)
	if err != nil {
		return err
	}
	value, err := json.Marshal(skipRecord{stream, sequence, hash, by, s.registry.Clock.Now().UTC()})
	if err == nil {
		err = s.registry.Add(ctx, eventlog.SkipKey(stream, sequence, hash), value)
	}
	if err != nil {
		return fmt.Errorf("adding message %d of stream %s to the skip list: %w", sequence, stream, err)
	}
	return nil
}
