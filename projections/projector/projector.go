package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Options of a projector. The zero value is fine.
type Options struct {
	// MaxLines is how many event lines one transaction applies at most, give or take a message. Defaults to 20,000:
	// above some thousand the cost per transaction no longer shows, and memory and the time to a first row grow.
	MaxLines int
	// MaxBytes bounds the same in bytes. Defaults to 8 MiB.
	MaxBytes int
	// Every is how far apart a lane's transactions begin at least, unless a full batch waits. A row after a quiet time is
	// there at once; a transaction for each of many single events would cost claims half of their speed. Defaults to
	// 100 ms.
	Every time.Duration
	// Busy says whether the lanes need the machine now, because commands wait for them. While it says true the projector
	// works a fifth of the time: after a transaction that took t it pauses for 4·t, at most 2 s, and lanes are
	// projected in turns, not in parallel. The tables then lag and catch up when it says false, which is noticed within
	// 10 ms; below load nothing changes. It is asked before and after each transaction and during pauses, from several
	// goroutines, and must return at once. Defaults to never.
	Busy func() bool
	// Rush says that much is being done for a moment that must not take longer than it has to, such as reminding a million
	// people in a second. While it says true no transaction is begun, for 1.5 s at most. Like Busy. Defaults to never.
	Rush func() bool
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.MaxLines == 0 {
		o.MaxLines = 20_000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 8 << 20
	}
	if o.Every == 0 {
		o.Every = 100 * time.Millisecond
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
	lanes []*lane
	yield *yielding

	// postgres and nats say once that something is away, and once that it is back.
	postgres, nats *outage
	faults         faults
}

// faults are called around a commit; tests break things there. Nil in production.
type faults struct {
	beforeCommit func(lane int, backend uint32)
	afterCommit  func(lane int) error // an error stands for an answer that never came
}

// New prepares a projector of a log into a database. It starts nothing and asks nobody: PostgreSQL may be away. The
// pool needs two connections at least; lanes share them.
func New(db *pgxpool.Pool, js jetstream.JetStream, log topology.Log, opts Options) (*Projector, error) {
	switch {
	case log.UUID == "" || log.Lanes < 1:
		return nil, fmt.Errorf("projector: the log has no identity; ensure it first")
	case db.Config().MaxConns < 2:
		return nil, fmt.Errorf("projector: pool_max_conns is %d; it must be 2 or more", db.Config().MaxConns)
	case opts.MaxLines < 0 || opts.MaxBytes < 0:
		return nil, fmt.Errorf("projector: MaxLines and MaxBytes must not be negative")
	}
	opts = opts.withDefaults()
	p := &Projector{
		db: db, log: log, opts: opts, yield: newYielding(opts.Busy, opts.Rush),
		postgres: &outage{what: "PostgreSQL", log: opts.Logger},
		nats:     &outage{what: "the log", log: opts.Logger},
	}
	for n := range log.Lanes {
		p.lanes = append(p.lanes, newLane(p, js, n))
	}
	return p, nil
}

var (
	// errLockLost: the connection that held the lock broke.
	errLockLost = errors.New("the connection that held the projector's lock is lost")
	// errFenced: somebody else moved a checkpoint.
	errFenced = errors.New("the checkpoint is not where this projector left it: another one is at work, or the tables were exchanged (rebuild) or mended (verify --repair)")
	// errDropped: the read tables are not there any more.
	errDropped = errors.New("the read tables were dropped")
	// errExchanged: a rebuild, or its undoing, put others in their place, or a repair changed them.
	errExchanged = errors.New("the read tables were exchanged or mended")
)

// Run projects until ctx ends, and returns nil then. Whatever breaks is waited for, mended or shown in Progress.
func (p *Projector) Run(ctx context.Context) error {
	defer p.each(func(l *lane) { l.progress.state(Ended, nil) })
	pause := newPause()
	for ctx.Err() == nil {
		worked, err := p.hold(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if worked {
			pause.Reset()
		}
		p.judge(ctx, err)
		_ = topology.Pause(ctx, pause.NextBackOff())
	}
	return nil
}

// judge says, once, why the projector begins again.
func (p *Projector) judge(ctx context.Context, err error) {
	switch {
	case errors.Is(err, schema.ErrUnusable):
		told := false
		p.each(func(l *lane) { told = !l.progress.state(Stopped, err) || told })
		if !told {
			p.opts.Logger.ErrorContext(ctx, "nothing is projected", "err", err)
		}
	case errors.Is(err, errFenced), errors.Is(err, errDropped), errors.Is(err, errExchanged):
		p.opts.Logger.WarnContext(ctx, "projector begins again", "reason", err)
		p.each(func(l *lane) { l.progress.state(Waiting, err) })
	case errors.Is(err, errLockLost):
		// PostgreSQL may be there again by now: asking for the lock finds out. Connections of before are no good.
		p.opts.Logger.WarnContext(ctx, "projector begins again", "reason", err)
		p.each(func(l *lane) { l.progress.state(Waiting, err) })
		p.db.Reset()
	default:
		p.postgres.away(ctx, nil, err)
		p.each(func(l *lane) { l.progress.state(Waiting, err) })
	}
}

// hold takes the lock, brings the tables up to date and runs the lanes until one of them, or the lock, is lost. worked
// says that it got as far as running them.
func (p *Projector) hold(ctx context.Context) (worked bool, err error) {
	lock, err := p.acquire(ctx)
	if err != nil {
		return false, err
	}
	// Closing the connection is what lets go of the lock, also when the database hangs.
	defer lock.close()
	if _, err := schema.Migrate(ctx, p.db, p.opts.Logger); err != nil {
		return false, err
	}
	p.postgres.allBack(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return lock.watch(ctx) })
	for _, l := range p.lanes {
		g.Go(func() error { return l.run(ctx) })
	}
	return true, g.Wait()
}

func (p *Projector) each(f func(*lane)) {
	for _, l := range p.lanes {
		f(l)
	}
}
