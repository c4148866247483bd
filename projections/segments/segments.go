// Package segments divides the rows of claimed coupons into tables of some ten thousand to some million rows.
//
//	claims ──> young segment ──full or quiet──> sealed: all indexes ──eight of a size──> merged into one ──> removed
//	           key only, one                    never written again                      later readers     when old
//	           for all lanes                                                             do not see them   readers ended
//
// A row of text in an index of eight million goes to a random page, which costs more than all else about it. So claims are
// written without, and the indexes of a segment are made by one pass over it. A lookup by code or customer asks each
// segment, and reads the young ones: they have at most Options.Rows rows each, and Options.Waiting more may wait to be
// sealed; then writers wait. Merging keeps segments few.
//
// Coupons that leave the tables (setting tables.keep) are hidden at once. A segment is rewritten without them when it is
// merged, or when they are half of it.
//
// Owner: the process that fills the tables: the projector, or a rebuild for its shadow. A projector that lost its lock is
// fenced off by the generation of the checkpoints before another one opens the set.
//
// What a crash does: rows of claims are in the transaction of their batch. A segment that was not sealed is found by Open,
// and sealed. A merge is one transaction: all rows are seen in the sources or in the merged one. An
// unfinished merged segment, and merged sources, are removed by a later run.
package segments

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
)

// Options of a set. The zero value selects the defaults, which are the projector's.
type Options struct {
	// Rows is how many a segment has when it is sealed. Defaults to 60,000, of which a scan takes 2 to 6 ms.
	Rows int
	// Waiting is how many full segments may wait to be sealed, besides those that are being sealed. Defaults to 1.
	Waiting int
	// Sealers is how many segments are sealed at a time. Defaults to 1.
	Sealers int
	// KeysOnly seals without the indexes that only readers use, and merges nothing: for tables that are compared and dropped.
	KeysOnly bool
}

func (o Options) withDefaults() Options {
	if o.Rows == 0 {
		o.Rows = 60_000
	}
	o.Waiting, o.Sealers = max(o.Waiting, 1), max(o.Sealers, 1)
	return o
}

const (
	// quietFor is after how long without claims a young segment of quietRows or more is sealed; fewer cost readers nothing.
	quietFor  = 5 * time.Second
	quietRows = 1000
)

// lookEvery is how often that is looked at, and whether there is something to merge or to remove. Shorter in tests.
var lookEvery = time.Second

// young is a segment that claims are written to, or that is full and waits.
type young struct {
	number int32
	rows   int            // leased, at least as many as it has
	leases sync.WaitGroup // transactions that write to it
}

// Set is the segments of the tables of one schema. Take may be called by many goroutines.
type Set struct {
	db     *pgxpool.Pool
	schema string
	opts   Options
	// crash is called before and after the commit of a step, for fault injection in tests. Nil in production.
	crash func(doing string, tx pgx.Tx, committed bool) error

	turn    chan struct{} // guards what follows; a channel, because Take may wait in it
	young   *young        // nil: none yet
	lowest  int32
	used    time.Time // of the last lease
	rotated time.Time // when the last one was full
	swept   time.Time
	removed int64 // sum of removal.through by then
	full    chan *young
	sealing sync.WaitGroup // full ones and those being sealed
}

// Open reads which segments there are. Segments are sealed, merged and removed by Run.
func Open(ctx context.Context, db *pgxpool.Pool, name string, opts Options) (*Set, error) {
	s := &Set{db: db, schema: name, opts: opts.withDefaults(), turn: make(chan struct{}, 1)}
	open, err := schema.Collect(ctx, db, pgx.RowTo[int32], s.in("SELECT segment FROM scrip.segment WHERE rows IS NULL AND merged_at IS NULL ORDER BY segment"))
	if err != nil {
		return nil, s.explain("reading the segments", err)
	}
	if err := db.QueryRow(ctx, s.in("SELECT min(segment) FROM scrip.segment")).Scan(&s.lowest); err != nil {
		return nil, s.explain("reading the segments", err)
	}
	s.full = make(chan *young, s.opts.Waiting+len(open))
	for _, number := range open { // not written to: a former process may be about to commit that it is sealed
		s.sealing.Add(1)
		s.full <- &young{number: number}
	}
	return s, nil
}

// Take returns the segment for a number of new rows, and what must be called when the transaction that writes them has
// ended, whatever its result. It waits while too many segments wait to be sealed.
func (s *Set) Take(ctx context.Context, rows int) (segment int32, done func(), err error) {
	if err := s.lock(ctx); err != nil {
		return 0, nil, err
	}
	defer s.unlock()
	if s.young != nil && s.young.rows > 0 && s.young.rows+rows > s.opts.Rows {
		if err := s.rotate(ctx); err != nil {
			return 0, nil, err
		}
	}
	if s.young == nil {
		if err := s.begin(ctx, s.lowest-1); err != nil {
			return 0, nil, err
		}
		s.lowest--
		s.young = &young{number: s.lowest}
	}
	y := s.young
	y.rows += rows
	y.leases.Add(1)
	s.used = time.Now()
	return y.number, y.leases.Done, nil
}

func (s *Set) lock(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Set) unlock() { <-s.turn }

// rotate passes the young segment on to be sealed.
func (s *Set) rotate(ctx context.Context) error {
	s.sealing.Add(1)
	select {
	case s.full <- s.young:
		s.young, s.rotated = nil, time.Now()
		return nil
	case <-ctx.Done():
		s.sealing.Done()
		return ctx.Err()
	}
}

// Run seals, merges and removes segments until ctx ends, and then returns nil.
func (s *Set) Run(ctx context.Context) error {
	g, within := errgroup.WithContext(ctx)
	for range s.opts.Sealers {
		g.Go(func() error { return s.sealAll(within) })
	}
	g.Go(func() error { return s.tend(within) })
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

func (s *Set) sealAll(ctx context.Context) error {
	for {
		select {
		case y := <-s.full:
			y.leases.Wait() // transactions end with ctx, too
			if err := s.seal(ctx, y.number); err != nil {
				return err
			}
			s.sealing.Done()
		case <-ctx.Done():
			return nil
		}
	}
}

// tend seals a young segment that is not written to, and merges and removes segments.
func (s *Set) tend(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := s.lock(ctx); err != nil {
			return nil
		}
		if time.Since(s.used) >= quietFor && s.young != nil && s.young.rows >= quietRows {
			_ = s.rotate(ctx) // fails with ctx
		}
		busy := time.Since(s.rotated) < quietFor
		s.unlock()
		if s.opts.KeysOnly {
			continue
		}
		if err := s.remove(ctx); err != nil {
			return err
		}
		if err := s.mergeSome(ctx, busy); err != nil {
			return err
		}
		if err := s.sweep(ctx, busy); err != nil {
			return err
		}
	}
}

// Finish waits until all segments are sealed, also the young one. Run must be running, and nobody may write.
func (s *Set) Finish(ctx context.Context) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if s.young != nil {
		if err := s.rotate(ctx); err != nil {
			return err
		}
	}
	return s.Settle(ctx)
}

// Settle waits until all full segments are sealed. A Run that ends before that loses those that it is sealing: only Open finds
// them again.
func (s *Set) Settle(ctx context.Context) error {
	done := make(chan struct{})
	go func() { defer close(done); s.sealing.Wait() }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// in returns a statement for the tables of the set's schema.
func (s *Set) in(sql string) string { return tables.In(s.schema, sql) }

func (s *Set) explain(doing string, err error) error {
	return fmt.Errorf("%s of schema %s: %w", doing, s.schema, err)
}
