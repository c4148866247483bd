package rebuild

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// near is how many messages a shadow may lag behind the live tables when these are locked for the rest. rounds bounds
// the attempts to catch up that far: under load new messages keep arriving.
const (
	near   = 50
	rounds = 20
)

// Result is the result of a rebuild or a copy.
type Result struct {
	// Schema holds the new tables.
	Schema string `json:"schema"`
	// Events is the number of event lines applied. Loaded is the time to apply those that were in the log at the
	// beginning, Indexed the time to create indexes after that, Took the total.
	Events  uint64        `json:"events"`
	Loaded  time.Duration `json:"loaded_ns"`
	Indexed time.Duration `json:"indexed_ns"`
	Took    time.Duration `json:"took_ns"`
	// Tables compares new and old tables at the same positions; if it is empty, NotCompared has the reason.
	Tables      []Table `json:"tables,omitempty"`
	NotCompared string  `json:"not_compared,omitempty"`
	// Left lists dependents (views, functions and the like of others) that remain on the previous tables: they see no
	// new events, and are dropped with those.
	Left []string `json:"left_on_previous,omitempty"`
	// Notes are messages for the operator.
	Notes []string `json:"notes,omitempty"`
}

// Rebuild fills new tables from the whole log and exchanges them with the live ones.
func (s *Session) Rebuild(ctx context.Context) (r Result, err error) {
	began := time.Now()
	version, err := replaceable(ctx, s.pool)
	if err != nil {
		return r, explain(err)
	}
	if version == 0 { // there are no tables in use that a migration could change
		if _, err := schema.Migrate(ctx, s.pool, s.opts.Logger); err != nil {
			return r, err
		}
		version = schema.Version()
	}
	// The exchange checks again: a view can be created while the tables are filled.
	g, err := s.precheck(ctx, version)
	if err != nil {
		return r, explain(err)
	}
	err = s.runWatched(ctx, NextSchema, func(ctx context.Context) error {
		sh, err := s.filled(ctx, NextSchema, Only{}, &r)
		if err != nil {
			return err
		}
		if err := s.addIndexes(ctx, sh.name, g.indexes); err != nil {
			return err
		}
		if err := sh.CatchUp(ctx, false); err != nil {
			return err
		}
		if r.Tables, r.NotCompared, err = sh.compare(ctx); err != nil {
			return err
		}
		if err := sh.CatchUp(ctx, true); err != nil {
			return err
		}
		if r.Left, err = sh.exchange(ctx); err != nil {
			return err
		}
		r.Schema, r.Events = sh.name, sh.Events()
		// The exchange is committed: the next session retries what fails from here on.
		if left, err := s.dropAside(ctx); err != nil {
			s.opts.Logger.WarnContext(ctx, "dropping tables that were set aside failed; the next run retries", "err", err)
		} else if len(left) > 0 {
			r.Notes = append(r.Notes, leftoverNote(left))
		}
		return nil
	})
	r.Took = time.Since(began)
	return r, err
}

// precheck makes the exchange's checks before the tables are filled, and finds the indexes that others created.
func (s *Session) precheck(ctx context.Context, version int64) (g *dependents, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if g, err = s.dependents(ctx, tx, schema.Name, version); err != nil {
			return err
		}
		return errors.Join(s.checkDependents(g), s.checkPrevious(ctx, tx))
	})
	return g, err
}

// schemaName matches the allowed names of a copy, which need no quotes.
var schemaName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,50}$`)

// CheckName validates the schema name of a copy.
func CheckName(name string) error {
	switch {
	case !schemaName.MatchString(name):
		return fmt.Errorf("is not a valid schema name; give 1 to 51 of a-z, 0-9 and _, beginning with a letter")
	case len(name) >= 5 && name[:5] == "scrip", len(name) >= 3 && name[:3] == "pg_", name == "public", name == "information_schema":
		return fmt.Errorf("is a name that scrip or PostgreSQL uses itself; choose another")
	}
	return nil
}

// Copy creates tables as of a time in a separate schema. A zero time is now. No projector updates them.
func (s *Session) Copy(ctx context.Context, name string, until time.Time) (r Result, err error) {
	began := time.Now()
	if err := CheckName(name); err != nil {
		return r, refuse("schema %q %w", name, err)
	}
	var only Only
	if !until.IsZero() {
		if until.After(began) {
			return r, refuse("%s is in the future; give a time that has passed", until.UTC().Format(time.RFC3339))
		}
		only.Until = wire.At(until)
	}
	var there bool
	if err := s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", name).Scan(&there); err != nil {
		return r, explain(err)
	}
	if there {
		return r, refuse("schema %s exists; drop it (DROP SCHEMA %s CASCADE), or choose another name", name, name)
	}
	err = s.runWatched(ctx, ScratchSchema, func(ctx context.Context) error {
		sh, err := s.filled(ctx, ScratchSchema, only, &r)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		err = pgx.BeginFunc(context.WithoutCancel(ctx), s.conn, func(tx pgx.Tx) error {
			if err := copyGrants(context.WithoutCancel(ctx), tx, schema.Name, ScratchSchema); err != nil {
				return err
			}
			return schema.Rename(context.WithoutCancel(ctx), tx, ScratchSchema, name)
		})
		r.Schema, r.Events = name, sh.Events()
		return err
	})
	r.Took = time.Since(began)
	return r, err
}

// Scratch runs f under the lock, then removes the scratch schema, which f may fill with Build.
func (s *Session) Scratch(ctx context.Context, f func(context.Context) error) error {
	if err := s.runWatched(ctx, ScratchSchema, f); err != nil {
		return err
	}
	return explain(s.discard(ctx, ScratchSchema))
}

// runWatched runs f under the lock while it watches live traffic. If f fails, it drops the schema that f fills.
func (s *Session) runWatched(ctx context.Context, name string, f func(context.Context) error) error {
	err := s.guarded(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() { defer close(watched); s.watchTraffic(ctx) }()
		defer func() { cancel(); <-watched }()
		return f(ctx)
	})
	if err == nil {
		return nil
	}
	// If this fails too, the next run retries.
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeFor)
	defer cancel()
	if dropping := s.discard(cleaning, name); dropping != nil {
		s.opts.Logger.DebugContext(ctx, "dropping an incomplete schema failed; the next run retries", "schema", name, "err", dropping)
	}
	return err
}

// filled returns a shadow that is filled to the current end of the log and has all indexes.
func (s *Session) filled(ctx context.Context, name string, only Only, r *Result) (*Shadow, error) {
	note, err := s.CheckRoom(ctx)
	if err != nil {
		return nil, err
	}
	if note != "" {
		r.Notes = append(r.Notes, note)
	}
	ends, err := s.Ends(ctx)
	if err != nil {
		return nil, err
	}
	sh, err := s.Build(ctx, name, only, ends, true)
	if err == nil {
		r.Loaded, r.Indexed = sh.loaded, sh.indexed
	}
	return sh, err
}

// CatchUp catches up until at most near messages are left: to the live tables' checkpoints but not further, so that
// the tables can be compared; or to the end of the log, with beyond or if the live tables are behind the shadow.
func (sh *Shadow) CatchUp(ctx context.Context, beyond bool) error {
	for range rounds {
		at, err := Live(ctx, sh.s.pool, sh.s.log.Lanes, sh.s.log.UUID)
		if err != nil {
			return err
		}
		ends, err := sh.s.Ends(ctx)
		if err != nil {
			return err
		}
		to, behind := ends, uint64(0)
		if !beyond && !sh.ahead(at) {
			for n := range at {
				to[n] = min(at[n].Sequence, ends[n])
			}
		}
		for n := range to {
			if here := sh.lanes[n].at.Sequence; to[n] > here {
				behind += to[n] - here
			}
		}
		if behind <= near {
			return nil
		}
		if err := sh.Fill(ctx, CatchingUp, to); err != nil {
			return err
		}
	}
	return nil
}

// ahead reports whether the live tables are behind the shadow on some lane.
func (sh *Shadow) ahead(at []eventlog.Position) bool {
	for n, l := range sh.lanes {
		if at[n].Sequence < l.at.Sequence {
			return true
		}
	}
	return false
}
