package rebuild

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// Only selects the part of the log that is folded. The zero value selects all of it.
type Only struct {
	// Until leaves out events after this lane time. 0 = none.
	Until wire.Instant
	// Campaign leaves out all other campaigns. Empty = none.
	Campaign string
}

// Shadow is a set of read tables being filled beside the live ones.
type Shadow struct {
	s     *Session
	name  string
	only  Only
	lanes []*loader

	loaded, indexed time.Duration // by Build

	mu      sync.Mutex // guards what follows, and held while indexes are created
	pending []index    // not created yet
}

// NewShadow creates empty tables in a schema, without the indexes of the big tables. With keyed it keeps all indexes,
// like the live tables: slower, but a log that claims a coupon twice is applied like live.
func (s *Session) NewShadow(ctx context.Context, name string, only Only, keyed bool) (*Shadow, error) {
	sh := &Shadow{s: s, name: name, only: only}
	for n := range s.log.Lanes {
		sh.lanes = append(sh.lanes, newLoader(sh, n))
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if err := schema.Create(ctx, tx, name); err != nil {
			return err
		}
		if !keyed {
			if sh.pending, err = takeIndexes(ctx, tx, name); err != nil {
				return err
			}
		}
		for n := range s.log.Lanes {
			if _, err := tx.Exec(ctx, "INSERT INTO "+name+`.checkpoint (projection, lane, sequence, updated_at, log, digest)
				VALUES ($1, $2, 0, clock_timestamp(), $3, '')`, projector.Projection, n, s.log.UUID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("making schema %s: %w", name, explain(err))
	}
	s.report.events.Store(0)
	s.report.indexes.Store(0)
	s.report.allIndexes.Store(int64(len(sh.pending)))
	return sh, nil
}

// Drop drops its schema.
func (sh *Shadow) Drop(ctx context.Context) error {
	return sh.s.discard(ctx, sh.name)
}

// Positions returns the position of each lane.
func (sh *Shadow) Positions() []eventlog.Position {
	list := make([]eventlog.Position, len(sh.lanes))
	for n, l := range sh.lanes {
		list[n] = l.at
	}
	return list
}

// Events returns the number of event lines applied.
func (sh *Shadow) Events() uint64 { return sh.s.report.events.Load() }

// Fill applies each lane's messages up to a sequence; a lane that is already there is left unchanged. Options.Parallel
// lanes are filled at the same time.
func (sh *Shadow) Fill(ctx context.Context, phase Phase, to []uint64) error {
	var total uint64
	for n, l := range sh.lanes {
		if to[n] > l.at.Sequence {
			total += to[n] - l.at.Sequence
		}
	}
	sh.s.report.enter(phase, total)
	if err := sh.s.opts.Hook(phase); err != nil {
		return err
	}
	if total == 0 {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(sh.s.opts.Parallel)
	for n, l := range sh.lanes {
		if to[n] <= l.at.Sequence || sh.only.Campaign != "" && !l.holds(sh.only.Campaign) {
			continue
		}
		g.Go(func() error { return l.fill(ctx, phase, to[n]) })
	}
	return g.Wait()
}

// Build fills a new shadow up to a sequence per lane and creates its keys, with complete all indexes. If the log claims
// a coupon twice, which no lane writes, it starts again with keys in place, so that the second line becomes a dead
// letter, as live.
func (s *Session) Build(ctx context.Context, name string, only Only, to []uint64, complete bool) (*Shadow, error) {
	sh, err := s.build(ctx, name, only, to, complete, false)
	if !errors.Is(err, errDoubled) {
		return sh, err
	}
	s.opts.Logger.WarnContext(ctx, "the log claims a coupon twice; starting again with keys in place, which takes longer", "err", err)
	if err := s.discard(ctx, name); err != nil {
		return nil, err
	}
	return s.build(ctx, name, only, to, complete, true)
}

func (s *Session) build(ctx context.Context, name string, only Only, to []uint64, complete, keyed bool) (*Shadow, error) {
	began := time.Now()
	sh, err := s.NewShadow(ctx, name, only, keyed)
	if err != nil {
		return nil, err
	}
	if err := sh.Fill(ctx, Loading, to); err != nil {
		return nil, err
	}
	sh.loaded = time.Since(began)
	if err := sh.finish(ctx, complete); err != nil {
		return nil, err
	}
	sh.indexed = time.Since(began) - sh.loaded
	return sh, nil
}
