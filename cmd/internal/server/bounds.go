package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/segments"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// boundsEvery is how often the settings are read, which change when PostgreSQL is restarted, and boundsWait how long that
// may take.
const boundsEvery, boundsWait = time.Minute, 5 * time.Second

// bounds is what a PostgreSQL that scrip does not run lets readers take.
type bounds struct {
	mu    sync.Mutex // guards the fields below
	loose []segments.Loose
	why   error // why they are not known
}

// startBounds begins to look at the settings of an external PostgreSQL. A private one has those that are needed.
func (s *server) startBounds(context.Context) error {
	if s.tables == nil || s.tables.cluster != nil {
		return nil
	}
	b := &bounds{why: errors.New("they were not read yet")}
	s.health.add("postgres_settings", false, b.check)
	s.group.start("postgres settings", func(ctx context.Context) error {
		for {
			now, err := s.tables.bounds(ctx)
			for _, one := range b.update(now, err) {
				s.log.Warn("a setting of PostgreSQL does not bound readers of the read tables", "because", one.What, "mend", one.Fix)
			}
			if natsx.Pause(ctx, boundsEvery) != nil {
				return nil
			}
		}
	})
	return nil
}

// bounds reads them in a session with the defaults of the role, which the sessions of the pool do not have.
func (t *tables) bounds(ctx context.Context) ([]segments.Loose, error) {
	ctx, cancel := context.WithTimeout(ctx, boundsWait)
	defer cancel()
	config := t.pool.Config().ConnConfig
	delete(config.RuntimeParams, "idle_in_transaction_session_timeout")
	db, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was changed
	return segments.Bounds(ctx, db)
}

// update keeps what was read, and returns what is new. What was found before stays while nothing can be read.
func (b *bounds) update(now []segments.Loose, err error) (fresh []segments.Loose) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why = err; err != nil {
		return nil
	}
	for _, one := range now {
		if !slices.Contains(b.loose, one) {
			fresh = append(fresh, one)
		}
	}
	b.loose = now
	return fresh
}

func (b *bounds) check() (bool, any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, one := range b.loose {
		all = append(all, one.What+"; "+one.Fix)
	}
	switch {
	case len(all) > 0:
		return false, map[string]any{"error": strings.Join(all, ". ")}
	case b.why != nil:
		return false, map[string]any{"error": "the settings of PostgreSQL are not known: " + b.why.Error()}
	}
	return true, nil
}
