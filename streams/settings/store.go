package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// record is the stored part of a Change.
type record struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Was     string `json:"was"`
}

// Change is one change of one setting, as recorded in the history.
type Change struct {
	// N numbers the changes from 1, without gaps unless a key was written by hand. 0 where the key is no number.
	N uint64 `json:"change"`
	// Revision is the bucket's, rising.
	Revision uint64 `json:"revision"`
	Setting  string `json:"setting"`
	// Value is the new value; ToDefault restores the default.
	Value string `json:"value"`
	// Was is the value before, or ToDefault.
	Was string    `json:"was"`
	By  string    `json:"by"`
	At  time.Time `json:"at"`
	// Ignored is the reason why the change is not in force, nor ever was; "" where it is or was.
	Ignored string `json:"ignored,omitempty"`
}

// changeOf is a change as users see it. Of one that cannot be read they see the text.
func changeOf(c registry.Change[record]) Change {
	r := c.Record
	if c.Ignored != "" && r.Setting == "" {
		r.Value = wire.Shorten(strings.ToValidUTF8(string(c.Value), "\uFFFD"), 200)
	}
	return Change{c.N, c.Revision, r.Setting, r.Value, r.Was, c.By, c.At, c.Ignored}
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
			return "set", c.Record.Setting + " " + c.Record.Was + " → " + c.Record.Value
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
	f.State.Revision, f.State.Ignored = f.Last().Revision, f.Ignored
	return f.State, nil
}

// History returns all changes, oldest first, the ignored ones with the reason. Errors as of Read.
func (s *Store) History(ctx context.Context) ([]Change, error) {
	f, err := s.registry.Read(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Change, len(f.Changes))
	for i, c := range f.Changes {
		all[i] = changeOf(c)
	}
	return all, nil
}

// Set changes a setting. It returns when the change is stored: it is then in force within a second at every server that can be
// reached. value [ToDefault] restores the default. A setting that has the value already is set all the same: author and time
// are part of the history. Errors as of [registry.Registry.Write]; *InvalidError names the setting.
func (s *Store) Set(ctx context.Context, setting, value string, by access.Author) (Change, error) {
	value, err := Check(setting, value)
	if err != nil {
		return Change{}, err
	}
	c, _, err := s.registry.Write(ctx, by.Entry(audit.Settings, "", ""), func(s *State, _ time.Time) (record, error) {
		return record{Setting: setting, Value: value, Was: s.was(setting)}, nil
	})
	if err != nil && !errors.Is(err, registry.ErrUnrecorded) {
		return Change{}, err
	}
	return changeOf(c), err
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
