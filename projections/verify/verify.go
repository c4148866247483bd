package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/projections/rebuild"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Options of a verification. The zero value selects the defaults.
type Options struct {
	// Campaign limits the comparison to one campaign, without dead letters, which belong to lanes. Empty = all.
	Campaign string
	// Limit is how many differing rows are listed, each with all differing columns; all are counted. Defaults to 100.
	Limit int
	// Repair replaces differing rows, campaign by campaign, and changes no other row.
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
	// Of an index, constraint, view or function, identified by Key.
	DefinitionMissing = "definition missing"
	DefinitionChanged = "definition changed"
)

// Table is the result for one table.
type Table struct {
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
	Tables    []Table             `json:"tables"`
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
	s      *rebuild.Session
	js     jetstream.JetStream
	opts   Options
	report *Report

	lane       int // of Options.Campaign
	sh         *rebuild.Shadow
	unreadable error // the reason why a repair would not help
}

// Run verifies. Differences are not an error: see Report.Equal. Progress is reported by the session.
func Run(ctx context.Context, s *rebuild.Session, js jetstream.JetStream, opts Options) (*Report, error) {
	if opts.Limit <= 0 {
		opts.Limit = 100
	}
	began := time.Now()
	c := &check{s: s, js: js, opts: opts, report: &Report{Differences: []Difference{}}}
	if opts.Campaign != "" {
		c.lane = topology.LaneOf(opts.Campaign, s.Log().Lanes)
	}
	if err := s.CheckVersion(ctx); err != nil {
		return nil, err
	}
	note, err := s.CheckRoom(ctx)
	if err != nil {
		return nil, err
	}
	if note != "" {
		c.report.Notes = append(c.report.Notes, note)
	}
	err = s.Scratch(ctx, func(ctx context.Context) error {
		if err := c.compare(ctx); err != nil {
			return err
		}
		if opts.Repair && !c.report.Equal() {
			return c.repair(ctx)
		}
		return nil
	})
	c.report.Took = time.Since(began)
	return c.report, err
}

// compare compares a snapshot of the live tables with the log up to their checkpoints.
func (c *check) compare(ctx context.Context) error {
	tx, err := c.s.Pool().BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	there, err := rebuild.Tables(ctx, tx, schema.Name)
	if err != nil {
		return err
	}
	to, err := c.positions(ctx, tx, there)
	if err != nil {
		return err
	}
	if c.sh, err = c.s.Build(ctx, rebuild.ScratchSchema, rebuild.Only{Campaign: c.opts.Campaign}, to, false); err != nil {
		return err
	}
	c.report.Events = c.sh.Events()
	if err := c.s.Phase(rebuild.Comparing); err != nil {
		return err
	}
	if err := c.tables(ctx, tx, there); err != nil {
		return err
	}
	if c.opts.Campaign == "" {
		if err := c.definitions(ctx, tx, there); err != nil {
			return err
		}
	}
	if c.opts.Campaign != "" && c.report.Equal() && !slices.ContainsFunc(c.report.Tables, func(t Table) bool { return t.Rows > 0 }) {
		return fmt.Errorf("campaign %q is neither in the log nor in the tables", c.opts.Campaign)
	}
	return nil
}

// positions verifies that the checkpoints are positions in this log, and returns the sequences up to which to fold it.
// A lane without a valid checkpoint is folded to its end, or to the checkpoint's sequence.
func (c *check) positions(ctx context.Context, tx pgx.Tx, there []string) ([]uint64, error) {
	ends, err := c.s.Ends(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(there, "checkpoint") {
		return ends, nil // tables reports it as missing
	}
	at, err := rebuild.Live(ctx, tx, c.s.Log().Lanes, c.s.Log().UUID)
	if err != nil {
		return nil, err
	}
	c.report.Positions = at
	to := make([]uint64, len(at))
	for n, p := range at {
		to[n] = min(p.Sequence, ends[n])
		err := eventlog.Events(c.js, n).Verify(ctx, c.s.Log().UUID, p)
		switch {
		case err == nil:
		case errors.Is(err, eventlog.ErrLostTail), errors.Is(err, eventlog.ErrDiverged), errors.Is(err, eventlog.ErrTrimmed):
			if p.Log != c.s.Log().UUID {
				to[n] = ends[n]
			}
			c.unreadable = fmt.Errorf("%w (lane %d: %w)", ErrNotRepairable, n, err)
			expected, found := fmt.Sprintf("a message of log %s, which ends at %d", c.s.Log().UUID, ends[n]), fmt.Sprintf("%d of log %s", p.Sequence, p.Log)
			if errors.Is(err, eventlog.ErrDiverged) && p.Log == c.s.Log().UUID {
				expected, found = "the message that was applied", "another one with the same sequence: the log lost its tail and was extended"
			}
			c.found(Difference{Table: "checkpoint", Key: fmt.Sprint(n), Column: "sequence", Problem: NotInLog, Expected: &expected, Found: &found})
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

// definitions compares indexes, constraints, views and functions: without them tables with correct rows give wrong,
// slow or duplicate results. Additional ones of others are ignored.
func (c *check) definitions(ctx context.Context, live pgx.Tx, there []string) error {
	found, expected, err := c.s.Definitions(ctx, live)
	if err != nil {
		return err
	}
	for _, want := range expected {
		i := slices.IndexFunc(found, func(d rebuild.Definition) bool { return d.Relation == want.Relation && d.What == want.What })
		d := Difference{Table: want.Relation, Key: want.What, Problem: DefinitionMissing, Expected: &want.Text}
		switch {
		case i >= 0 && found[i].Text == want.Text:
			continue
		case i >= 0:
			d.Problem, d.Found = DefinitionChanged, &found[i].Text
		case want.Relation != "" && want.What != "view "+want.Relation && !slices.Contains(there, want.Relation):
			continue // its table is missing, which is already reported
		}
		c.lacks(d)
	}
	return nil
}
