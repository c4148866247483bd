package changelog

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// followAgain is the pause before a reader is replaced. With it, and the time that this takes, a change made in between
	// is in force within a second.
	followAgain = 100 * time.Millisecond
	// LookEvery is the interval of requests to the bucket's leader for its newest change: it, or another one, must have been
	// delivered before the next request.
	LookEvery = 5 * time.Second
)

// Fold is what a Follower keeps current. Its methods are called by the goroutine of Run.
type Fold interface {
	// Begin begins a fold from the first change. What was put in force before stays so until Current.
	Begin()
	// Apply folds the next change.
	Apply(Message)
	// Current puts the fold in force: all changes have been applied. It is called again after each further one. lost: the
	// history ends before what was in force, so the bucket was lost. An error: the fold is not put in force.
	Current(lost bool) error
	// Trouble records why changes are not received, or why Current did not put the fold in force.
	Trouble(error)
}

// Follower folds a history on one server.
type Follower struct {
	Bucket Bucket
	Fold   Fold
	// Every defaults to LookEvery. Tests use a shorter time.
	Every time.Duration

	// The fields below are owned by Run.
	seen    bool   // the bucket existed
	current uint64 // revision of the last change in force; a bucket that ends before it is another one
}

// The kinds of trouble, beside errors of the server.
var (
	// ErrDisconnected and ErrBehind are resolved at once, by another reader.
	ErrDisconnected = errors.New("there is no connection to NATS")
	ErrBehind       = errors.New("a change was not delivered")
	// ErrMissing: the bucket was lost while this server ran.
	ErrMissing = errors.New("the bucket is missing")
)

// Run keeps the fold current until ctx ends, and then returns nil. It retries after every failure; meanwhile what is in force
// stays. It may be run once.
func (f *Follower) Run(ctx context.Context) error {
	if f.Every <= 0 {
		f.Every = LookEvery
	}
	tick := time.NewTicker(followAgain)
	defer tick.Stop()
	for {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil { // nil: the bucket was made
			f.Fold.Trouble(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// follow folds all changes from the first, and continues with each new one, until there is trouble. What is in force stays
// so until all have been read.
func (f *Follower) follow(ctx context.Context) error {
	nc := f.Bucket.JS.Conn()
	broken := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(broken)
	r, err := f.Bucket.open(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return f.missing(ctx)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if err := f.checkBucket(ctx); err != nil {
		return err
	}
	f.Fold.Begin()
	revision, expected, read := uint64(0), r.until, r.until
	lost := r.until < f.current
	if r.until == 0 {
		f.put(0, lost)
	}
	look := time.NewTicker(f.Every)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-broken:
			return ErrDisconnected
		case <-r.Ready():
			err := r.take(func(m Message) {
				f.Fold.Apply(m)
				if revision = m.Revision; revision >= r.until {
					f.put(revision, lost)
				}
			})
			if err != nil {
				return err
			}
		case <-look.C:
			// The feed notices by itself that it lags; until it has caught up, the status must show it. While changes arrive it
			// does not lag: a long history takes its time.
			if revision < expected && revision == read {
				return ErrBehind
			}
			read = revision
			if expected, err = f.Bucket.Newest(ctx); err != nil {
				return err
			}
		}
	}
}

// put puts the fold in force.
func (f *Follower) put(revision uint64, lost bool) {
	if err := f.Fold.Current(lost); err != nil {
		f.Fold.Trouble(err)
		return
	}
	f.current = revision
}

// missing makes the bucket if it never existed. Until there is one, nothing counts as read: a node that lags reports every
// stream as missing.
func (f *Follower) missing(ctx context.Context) error {
	if f.seen {
		return ErrMissing
	}
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	return f.Bucket.Make(ctx) // nil: follow it
}

// checkBucket logs, once, if changes in the bucket can be replaced or removed.
func (f *Follower) checkBucket(ctx context.Context) error {
	if f.seen {
		return nil
	}
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	stream, err := f.Bucket.JS.Stream(ctx, f.Bucket.Spec.Stream())
	if err != nil {
		return err
	}
	f.seen = true
	if !topology.GrowsOnly(stream.CachedInfo().Config) {
		f.Bucket.logger().WarnContext(ctx, "the bucket was not made by scrip, and changes in it may be replaced or removed; see nats stream edit "+f.Bucket.Spec.Stream(), "bucket", f.Bucket.Spec.Bucket)
	}
	return nil
}
