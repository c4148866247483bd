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

// near is how many messages a shadow may be behind the live tables before they are held for the rest. rounds bounds how
// often it tries to come so near: under load there is always something new.
const (
	near   = 50
	rounds = 20
)

// Result is what a rebuild or a copy did.
type Result struct {
	// Schema holds the new tables.
	Schema string `json:"schema"`
	// Events were applied, in Loaded up to the end of the log as it was at the beginning, and in Indexed after that to
	// make indexes. Took is all of it.
	Events  uint64        `json:"events"`
	Loaded  time.Duration `json:"loaded_ns"`
	Indexed time.Duration `json:"indexed_ns"`
	Took    time.Duration `json:"took_ns"`
	// Tables compares the tables with those before, at the same place in the log; empty with NotCompared saying why.
	Tables      []Table `json:"tables,omitempty"`
	NotCompared string  `json:"not_compared,omitempty"`
	// Left is what others made on the tables put aside and what stays there: it sees no new events, and is dropped with them.
	Left []string `json:"left_on_previous,omitempty"`
	// Notes are for a person to read.
	Notes []string `json:"notes,omitempty"`
}

// Rebuild fills new tables from the whole log and puts them in the place of the live ones.
func (s *Session) Rebuild(ctx context.Context) (r Result, err error) {
	began := time.Now()
	version, err := replaceable(ctx, s.pool)
	if err != nil {
		return r, explain(err)
	}
	if version == 0 { // there is nothing that a migration could change under somebody
		if _, err := schema.Migrate(ctx, s.pool, s.opts.Logger); err != nil {
			return r, err
		}
		version = schema.Version()
	}
	// The exchange looks again: a view can be made while the tables are filled.
	g, err := s.survey(ctx, version)
	if err != nil {
		return r, explain(err)
	}
	err = s.work(ctx, NextSchema, func(ctx context.Context) error {
		sh, err := s.filled(ctx, NextSchema, Only{}, &r)
		if err != nil {
			return err
		}
		if err := s.addIndexes(ctx, sh.name, g.indexes); err != nil {
			return err
		}
		if err := sh.Approach(ctx, false); err != nil {
			return err
		}
		if r.Tables, r.NotCompared, err = sh.compare(ctx); err != nil {
			return err
		}
		if err := sh.Approach(ctx, true); err != nil {
			return err
		}
		if r.Left, err = sh.exchange(ctx); err != nil {
			return err
		}
		r.Schema, r.Events = sh.name, sh.Events()
		// The exchange has happened: what fails from here on is for the next session.
		if left, err := s.dropAside(ctx); err != nil {
			s.opts.Logger.WarnContext(ctx, "the tables put aside before are left for the next run to drop", "err", err)
		} else if len(left) > 0 {
			r.Notes = append(r.Notes, asideNote(left))
		}
		return nil
	})
	r.Took = time.Since(began)
	return r, err
}

// survey refuses before anything is done what the exchange would refuse, and finds the indexes that others made.
func (s *Session) survey(ctx context.Context, version int64) (g *guests, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if g, err = s.guests(ctx, tx, schema.Name, version); err != nil {
			return err
		}
		return errors.Join(s.refused(g), s.droppable(ctx, tx))
	})
	return g, err
}

// schemaName is what a copy may be called: it is written without quotes.
var schemaName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,50}$`)

// CheckName says whether a copy may be called so.
func CheckName(name string) error {
	switch {
	case !schemaName.MatchString(name):
		return fmt.Errorf("a schema's name is 1 to 51 of a-z, 0-9 and _, and begins with a letter")
	case len(name) >= 5 && name[:5] == "scrip", len(name) >= 3 && name[:3] == "pg_", name == "public", name == "information_schema":
		return fmt.Errorf("is a name that scrip or PostgreSQL uses itself; choose another")
	}
	return nil
}

// Copy makes tables as of a time in a schema of their own, beside the live ones. A zero time is now. Nobody keeps them
// up to date.
func (s *Session) Copy(ctx context.Context, name string, until time.Time) (r Result, err error) {
	began := time.Now()
	if err := CheckName(name); err != nil {
		return r, refuse("schema %q %w", name, err)
	}
	var only Only
	if !until.IsZero() {
		if until.After(began) {
			return r, refuse("%s lies ahead: the log does not know yet what will have happened", until.UTC().Format(time.RFC3339))
		}
		only.Until = wire.At(until)
	}
	var there bool
	if err := s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", name).Scan(&there); err != nil {
		return r, explain(err)
	}
	if there {
		return r, refuse("schema %s is there already; drop it (DROP SCHEMA %s CASCADE), or choose another name", name, name)
	}
	err = s.work(ctx, ScratchSchema, func(ctx context.Context) error {
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

// Scratch runs f under the lock, and removes the scratch schema, which f may fill with Build, when it has returned.
func (s *Session) Scratch(ctx context.Context, f func(context.Context) error) error {
	if err := s.work(ctx, ScratchSchema, f); err != nil {
		return err
	}
	return explain(s.discard(ctx, ScratchSchema))
}

// work runs f under the lock and with an eye on live traffic, and removes what is left of the schema that f fills.
func (s *Session) work(ctx context.Context, name string, f func(context.Context) error) error {
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
	// If this fails too, the next run does it.
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeFor)
	defer cancel()
	if dropping := s.discard(cleaning, name); dropping != nil {
		s.opts.Logger.DebugContext(ctx, "what was being filled is left for the next run to remove", "schema", name, "err", dropping)
	}
	return err
}

// filled gives a shadow that has everything up to where the log ends now, with all indexes.
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

// Approach catches up until not much is left: with the live tables, but not beyond them, so that they may be compared;
// with the end of the log, where they are behind already or with beyond.
func (sh *Shadow) Approach(ctx context.Context, beyond bool) error {
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

// ahead says whether the live tables are behind in some lane.
func (sh *Shadow) ahead(at []eventlog.Position) bool {
	for n, l := range sh.lanes {
		if at[n].Sequence < l.at.Sequence {
			return true
		}
	}
	return false
}
