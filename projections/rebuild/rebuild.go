package rebuild

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// Result is the result of a rebuild or a copy.
type Result struct {
	// Schema holds the new tables.
	Schema string `json:"schema"`
	// Events is the number of event lines applied. Loaded is the time to apply those that were in the log at the
	// start, Indexed the time to create indexes after that, Took the total.
	Events  uint64        `json:"events"`
	Loaded  time.Duration `json:"loaded_ns"`
	Indexed time.Duration `json:"indexed_ns"`
	Took    time.Duration `json:"took_ns"`
	// Tables compares new and old tables at the same positions; if it is empty, NotCompared has the reason.
	Tables      []Table `json:"tables,omitempty"`
	NotCompared string  `json:"not_compared,omitempty"`
	// Unwritable is why the tables before could not be written; then they are dropped, and there is nothing to undo.
	Unwritable string `json:"unwritable,omitempty"`
	// Notes are messages for the operator.
	Notes []string `json:"notes,omitempty"`
}

// Table compares one table before and after a rebuild, at the same positions.
type Table struct {
	Table string `json:"table"`
	// Before and After are rows; Before is -1 where the table was missing.
	Before int64 `json:"rows_before"`
	After  int64 `json:"rows"`
	Equal  bool  `json:"equal"`
}

// Rebuild fills new tables from the whole log and exchanges them with the live ones: it loads, seals segments, catches up,
// compares and exchanges. If tables are filled and something else prevents the exchange, they are kept: the next Rebuild goes on with
// them.
func (s *Session) Rebuild(ctx context.Context) (r Result, err error) {
	started := time.Now()
	if s.now, err = schema.Current(ctx, s.pool); err != nil {
		return r, explain(err)
	}
	if s.now.Version > schema.Format { // a projector of that version would stop permanently on tables of this one
		return r, newer(s.now.Version)
	}
	if s.now.Version == 0 { // there are no tables in use
		if _, err := schema.Ensure(ctx, s.pool, s.opts.Logger); err != nil {
			return r, err
		}
		if s.now, err = schema.Current(ctx, s.pool); err != nil {
			return r, explain(err)
		}
	}
	if err := s.changeable(ctx); err != nil { // before hours of loading
		return r, explain(err)
	}
	err = s.filling(ctx, func(ctx context.Context) error {
		sh, err := s.kept(ctx, &r)
		if err != nil {
			return err
		}
		if sh == nil {
			keep := s.now.KeepDays // another setting during the load makes them leftovers
			if sh, err = s.load(ctx, selection{}, &r); err != nil {
				return err
			}
			if err := s.mark(ctx, func(tx pgx.Tx) error { return schema.Keep(ctx, tx, sh.name, keep) }); err != nil {
				return err
			}
		}
		if err := sh.replace(ctx, &r); err != nil {
			return s.keepOrForget(ctx, sh.name, err)
		}
		r.Schema, r.Events = schema.Name, sh.events()
		if err := s.opts.Hook(Exchanged); err != nil {
			return err
		}
		// The exchange is committed: the next session retries what fails from here on.
		if note, err := s.dropLeftovers(ctx); err != nil {
			s.opts.Logger.WarnContext(ctx, "dropping tables that are not in use any more failed; the next run retries", "err", err)
		} else if note != "" {
			r.Notes = append(r.Notes, note)
		}
		return nil
	})
	r.Took = time.Since(started)
	return r, err
}

// replace puts a filled shadow in place of the live tables.
func (sh *shadow) replace(ctx context.Context, r *Result) (err error) {
	if err := sh.catchUp(ctx, false); err != nil {
		return err
	}
	if r.Tables, r.NotCompared, err = sh.compare(ctx); err != nil {
		return err
	}
	if err := sh.catchUp(ctx, true); err != nil {
		return err
	}
	unwritable, err := sh.s.exchange(ctx, sh.name, sh.catchUpLocked)
	if unwritable != nil {
		r.Unwritable = unwritable.Error()
	}
	return err
}

// load returns a shadow that is filled to the current end of the log and has all indexes.
func (s *Session) load(ctx context.Context, only selection, r *Result) (*shadow, error) {
	note, err := checkRoom(ctx, s)
	if err != nil {
		return nil, err
	}
	if note != "" {
		r.Notes = append(r.Notes, note)
	}
	ends, err := s.ends(ctx)
	if err != nil {
		return nil, err
	}
	sh, err := s.newShadow(ctx, "", only, false)
	if err != nil {
		return nil, err
	}
	return sh, sh.load(ctx, ends, r)
}

// near is how many messages a shadow may lack of the live tables when these are locked for the rest. rounds bounds
// the attempts to catch up that far: under load new messages keep arriving.
const (
	near   = 50
	rounds = 20
)

// catchUp catches up until at most near messages are left: to the live tables' checkpoints but not further, so that
// the tables can be compared; or to the end of the log, with beyond or if the shadow is ahead of the live tables.
func (sh *shadow) catchUp(ctx context.Context, beyond bool) error {
	for range rounds {
		at, _, err := sh.s.positions(ctx, sh.s.pool, sh.s.now.Live)
		if err != nil {
			return err
		}
		to, err := sh.s.ends(ctx)
		if err != nil {
			return err
		}
		ahead := slices.ContainsFunc(sh.lanes, func(l *loader) bool { return at[l.Lane].Sequence < l.At.Sequence })
		if !beyond && !ahead {
			to = covered(at, to)
		}
		if sh.lags(to) <= near {
			return nil
		}
		if err := sh.fill(ctx, CatchingUp, to); err != nil {
			return err
		}
	}
	return nil
}

// covered returns the sequences of positions, at most the ends of the lanes: a checkpoint may be beyond the end of the
// log.
func covered(at []eventlog.Position, ends []uint64) []uint64 {
	to := make([]uint64, len(at))
	for n := range at {
		to[n] = min(at[n].Sequence, ends[n])
	}
	return to
}

// compare fills the shadow to exactly the checkpoints in a snapshot of the live tables, and digests both. If that is
// impossible it returns nil and the reason.
func (sh *shadow) compare(ctx context.Context) (list []Table, why string, err error) {
	if list, why, err = sh.digests(ctx); schema.State(err) == "42501" {
		return nil, fmt.Sprintf("the tables in use cannot be read: %v", err), nil
	}
	return list, why, err
}

func (sh *shadow) digests(ctx context.Context) (list []Table, why string, err error) {
	s := sh.s
	tx, err := s.pool.BeginTx(ctx, snapshot)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	there, err := tablesOf(ctx, tx, s.now.Live)
	if err != nil {
		return nil, "", err
	}
	if !slices.Contains(there, checkpointTable) {
		return nil, "the tables in use are incomplete", nil
	}
	if _, err := tx.Exec(ctx, "SELECT FROM "+s.now.Live+"."+checkpointTable+" LIMIT 0"); err != nil { // positions does not say that it may not read them
		return nil, "", err
	}
	var whole bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", s.now.Live+".leaving").Scan(&whole); err != nil {
		return nil, "", err
	} else if !whole {
		return nil, "the tables in use are incomplete", nil
	}
	at, none, err := s.positions(ctx, tx, s.now.Live)
	if err != nil {
		return nil, "", err
	}
	to := make([]uint64, len(at))
	for n, p := range at {
		if to[n] = p.Sequence; slices.Contains(none, n) && sh.lanes[n].At.Sequence > 0 {
			return nil, fmt.Sprintf("the tables in use have no checkpoint of lane %d", n), nil
		}
		if p.Sequence < sh.lanes[n].At.Sequence {
			return nil, fmt.Sprintf("the tables in use lag: lane %d at message %d of %d", n, p.Sequence, sh.lanes[n].At.Sequence), nil
		}
		if err := eventlog.Events(s.js, n).Verify(ctx, s.log.UUID, p); err != nil {
			return nil, fmt.Sprintf("the tables in use were not filled from this log: %v", err), nil
		}
	}
	if err := sh.fill(ctx, CatchingUp, to); err != nil {
		return nil, "", err
	}
	if err := s.phase(Comparing); err != nil {
		return nil, "", err
	}
	mine, err := tablesOf(ctx, s.pool, sh.name)
	if err != nil {
		return nil, "", err
	}
	for _, table := range mine {
		if table == checkpointTable {
			continue
		}
		t := Table{Table: table, Before: -1}
		var before, after string
		g, ctx := errgroup.WithContext(ctx)
		if slices.Contains(there, table) {
			g.Go(func() error { return digest(ctx, tx, s.now.Live, table, &t.Before, &before) })
		}
		g.Go(func() error { return digest(ctx, s.pool, sh.name, table, &t.After, &after) })
		if err := g.Wait(); err != nil {
			return nil, "", fmt.Errorf("comparing digests: %w", err)
		}
		t.Equal = t.Before == t.After && before == after
		list = append(list, t)
	}
	return list, "", nil
}

const checkpointTable = "checkpoint"

// snapshot is a transaction that reads the live tables as they are at one moment.
var snapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// Digest of rows, not of their text: PostgreSQL hashes the values, at a fifth of the cost of scrip.digest(); both sides
// are in one database. A sum does not depend on order, and differs if a row is duplicated.
//
// The parameters of Sprintf are schema and table, and which rows are shown.
const digestSQL = `SELECT count(*), coalesce(sum(hash_record_extended(x, 0)), 0)::text FROM %s.%s x WHERE %s`

func digest(ctx context.Context, db schema.Querier, name, table string, rows *int64, sum *string) error {
	return db.QueryRow(ctx, fmt.Sprintf(digestSQL, name, table, schema.Staying(name, table))).Scan(rows, sum)
}

// catchUpLocked fills the shadow to the checkpoints of the live tables, which are locked.
func (sh *shadow) catchUpLocked(ctx context.Context, tx pgx.Tx) error {
	at, _, err := sh.s.positions(context.WithoutCancel(ctx), tx, sh.s.now.Live)
	if err != nil {
		return err
	}
	ends, err := sh.s.ends(ctx)
	if err != nil {
		return err
	}
	return sh.fillLocked(ctx, Exchanging, covered(at, ends))
}

// schemaName matches the allowed names of a copy, which need no quotes.
var schemaName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,50}$`)

// rowsSuffix names the schema with the tables of a copy: the other one has their views.
const rowsSuffix = "_rows"

// CheckName validates the schema name of a copy.
func CheckName(name string) error {
	switch {
	case !schemaName.MatchString(name):
		return fmt.Errorf("is not a valid schema name; give 1 to 51 of a-z, 0-9 and _, starting with a letter")
	case schema.Reserved(name), schema.Reserved(name + rowsSuffix):
		return fmt.Errorf("is a name that scrip or PostgreSQL uses itself; choose another")
	}
	return nil
}

// Copy creates tables as of a time in a separate schema, for analysts to read. A zero time is now. No projector updates
// them.
func (s *Session) Copy(ctx context.Context, name string, until time.Time) (r Result, err error) {
	started := time.Now()
	if err := CheckName(name); err != nil {
		return r, refuse("schema %q %w", name, err)
	}
	var only selection
	if !until.IsZero() {
		if until.After(started) {
			return r, refuse("%s is in the future; give a time that has passed", until.UTC().Format(time.RFC3339))
		}
		only.Until = wire.At(until)
	}
	rows := name + rowsSuffix
	var there bool
	if err := s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname IN ($1, $2))", name, rows).Scan(&there); err != nil {
		return r, explain(err)
	}
	if there {
		copied, err := schema.Ours(ctx, s.pool, rows)
		if err != nil {
			return r, explain(err)
		}
		if !copied {
			return r, refuse("schema %s or %s exists, and is no copy of the read tables; choose another name", name, rows)
		}
		return r, refuse("schema %s or %s exists; drop them (DROP SCHEMA %s, %s CASCADE), or choose another name", name, rows, name, rows)
	}
	err = s.filling(ctx, func(ctx context.Context) error {
		sh, err := s.load(ctx, only, &r)
		if err != nil {
			return err
		}
		r.Schema, r.Events = name, sh.events()
		s.mu.Lock()
		defer s.mu.Unlock()
		ctx = context.WithoutCancel(ctx)
		return pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf("CREATE SCHEMA %s; ALTER SCHEMA %s RENAME TO %s", name, sh.name, rows)); err != nil {
				return err
			}
			if err := schema.Show(ctx, tx, name, rows); err != nil {
				return err
			}
			asOf := until
			if asOf.IsZero() {
				asOf = started
			}
			_, err := tx.Exec(ctx, confine.Copied(name, asOf), pgx.QueryExecModeSimpleProtocol)
			return err
		})
	})
	r.Took = time.Since(started)
	return r, err
}
