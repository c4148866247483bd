package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/segments"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

const (
	// yieldTimes is the ratio of pause to work while the lanes are busy: the projector then uses a fifth of the time.
	yieldTimes = 4
	// yieldMost bounds one pause; it is more than four times the time of a full batch on a shared machine.
	yieldMost = 2 * time.Second
)

// Options of a projector. The zero value selects the defaults.
type Options struct {
	// Limits are the maximum of event lines and bytes in one transaction, exceeded by some messages at most: see
	// fill.Limits.
	Limits fill.Limits
	// Every is the minimum time between the starts of a lane's transactions, unless a full batch waits. The first
	// event after an idle time is written at once; a transaction for each of many single events would halve the rate of
	// claims. Defaults to 100 ms.
	Every time.Duration
	// Load reports whether the lanes need the machine. While they are busy and less than half a core is
	// idle the projector works a fifth of the time: after a
	// transaction that took t it pauses for 4·t, at most 2 s, and projects one lane at a time, with all that arrived
	// in between, which costs less per event. The tables then lag, and catch up within 10 ms of the end. In a burst no
	// transaction starts, for at most 1.5 s. Nil = never.
	Load *load.Meter
	// Keep returns for how many days coupons remain after their campaign has ended; 0 = for ever. Nil = that.
	Keep func() int
	// Trace makes the span of a batch with sampled steps, see package cmd/internal/trace; nil = there are no traces.
	Trace func(lane int, steps []string) (end func(error))
	// Clock is what waits between attempts go by. Defaults to wall.Machine.
	Clock wall.Clock
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Limits = o.Limits.OrDefault()
	if o.Every == 0 {
		o.Every = 100 * time.Millisecond
	}
	if o.Keep == nil {
		o.Keep = func() int { return 0 }
	}
	if o.Clock == nil {
		o.Clock = wall.Machine
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Projector folds a log into the read tables of one database.
type Projector struct {
	db    *pgxpool.Pool
	log   topology.Log
	opts  Options
	lanes []*follower

	throttle *load.Throttle
	segments atomic.Pointer[segments.Set] // nil: this projector fills no tables

	// postgres and nats log the start and the end of an outage once.
	postgres, nats *outage
	faults         faults
	signals        signals
}

// signals are what tests wait for.
type signals struct {
	progress testsignal.Signal[Progress] // of a lane, whenever it has changed; it is logged by then
	outage   testsignal.Signal[string]   // the start or the end of one was logged
}

// faults are called around a commit, for fault injection in tests. Nil in production.
type faults struct {
	beforeCommit func(lane int, backend uint32)
	afterCommit  func(lane int) error // an error replaces the reply to the commit
}

// New prepares a projector of a log into a database. It starts no goroutine and sends no query: PostgreSQL may be
// unavailable. The pool needs at least two connections; lanes share them.
func New(db *pgxpool.Pool, js jetstream.JetStream, log topology.Log, opts Options) (*Projector, error) {
	switch {
	case log.UUID == "" || log.Lanes < 1:
		return nil, fmt.Errorf("projector: the log has no identity; ensure it first")
	case db.Config().MaxConns < 2:
		return nil, fmt.Errorf("projector: pool_max_conns is %d; it must be 2 or more", db.Config().MaxConns)
	case opts.Limits.Lines < 0 || opts.Limits.Bytes < 0:
		return nil, fmt.Errorf("projector: Limits must not be negative")
	}
	opts = opts.withDefaults()
	p := &Projector{
		db: db, log: log, opts: opts, throttle: &load.Throttle{Level: opts.Load.Pressed, Times: yieldTimes, Longest: yieldMost},
	}
	p.postgres = &outage{what: "PostgreSQL", log: opts.Logger, clock: opts.Clock, noticed: &p.signals.outage}
	p.nats = &outage{what: "the log", log: opts.Logger, clock: opts.Clock, noticed: &p.signals.outage}
	for n := range log.Lanes {
		p.lanes = append(p.lanes, newFollower(p, js, n))
	}
	return p, nil
}

var (
	// errLockLost: the connection that held the lock broke.
	errLockLost = errors.New("the connection that held the projector's lock is lost")
	// errDropped: the read tables were dropped.
	errDropped = errors.New("the read tables were dropped")
	// errExchanged: a rebuild or its undo exchanged the tables.
	errExchanged = errors.New("the read tables were exchanged")
)

// Run projects until ctx ends, and then returns nil. Failures are retried, resolved or shown in Progress.
func (p *Projector) Run(ctx context.Context) error {
	defer p.each(func(l *follower) { l.progress.state(Ended, nil) })
	pause := newPause()
	for ctx.Err() == nil {
		worked, err := p.runWithLock(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if worked {
			pause.Reset()
		}
		p.handleRunError(ctx, err)
		p.pause(ctx, pause.NextBackOff())
	}
	return nil
}

// pause returns after d, or when ctx ends.
func (p *Projector) pause(ctx context.Context, d time.Duration) {
	select {
	case <-p.opts.Clock.After(d):
	case <-ctx.Done():
	}
}

// handleRunError logs once why the projector starts again.
func (p *Projector) handleRunError(ctx context.Context, err error) {
	switch {
	case errors.Is(err, schema.ErrUnusable):
		logged := false
		p.each(func(l *follower) { logged = logged || l.progress.is(Stopped) })
		if !logged {
			p.opts.Logger.ErrorContext(ctx, "the projector stopped for all lanes", "err", err)
		}
		p.each(func(l *follower) { l.progress.state(Stopped, err) })
	case errors.Is(err, fill.ErrFenced), errors.Is(err, errDropped), errors.Is(err, errExchanged), errors.Is(err, errLockLost):
		p.opts.Logger.WarnContext(ctx, "projector starts again", "reason", err)
		p.each(func(l *follower) { l.progress.state(Waiting, err) })
		if errors.Is(err, errLockLost) { // PostgreSQL may be available again, but earlier connections are unusable
			p.db.Reset()
		}
	default:
		p.postgres.start(ctx, nil, err)
		p.each(func(l *follower) { l.progress.state(Waiting, err) })
	}
}

// runWithLock acquires the lock, creates the tables if there are none and runs the lanes until one of them fails or the lock is lost.
// worked is true if lanes were run.
func (p *Projector) runWithLock(ctx context.Context) (worked bool, err error) {
	lock, err := p.acquire(ctx)
	if err != nil {
		return false, err
	}
	// Closing the connection releases the lock, also when the database hangs.
	defer lock.close()
	if _, err := schema.Ensure(ctx, p.db, p.opts.Logger); err != nil {
		return false, err
	}
	p.postgres.endAll(ctx)
	now, err := schema.Current(ctx, p.db)
	if err != nil {
		return false, err
	}
	if err := fill.Fence(ctx, p.db, now.Live, p.log.UUID, p.log.Lanes); err != nil {
		return false, err
	}
	defer p.each(func(l *follower) { l.progress.forget() })
	if _, err := p.record(ctx, lock.conn, nil); err != nil {
		return false, err
	}
	defer lock.forget()
	set, err := segments.Open(ctx, p.db, now.Live, segments.Options{})
	if err != nil {
		return false, err
	}
	p.segments.Store(set)
	defer p.segments.Store(nil)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.watch(ctx, lock, now.Live) })
	g.Go(func() error { return p.measure(ctx) })
	g.Go(func() error {
		if err := set.Run(ctx); !tables.Missing(err) {
			return err
		}
		return errDropped
	})
	for _, l := range p.lanes {
		l.tables.Schema, l.tables.Segments = now.Live, set
		g.Go(func() error { return l.run(ctx) })
	}
	return true, g.Wait()
}

func (p *Projector) each(f func(*follower)) {
	for _, l := range p.lanes {
		f(l)
	}
}
