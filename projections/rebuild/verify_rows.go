package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// shape is the definition of a table, as schema.Create makes it.
type shape struct {
	table   string
	columns []string // without generated ones, which follow from the others
	key     []string
	group   string // expression: the campaign, or the lane
	bucket  string // expression that divides a large group into pieces, "" = none
	lane    bool   // has a column lane
}

// bucketRows is how many numbers a piece of a large group has: if one row differs, that many are sorted and sent.
const bucketRows = 4096

// $1 = schema
const shapesSQL = `
SELECT c.relname::text,
       ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum),
       ARRAY(SELECT a.attname::text FROM pg_index x CROSS JOIN LATERAL unnest(x.indkey::int[]) WITH ORDINALITY k (attnum, place)
             JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum WHERE x.indrelid = c.oid AND x.indisprimary ORDER BY k.place)
FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = $1 AND c.relkind IN ('r', 'p') AND c.relname <> 'checkpoint' ORDER BY c.relname COLLATE "C"`

// shapes reads the definitions of the tables of a schema, sorted by name, without checkpoint.
func shapes(ctx context.Context, db rower, name string) ([]shape, error) {
	rows, err := db.Query(ctx, shapesSQL, name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s shape, err error) {
		err = row.Scan(&s.table, &s.columns, &s.key)
		s.group, s.lane = "x.lane::text", slices.Contains(s.columns, "lane")
		if slices.Contains(s.columns, "campaign") {
			s.group = "x.campaign"
		}
		for _, number := range []string{"n", "r"} {
			if slices.Contains(s.key, number) {
				s.bucket = fmt.Sprintf("x.%s / %d", number, bucketRows)
			}
		}
		return s, err
	})
}

// tables compares all tables.
func (c *check) tables(ctx context.Context, live pgx.Tx, there []string) error {
	list, err := shapes(ctx, c.s.pool, ScratchSchema)
	if err != nil {
		return err
	}
	found, err := shapes(ctx, live, schema.Name)
	if err != nil {
		return err
	}
	if !slices.Contains(there, checkpointTable) {
		c.lacks(Difference{Table: checkpointTable, Problem: TableMissing})
	}
	for _, s := range list {
		if c.opts.Campaign != "" && s.group != "x.campaign" {
			continue
		}
		i := slices.IndexFunc(found, func(f shape) bool { return f.table == s.table })
		if i < 0 {
			c.lacks(Difference{Table: s.table, Problem: TableMissing})
			continue
		}
		whole := true
		for _, column := range s.columns {
			if !slices.Contains(found[i].columns, column) {
				c.lacks(Difference{Table: s.table, Column: column, Problem: ColumnMissing})
				whole = false
			}
		}
		if !whole {
			continue
		}
		if err := c.table(ctx, live, s); err != nil {
			return fmt.Errorf("comparing table %s: %w", s.table, err)
		}
	}
	return nil
}

// where returns the condition of all queries, with its arguments.
func (c *check) where(s shape) (string, []any) {
	if c.opts.Campaign == "" {
		return "true", nil
	}
	if s.lane {
		return "x.campaign = $1 AND x.lane = $2", []any{c.opts.Campaign, c.lane}
	}
	return "x.campaign = $1", []any{c.opts.Campaign}
}

// table compares one table: digests per group, and rows of groups that differ.
func (c *check) table(ctx context.Context, live pgx.Tx, s shape) error {
	where, args := c.where(s)
	t := VerifiedTable{Table: s.table}
	differ, err := c.groups(ctx, live, s, s.group, where, args, func(found, expected int64) {
		t.Rows += found
		t.Expected += expected
	})
	if err != nil {
		return err
	}
	for _, g := range differ {
		t.Groups = append(t.Groups, g.name)
		if err := c.group(ctx, live, s, &t, g); err != nil {
			return err
		}
	}
	c.report.Tables = append(c.report.Tables, t)
	return nil
}

// group compares the rows of one group; of a large one only pieces that differ.
func (c *check) group(ctx context.Context, live pgx.Tx, s shape, t *VerifiedTable, g group) error {
	where, args := c.where(s)
	where, args = fmt.Sprintf("%s AND %s = $%d", where, s.group, len(args)+1), append(slices.Clone(args), g.name)
	if s.bucket == "" || g.rows <= bucketRows {
		return c.rows(ctx, live, s, t, where, args)
	}
	pieces, err := c.groups(ctx, live, s, "("+s.bucket+")::text", where, args, func(int64, int64) {})
	if err != nil {
		return err
	}
	for _, p := range pieces {
		if err := c.rows(ctx, live, s, t, fmt.Sprintf("%s AND (%s)::text = $%d", where, s.bucket, len(args)+1), append(slices.Clone(args), p.name)); err != nil {
			return err
		}
	}
	return nil
}

// group is a group that differs.
type group struct {
	name string
	rows int64 // the larger count of both sides
}

// groups digests both sides by an expression and returns the groups that differ. It calls count with each pair of row
// counts.
func (c *check) groups(ctx context.Context, live pgx.Tx, s shape, by, where string, args []any, count func(found, expected int64)) ([]group, error) {
	sql := func(name string) string {
		return fmt.Sprintf(`SELECT (%s) COLLATE "C" AS name, count(*), sum(hash_record_extended(ROW(x.%s), 0))::text FROM %s.%s x WHERE %s GROUP BY 1 ORDER BY 1`,
			by, strings.Join(s.columns, ", x."), name, s.table, where)
	}
	var differ []group
	err := c.merge(ctx, live, sql, args, 1, func(found, expected []*string) error {
		var counts [2]int64
		name := ""
		for i, side := range [][]*string{found, expected} {
			if side != nil {
				name = text(side[0])
				if _, err := fmt.Sscan(text(side[1]), &counts[i]); err != nil {
					return err
				}
			}
		}
		count(counts[0], counts[1])
		if found == nil || expected == nil || text(found[1]) != text(expected[1]) || text(found[2]) != text(expected[2]) {
			differ = append(differ, group{name, max(counts[0], counts[1])})
		}
		return nil
	})
	return differ, err
}

// rows compares rows column by column.
func (c *check) rows(ctx context.Context, live pgx.Tx, s shape, t *VerifiedTable, where string, args []any) error {
	sql := func(name string) string {
		var list, order []string
		for _, k := range s.key {
			list = append(list, "x."+k+"::text")
			order = append(order, "x."+k+`::text COLLATE "C"`)
		}
		for _, column := range s.columns {
			list = append(list, "x."+column+"::text")
		}
		return fmt.Sprintf("SELECT %s FROM %s.%s x WHERE %s ORDER BY %s", strings.Join(list, ", "), name, s.table, where, strings.Join(order, ", "))
	}
	k := len(s.key)
	return c.merge(ctx, live, sql, args, k, func(found, expected []*string) error {
		row := found
		if row == nil {
			row = expected
		}
		d := Difference{Table: s.table, Key: joined(row[:k])}
		switch {
		case found == nil:
			t.Missing++
			d.Problem = Missing
			c.found(d)
			return nil
		case expected == nil:
			t.TooMany++
			d.Problem = TooMany
			c.found(d)
			return nil
		}
		var changed []Difference
		for i, column := range s.columns {
			if f, e := found[k+i], expected[k+i]; !same(f, e) {
				d.Column, d.Problem, d.Expected, d.Found = column, Changed, e, f
				changed = append(changed, d)
			}
		}
		if changed != nil {
			t.Changed++
			c.found(changed...)
		}
		return nil
	})
}

// merge joins two ordered results by their first columns and calls f with each pair of rows; a side without a row is
// nil.
func (c *check) merge(ctx context.Context, live pgx.Tx, sql func(schema string) string, args []any, key int, f func(found, expected []*string) error) error {
	// Values of all types as text, which is compared and shown.
	args = append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, args...)
	left, err := live.Query(ctx, sql(schema.Name), args...)
	if err != nil {
		return err
	}
	defer left.Close()
	right, err := c.s.pool.Query(ctx, sql(ScratchSchema), args...)
	if err != nil {
		return err
	}
	defer right.Close()
	for found, expected := next(left), next(right); ; {
		if err := errors.Join(left.Err(), right.Err()); err != nil || found == nil && expected == nil {
			return err
		}
		order := 0
		switch {
		case found == nil:
			order = 1
		case expected == nil:
			order = -1
		default:
			order = slices.CompareFunc(found[:key], expected[:key], func(a, b *string) int { return strings.Compare(text(a), text(b)) })
		}
		switch {
		case order < 0:
			err = f(found, nil)
		case order > 0:
			err = f(nil, expected)
		default:
			err = f(found, expected)
		}
		if err != nil {
			return err
		}
		if order <= 0 {
			found = next(left)
		}
		if order >= 0 {
			expected = next(right)
		}
	}
}

// next returns the next row of a result, nil at its end or after an error.
func next(rows pgx.Rows) (row []*string) {
	if !rows.Next() {
		return nil
	}
	for _, raw := range rows.RawValues() {
		if raw == nil {
			row = append(row, nil)
			continue
		}
		v := string(raw)
		row = append(row, &v)
	}
	return row
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func same(a, b *string) bool { return (a == nil) == (b == nil) && text(a) == text(b) }

func joined(key []*string) string {
	parts := make([]string, len(key))
	for i, k := range key {
		parts[i] = text(k)
	}
	return strings.Join(parts, "/")
}
