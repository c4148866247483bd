package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// The kinds of errors of a change that may be stored, or is.
var (
	// ErrUnknown: the change may be stored or not. A retry is safe, and makes another change.
	ErrUnknown = errors.New("it is not known whether the change was stored")
	// ErrUnrecorded: the change is stored and in force, and its entry in the audit stream may be missing.
	ErrUnrecorded = errors.New("the change is stored, but not recorded in the audit stream")
	// ErrUnchanged is returned by the function that makes a record: the state is as wanted, so nothing is stored. The audit stream
	// has it all the same: a try before may have failed to record it.
	ErrUnchanged = errors.New("nothing has to be stored")
)

// InvalidError: the change is not valid, and nothing was stored.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }

func (e *InvalidError) Unwrap() error { return e.Err }

// Spec is what a registry is about: records of type R, which are folded into a state of type S.
type Spec[S, R any] struct {
	Bucket topology.GrowingBucket
	// Noun names what is registered, such as "keys". See is where an operator looks after a change whose result is not known, and
	// Restore what to do after the bucket was lost.
	Noun, See, Restore string
	// New returns the state before the first change, a pointer or a map. Take folds a change into it, or returns the reason why
	// that is ignored and changes nothing.
	New  func() S
	Take func(S, *Change[R]) error
	// Kept reports whether a change with fields that this version does not know counts all the same; nil = none does.
	Kept func(*R) bool
	// Audit is the kind of the entries in the audit stream. Entry returns what the entry of a change has, given the state after
	// the change; action "" = it has none.
	Audit audit.Kind
	Entry func(S, *Change[R]) (action, about string)
}

// Options for New.
type Options struct {
	// Logger defaults to slog.Default.
	Logger *slog.Logger
	// Clock stamps changes. Nil is the machine's.
	Clock wall.Clock
	// Audit records changes; nil = nothing is recorded.
	Audit *audit.Log
}

// Registry is a history of changes. It may be used by several goroutines at once.
type Registry[S, R any] struct {
	Options
	// History is the bucket; tests replace it.
	History History

	spec   *Spec[S, R]
	bucket bucket
}

// History is what changes are written to and read from, as bucket describes it.
type History interface {
	Create(ctx context.Context, key string, value []byte) (revision uint64, unknown bool, err error)
	Read(ctx context.Context, start func(), f func(Message)) error
}

// New prepares a registry; it sends no request and makes nothing. The first Write or Live.Run makes the bucket.
func New[S, R any](js jetstream.JetStream, spec *Spec[S, R], o Options) *Registry[S, R] {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Clock == nil {
		o.Clock = wall.Machine
	}
	b := bucket{js, spec.Bucket, o.Logger}
	return &Registry[S, R]{Options: o, History: b, spec: spec, bucket: b}
}

// Fold returns the fold before the first change.
func (r *Registry[S, R]) Fold() *Fold[S, R] { return &Fold[S, R]{State: r.spec.New(), spec: r.spec} }

// Read folds all changes that were stored before the call, and perhaps later ones. ctx bounds the retries to a server that
// does not answer. Without a bucket there are no changes.
func (r *Registry[S, R]) Read(ctx context.Context) (*Fold[S, R], error) {
	var f *Fold[S, R]
	err := r.History.Read(ctx, func() { f = r.Fold() }, func(m Message) { f.Apply(m) })
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", r.spec.Noun, err)
	}
	return f, nil
}

// Add stores an entry of another kind in the bucket, for good, under a key that is no change's. A second call has no effect. ctx
// bounds the retries to a server that does not answer.
func (r *Registry[S, R]) Add(ctx context.Context, key string, value []byte) error {
	return retry(ctx, func(ctx context.Context) error {
		_, _, err := r.History.Create(ctx, key, value)
		if errors.Is(err, jetstream.ErrKeyExists) {
			return nil
		}
		return err
	})
}
