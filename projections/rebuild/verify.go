package rebuild

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// VerifyOptions are options of a verification. The zero value selects the defaults.
type VerifyOptions struct {
	// Campaign limits the comparison to one campaign, without dead letters, which belong to lanes. Empty = all.
	Campaign string
	// Limit is how many differing rows are listed, each with all differing columns; all are counted. Defaults to 100.
	Limit int
	// Repair replaces differing rows, piece by piece, and changes no other row.
	Repair bool
}

// Difference is one difference between the tables and the log.
type Difference struct {
	Table string `json:"table"`
	// Key identifies the row: its key's columns, joined by "/". For a checkpoint it is the lane.
	Key string `json:"key,omitempty"`
	// Column is empty for a difference of the whole row or table.
	Column string `json:"column,omitempty"`
	// Problem is one of Changed, Missing, TooMany, TableMissing, ColumnMissing, NotInLog, DefinitionMissing and
	// DefinitionChanged.
	Problem string `json:"problem"`
	// Expected and Found are values as text; nil is NULL or no row.
	Expected *string `json:"expected"`
	Found    *string `json:"found"`
}

// The problems.
const (
	Changed       = "changed"
	Missing       = "missing"
	TooMany       = "too many"
	TableMissing  = "table missing"
	ColumnMissing = "column missing"
	NotInLog      = "checkpoint is not in the log"
	// Of an index, constraint, view, function or row security, identified by Key.
	DefinitionMissing = "definition missing"
	DefinitionChanged = "definition changed"
)

// VerifiedTable is the result for one table.
type VerifiedTable struct {
	Table    string `json:"table"`
	Rows     int64  `json:"rows"`     // in the live one
	Expected int64  `json:"expected"` // by the log
	// Groups that differ: campaigns, or lanes for tables without a campaign column.
	Groups []string `json:"groups,omitempty"`
	// Changed, Missing and TooMany count rows.
	Changed int64 `json:"changed"`
	Missing int64 `json:"missing"`
	TooMany int64 `json:"too_many"`
}

// Report is the result of a verification.
type Report struct {
	// Positions are the checkpoints of the tables, at which they were compared, by lane.
	Positions []eventlog.Position `json:"positions"`
	Events    uint64              `json:"events"`
	Tables    []VerifiedTable     `json:"tables"`
	// Differences has one entry per column of a changed row, and one per row missing or too many. Listed counts the
	// rows in it, Total all rows that differ; a wrong table, column or checkpoint counts as one.
	Differences []Difference `json:"differences"`
	Listed      int64        `json:"listed"`
	Total       int64        `json:"total"`
	// Repaired names the campaigns, and lanes, whose rows were repaired.
	Repaired []string      `json:"repaired,omitempty"`
	Notes    []string      `json:"notes,omitempty"`
	Took     time.Duration `json:"took_ns"`
}

// Equal reports whether nothing differs.
func (r *Report) Equal() bool { return r.Total == 0 }

// ErrNotRepairable is the kind of errors for damage that only a complete rebuild repairs.
var ErrNotRepairable = errors.New("cannot be repaired campaign by campaign: run `scrip rebuild`")

// check is the state of one verification.
type check struct {
	s      *Session
	opts   VerifyOptions
	report *Report

	lane       int // of VerifyOptions.Campaign
	sh         *shadow
	shapes     []shape
	pieces     []piece      // that differ
	lost       []Difference // checkpoints that are not in the log
	unreadable error        // the reason why a repair would not help
}

// Verify compares the live tables with the log, which it folds into a scratch schema up to their checkpoints.
// Differences are not an error: see Report.Equal.
func (s *Session) Verify(ctx context.Context, opts VerifyOptions) (*Report, error) {
	if opts.Limit <= 0 {
		opts.Limit = 100
	}
	started := time.Now()
	c := &check{s: s, opts: opts, report: &Report{Differences: []Difference{}}}
	if opts.Campaign != "" {
		c.lane = topology.LaneOf(opts.Campaign, s.log.Lanes)
	}
	if err := s.look(ctx, s.pool); err != nil {
		return nil, err
	}
	note, err := checkRoom(ctx, s)
	if err != nil {
		return nil, err
	}
	if note != "" {
		c.report.Notes = append(c.report.Notes, note)
	}
	err = s.filling(ctx, func(ctx context.Context) error {
		if err := c.compare(ctx); err != nil {
			return err
		}
		if opts.Repair && !c.report.Equal() {
			return c.repair(ctx)
		}
		return nil
	})
	if err == nil {
		_, err = s.dropLeftovers(ctx)
		err = explain(err)
	}
	c.report.Took = time.Since(started)
	return c.report, err
}

// compare compares the live tables with the log up to their checkpoints.
func (c *check) compare(ctx context.Context) error {
	to, err := c.positions(ctx, c.s.pool)
	if err != nil {
		return err
	}
	if c.sh, err = c.s.newShadow(ctx, "", selection{Campaign: c.opts.Campaign}, true); err != nil {
		return err
	}
	if err := c.sh.load(ctx, to, nil); err != nil {
		return err
	}
	tx, err := c.snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	c.report.Events = c.sh.events()
	for _, d := range c.lost {
		c.found(d)
	}
	if err := c.s.phase(Comparing); err != nil {
		return err
	}
	there, err := tablesOf(ctx, tx, c.s.now.Live)
	if err != nil {
		return err
	}
	if err := c.tables(ctx, tx, there); err != nil {
		return err
	}
	if c.opts.Campaign == "" {
		return c.definitions(ctx, tx, there)
	}
	if c.report.Equal() && !slices.ContainsFunc(c.report.Tables, func(t VerifiedTable) bool { return t.Rows > 0 }) {
		return fmt.Errorf("campaign %q is neither in the log nor in the tables", c.opts.Campaign)
	}
	return nil
}

// begin returns a transaction that has its snapshot.
func (s *Session) begin(ctx context.Context) (tx pgx.Tx, err error) {
	ctx = context.WithoutCancel(ctx)
	if tx, err = s.pool.BeginTx(ctx, snapshot); err == nil {
		_, err = tx.Exec(ctx, "SELECT")
	}
	return tx, err
}

// snapshot fills the scratch tables to exactly where the live ones are, and returns a transaction that sees both so. The
// projector is locked out for the last messages, and until the transaction has its snapshot: of the campaign's lane, or of all.
func (c *check) snapshot(ctx context.Context) (tx pgx.Tx, err error) {
	for range rounds {
		to, err := c.positions(ctx, c.s.pool)
		if err != nil {
			return nil, err
		}
		if c.sh.lags(to) <= near {
			break
		}
		if err := c.sh.fill(ctx, CatchingUp, to); err != nil {
			return nil, err
		}
	}
	hold := allLanes
	if c.opts.Campaign != "" {
		hold = c.lane
	}
	err = c.s.locked(ctx, hold, func(ctx context.Context, lock pgx.Tx) error {
		if c.s.unlocked != nil && !errors.Is(c.s.unlocked, errNoCheckpoints) {
			return c.s.unlocked
		}
		to, err := c.positions(context.WithoutCancel(ctx), lock)
		if err != nil {
			return err
		}
		for n, l := range c.sh.lanes {
			if to[n] < l.At.Sequence && (c.opts.Campaign == "" || n == c.lane) {
				return fmt.Errorf("the tables in use were replaced by ones that lag (lane %d was at message %d and is at %d); run it again", n, l.At.Sequence, to[n])
			}
		}
		if err := c.sh.fillLocked(ctx, CatchingUp, to); err != nil {
			return err
		}
		tx, err = c.s.begin(ctx)
		return err
	})
	if err != nil && tx != nil {
		_ = tx.Rollback(context.WithoutCancel(ctx))
	}
	return tx, err
}

// positions verifies that the checkpoints are positions in this log, and returns the sequences up to which to fold it.
// A lane with events and without a valid checkpoint is folded to its end, or to the checkpoint's sequence: nothing shows that its
// rows are those of an empty log.
func (c *check) positions(ctx context.Context, db schema.Querier) ([]uint64, error) {
	ends, err := c.s.ends(ctx)
	if err != nil {
		return nil, err
	}
	c.lost = nil
	there, err := tablesOf(ctx, db, c.s.now.Live)
	if err != nil || !slices.Contains(there, checkpointTable) { // tables reports it as missing
		return ends, err
	}
	at, none, err := c.s.positions(ctx, db, c.s.now.Live)
	if err != nil {
		return nil, err
	}
	c.report.Positions = slices.DeleteFunc(slices.Clone(at), func(p eventlog.Position) bool { return slices.Contains(none, p.Lane) })
	to := covered(at, ends)
	for n, p := range at {
		if slices.Contains(none, n) && ends[n] > 0 {
			to[n] = ends[n]
			c.unreadable = fmt.Errorf("%w (lane %d has no checkpoint)", ErrNotRepairable, n)
			expected := fmt.Sprintf("a message of log %s, which ends at %d", c.s.log.UUID, ends[n])
			c.lost = append(c.lost, Difference{Table: checkpointTable, Key: fmt.Sprint(n), Column: "sequence", Problem: Missing, Expected: &expected})
			continue
		}
		err := eventlog.Events(c.s.js, n).Verify(ctx, c.s.log.UUID, p)
		switch {
		case err == nil:
		case fill.IsLost(err):
			if p.Log != c.s.log.UUID {
				to[n] = ends[n]
			}
			c.unreadable = fmt.Errorf("%w (lane %d: %w)", ErrNotRepairable, n, err)
			expected, found := fmt.Sprintf("a message of log %s, which ends at %d", c.s.log.UUID, ends[n]), fmt.Sprintf("%d of log %s", p.Sequence, p.Log)
			if errors.Is(err, eventlog.ErrDiverged) && p.Log == c.s.log.UUID {
				expected, found = "the message that was applied", "another one with the same sequence: the log lost its tail and was extended"
			}
			c.lost = append(c.lost, Difference{Table: checkpointTable, Key: fmt.Sprint(n), Column: "sequence", Problem: NotInLog, Expected: &expected, Found: &found})
		default:
			return nil, fmt.Errorf("looking for the checkpoint of lane %d in the log: %w", n, err)
		}
	}
	return to, nil
}

// found counts a row, or what counts as one, and lists all of its differences or none.
func (c *check) found(ds ...Difference) {
	c.report.Total++
	if c.report.Listed < int64(c.opts.Limit) {
		c.report.Listed++
		c.report.Differences = append(c.report.Differences, ds...)
	}
}

// lacks counts a missing or wrong definition, which a repair cannot mend.
func (c *check) lacks(d Difference) {
	c.unreadable = fmt.Errorf("%w (%s: %s)", ErrNotRepairable, d.Table, d.Problem)
	c.found(d)
}

// definition is the definition of an index, constraint, view or function of the read tables, or whether row security hides rows of one.
type definition struct {
	Relation string // the table or view it belongs to; empty for a function
	What     string // its kind and name
	Text     string // as in schema scrip
}

// The index of a constraint is part of the constraint.
//
// $1 = schemas   $2 = the one of views with all columns
const definitionsSQL = `
SELECT t.relname::text, 'index ' || i.relname, pg_get_indexdef(i.oid) || CASE WHEN x.indisvalid THEN '' ELSE ' (invalid)' END
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid JOIN pg_namespace s ON s.oid = t.relnamespace
WHERE s.nspname = ANY($1) AND t.relname !~ '^coupon_claim_[1-9]' AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.oid AND k.conrelid = t.oid)
UNION ALL
SELECT t.relname::text, 'constraint ' || k.conname, pg_get_constraintdef(k.oid)
FROM pg_constraint k JOIN pg_class t ON t.oid = k.conrelid JOIN pg_namespace s ON s.oid = t.relnamespace WHERE s.nspname = ANY($1) AND t.relname !~ '^coupon_claim_[1-9]'
UNION ALL
SELECT v.relname::text, CASE s.nspname WHEN $2 THEN 'whole view ' ELSE 'view ' END || v.relname, pg_get_viewdef(v.oid)
FROM pg_class v JOIN pg_namespace s ON s.oid = v.relnamespace WHERE s.nspname = ANY($1) AND v.relkind = 'v'
UNION ALL
SELECT '', format('function %s(%s)', p.proname, pg_get_function_identity_arguments(p.oid)), pg_get_functiondef(p.oid)
FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace WHERE s.nspname = ANY($1) AND p.prokind = 'f'
UNION ALL
SELECT c.relname::text, 'row security', CASE WHEN c.relforcerowsecurity THEN 'forced, ' ELSE '' END || CASE WHEN c.relrowsecurity THEN 'enabled' ELSE 'disabled' END
FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = ANY($1) AND c.relkind IN ('r', 'p') AND c.relname !~ '^coupon_claim_[1-9]'
ORDER BY 1, 2`

// definitions compares indexes, constraints, views, functions and row security with what this program creates:
// without them tables with correct rows give wrong, slow or duplicate results. Additional ones of others are ignored.
func (c *check) definitions(ctx context.Context, live pgx.Tx, there []string) error {
	found, err := definitionsOf(ctx, live, schema.Name, schema.Whole, c.s.now.Live)
	if err != nil {
		return err
	}
	// Those of views are made for comparison and rolled back.
	tx, err := c.s.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	const reference, whole = "scrip_reference", "scrip_reference_tables"
	if _, err := tx.Exec(ctx, "CREATE SCHEMA "+reference); err != nil {
		return err
	}
	if err := schema.Show(ctx, tx, reference, c.sh.name); err != nil {
		return err
	}
	if err := schema.ShowWhole(ctx, tx, whole, c.sh.name); err != nil {
		return err
	}
	expected, err := definitionsOf(ctx, tx, reference, whole, c.sh.name)
	if err != nil {
		return err
	}
	for _, want := range expected {
		if slices.Contains(found, want) {
			continue
		}
		i := slices.IndexFunc(found, func(d definition) bool { return d.Relation == want.Relation && d.What == want.What })
		d := Difference{Table: want.Relation, Key: want.What, Problem: DefinitionMissing, Expected: &want.Text}
		switch {
		case i >= 0:
			d.Problem, d.Found = DefinitionChanged, &found[i].Text
		case want.Relation != "" && !strings.HasSuffix(want.What, "view "+want.Relation) && !slices.Contains(there, want.Relation) && !strings.HasPrefix(want.Relation, "coupon_"):
			continue // its table is missing, which is already reported
		}
		c.lacks(d)
	}
	return nil
}

// definitionsOf reads the definitions of views and of the tables behind them, but not those of segments, which differ.
func definitionsOf(ctx context.Context, tx pgx.Tx, views, whole, tables string) ([]definition, error) {
	// So that PostgreSQL writes every name with its schema.
	if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog"); err != nil {
		return nil, err
	}
	list, err := schema.Collect(ctx, tx, pgx.RowToStructByPos[definition], definitionsSQL, []string{views, whole, tables}, whole)
	if err != nil {
		return nil, fmt.Errorf("reading the definitions of schema %s: %w", views, err)
	}
	ofViews, ofTables := regexp.MustCompile(`\b`+views+`\b`), regexp.MustCompile(`\b`+tables+`\b`)
	for i := range list {
		list[i].Text = ofTables.ReplaceAllLiteralString(ofViews.ReplaceAllLiteralString(list[i].Text, schema.Name), "tables")
	}
	return list, nil
}
