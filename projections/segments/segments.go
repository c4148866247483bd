// Package segments divides the rows of claimed coupons into tables of some ten thousand to some million rows.
//
//	claims ──> young segment ──full or quiet──> sealed: all indexes ──eight of a size──> copy, hidden ──swap──> merged one
//	           key only, one                    never written again                                │
//	           for all lanes                                                                       └──> sources: hidden,
//	                                                                                                    later dropped
//
// A row of text in an index of eight million goes to a random page, which costs more than all else about it. So claims are
// written without, and the indexes of a segment are made by one pass over it. A lookup by code or customer asks each
// segment, and reads the young ones: they have at most Options.Rows rows each, and Options.Waiting more may wait to be
// sealed; then writers wait. Merging keeps segments few. While readers keep it from that, young segments become larger.
//
// Two rules decide what readers may still need, see merge.go and remove.go. A copy takes the place of its sources when all
// transactions have ended that read coupons before it was one of the tables, and sessions have forgotten what they knew of it:
// their statements may be planned without it. A source is dropped when no snapshot is left that is older than the swap. Neither delays a reader.
//
// When the number of rows has changed by a fifth, all segments are analyzed together, see analyze.go: PostgreSQL's autovacuum
// analyzes each alone, and queries that join coupons are planned by all.
//
// Coupons that leave the tables (setting tables.keep) are hidden at once. A segment is rewritten without them when it is
// merged, or when they are half of it. What other tables have of them is deleted in pieces, see leave.go.
//
// Owner: the process that opened the set last: the projector, or a rebuild for its shadow. Open writes a number to the row of
// segment 0, and each step locks that row and checks the number, so nothing of a former owner is committed after Open. What
// takes long is outside of that, and Open does not wait for it: the indexes of a segment, which another owner finds or makes;
// the rows of a copy, which another owner drops; and taking a dropped table out of the plans, which is the same for all.
//
// What a crash does: rows of claims are in the transaction of their batch. A segment that was not sealed is found by Open,
// and sealed. A copy that did not take the place of its sources is dropped, and made again. A source that was being dropped
// is found by remove, which goes on. An analysis that did not end is made again. Numbers of segments are not used twice, so a
// step of a former owner finds its own table or none.
package segments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
)

// ErrFenced: the step was not committed.
var ErrFenced = errors.New("another process fills the tables, or they were exchanged (rebuild)")

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
	quietRows = 10_000
	// crowd is from how many tables on young segments become larger: each lookup asks all, and planning one for 50 takes 1 to 3 ms.
	// With each further crowd their size doubles, at most mostDoubled times: merging is late in a rush, and readers that do
	// not end keep what was merged.
	crowd       = 64
	mostDoubled = 4
	// late is after how long a merged segment that is not dropped is overdue.
	late = "5 minutes"
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
	owner  int64 // see ErrFenced
	crowd  int   // the constant; less in tests
	// crash is called before and after the commit of a step, for fault injection in tests. Nil in production.
	crash func(doing string, tx pgx.Tx, committed bool) error

	turn    chan struct{} // guards what follows; a channel, because Take may wait in it
	young   *young        // nil: none yet
	begun   bool          // since the last look
	tables  int           // segments that are not dropped yet, as of the last look, and those begun since
	used    time.Time     // of the last lease
	rotated time.Time     // when the last one was full
	full    chan *young
	sealing sync.WaitGroup // full ones and those being sealed

	// Owned by tend.
	copied  *copied // nil: none waits to take the place of its sources
	merged  int     // segments that are merged, or are copies, and not dropped yet
	swept   time.Time
	removed int64   // sum of removal.through by then
	sweeps  []int32 // segments that the sweep has to look at
	// After a segment was begun: transactions that may list the tables without it, whether sessions have to list them again, and
	// how many of fresh they list then.
	behind []string
	renews bool
	listed int

	mu    sync.Mutex
	fresh []int32 // segments that were begun and that a session may not list yet

	leaving tables.Leaving // owned by leave

	unfinished int // tries to finish a detach, owned by remove

	// Owned by Analyze: when the last analysis ended, or the set was opened, and how long it took.
	analyzed  time.Time
	analyzing time.Duration

	overdue atomic.Int64 // -1 = not known
}

// Open makes this process the owner of the segments, and reads which there are. It waits for a short step of the former owner.
// Segments are sealed, merged and removed by Run.
func Open(ctx context.Context, db *pgxpool.Pool, name string, opts Options) (*Set, error) {
	s := &Set{db: db, schema: name, opts: opts.withDefaults(), crowd: crowd, turn: make(chan struct{}, 1)}
	s.analyzed = time.Now()
	s.overdue.Store(-1)
	var open []int32
	err := s.long(ctx, "opening the segments", func(tx pgx.Tx) (err error) {
		if err := tx.QueryRow(ctx, s.in(ownSQL)).Scan(&s.owner); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.in(discardSQL)); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, s.in("SELECT count(*) FROM scrip.segment")).Scan(&s.tables); err != nil {
			return err
		}
		open, err = schema.Collect(ctx, tx, pgx.RowTo[int32], s.in("SELECT segment FROM scrip.segment WHERE rows IS NULL AND merged_at IS NULL ORDER BY segment DESC"))
		return err
	})
	if err != nil {
		return nil, err
	}
	s.full = make(chan *young, s.opts.Waiting+len(open))
	for _, number := range open { // another young one follows, so that the number of rows in each is known
		s.sealing.Add(1)
		s.full <- &young{number: number}
	}
	s.fresh, s.begun = slices.Clone(open), len(open) > 0 // the former owner may have ended before sessions listed them
	return s, nil
}

// Unlisted returns the segments that a session may not find by the table of all: PostgreSQL may keep a list of tables that it made
// while one was attached. Transactions that begin later find the others.
func (s *Set) Unlisted() []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.fresh)
}

// Overdue returns how many segments were merged some minutes ago and are kept by readers; known is false before the first look.
func (s *Set) Overdue() (n int, known bool) {
	v := s.overdue.Load()
	return int(max(v, 0)), v >= 0
}

// Take returns the segment for a number of new rows, and what must be called when the transaction that writes them has
// ended, whatever its result. It waits while too many segments wait to be sealed.
func (s *Set) Take(ctx context.Context, rows int) (segment int32, done func(), err error) {
	if err := s.lock(ctx); err != nil {
		return 0, nil, err
	}
	defer s.unlock()
	if s.young != nil && s.young.rows > 0 && s.young.rows+rows > s.opts.Rows<<s.doubled() {
		if err := s.rotate(ctx); err != nil {
			return 0, nil, err
		}
	}
	if s.young == nil {
		number, err := s.begin(ctx)
		if err != nil {
			return 0, nil, err
		}
		s.tables, s.begun = s.tables+1, true
		s.young = &young{number: number}
		s.mu.Lock()
		s.fresh = append(s.fresh, number)
		s.mu.Unlock()
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

// doubled is how many times the size of young segments has doubled.
func (s *Set) doubled() int { return min(s.tables/s.crowd, mostDoubled) }

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

// Run seals, merges, removes and analyzes segments until ctx ends, and then returns nil. Its error is of kind ErrFenced if
// another process has opened the set.
func (s *Set) Run(ctx context.Context) error {
	g, within := errgroup.WithContext(ctx)
	for range s.opts.Sealers {
		g.Go(func() error { return s.sealAll(within) })
	}
	g.Go(func() error { return s.each(within, s.tend) })
	if !s.opts.KeysOnly {
		g.Go(func() error { return s.each(within, s.remove) }) // which waits for readers
		g.Go(func() error { return s.each(within, s.analyzeChanged) })
		g.Go(func() error { return s.each(within, s.leave) }) // which may take hours
	}
	err := g.Wait()
	switch {
	case ctx.Err() != nil:
		return nil
	case tables.Missing(err) && s.replaced(ctx): // a step that is not fenced found that its table was dropped
		return ErrFenced
	}
	return err
}

// each looks after the segments until ctx ends.
func (s *Set) each(ctx context.Context, look func(context.Context) error) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := look(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
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

// tend seals a young segment that is not written to, and merges segments.
func (s *Set) tend(ctx context.Context) error {
	var count, overdue int
	if err := s.db.QueryRow(ctx, s.in(countSQL)).Scan(&count, &s.merged, &overdue); err != nil {
		return s.explain("counting the segments", err)
	}
	s.overdue.Store(int64(overdue))
	if err := s.lock(ctx); err != nil {
		return nil
	}
	begun := s.begun
	if begun {
		s.listed = len(s.Unlisted())
	}
	s.tables, s.begun = count, false
	if time.Since(s.used) >= quietFor && s.young != nil && s.young.rows >= quietRows<<s.doubled() {
		_ = s.rotate(ctx) // fails with ctx
	}
	busy := time.Since(s.rotated) < quietFor
	s.unlock()
	if err := s.renewYoung(ctx, begun); err != nil || s.opts.KeysOnly {
		return err
	}
	if err := s.swap(ctx); err != nil || s.copied != nil || s.merged >= s.crowd {
		return err
	}
	if !busy {
		if err := s.sweep(ctx); err != nil || s.copied != nil {
			return err
		}
	}
	if busy && count < 2*s.crowd {
		return nil
	}
	return s.mergeSome(ctx)
}

// What is late includes a copy that waits for readers.
const countSQL = `
SELECT count(*), count(merged_at), count(*) FILTER (WHERE merged_at < clock_timestamp() - interval '` + late + `') FROM scrip.segment`

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
