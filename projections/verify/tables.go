package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/rebuild"
	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// querier is the common interface of a pool, a connection and a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// shape is the expected definition of a table.
type shape struct {
	table   string
	key     []string
	columns []string // without generated ones, which follow from the others
	group   string   // expression: the campaign, or the lane
	bucket  string   // expression that divides a large group into pieces, "" = none
	lane    bool     // has a column lane
}

// bucketRows is how many numbers a piece of a large group has: if one row differs, that many are sorted and sent.
const bucketRows = 4096

// $1 = schema
const columnsSQL = `
SELECT c.relname::text, a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = $1 AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY c.relname, a.attnum`

// $1 = schema
const keysSQL = `
SELECT c.relname::text, a.attname::text FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_namespace s ON s.oid = c.relnamespace
CROSS JOIN LATERAL unnest(x.indkey::int[]) WITH ORDINALITY k (attnum, place)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE s.nspname = $1 AND x.indisprimary ORDER BY c.relname, k.place`

func lists(ctx context.Context, db querier, sql, name string) (map[string][]string, error) {
	rows, err := db.Query(ctx, sql, name)
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	var table, column string
	_, err = pgx.ForEachRow(rows, []any{&table, &column}, func() error {
		found[table] = append(found[table], column)
		return nil
	})
	return found, err
}

// shapes reads the definitions of the scratch tables.
func shapes(ctx context.Context, db querier) ([]shape, error) {
	columns, err := lists(ctx, db, columnsSQL, rebuild.ScratchSchema)
	if err != nil {
		return nil, err
	}
	keys, err := lists(ctx, db, keysSQL, rebuild.ScratchSchema)
	if err != nil {
		return nil, err
	}
	var list []shape
	for table, cols := range columns {
		if table == "checkpoint" {
			continue
		}
		s := shape{table: table, columns: cols, key: keys[table], group: "x.lane::text", lane: slices.Contains(cols, "lane")}
		if slices.Contains(cols, "campaign") {
			s.group = "x.campaign"
		}
		for _, number := range []string{"n", "r"} {
			if slices.Contains(s.key, number) {
				s.bucket = fmt.Sprintf("x.%s / %d", number, bucketRows)
			}
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b shape) int { return strings.Compare(a.table, b.table) })
	return list, nil
}

// tables compares all tables.
func (c *check) tables(ctx context.Context, live pgx.Tx, there []string) error {
	list, err := shapes(ctx, c.s.Pool())
	if err != nil {
		return err
	}
	columns, err := lists(ctx, live, columnsSQL, schema.Name)
	if err != nil {
		return err
	}
	if !slices.Contains(there, "checkpoint") {
		c.lacks(Difference{Table: "checkpoint", Problem: TableMissing})
	}
	for _, s := range list {
		if c.opts.Campaign != "" && s.group != "x.campaign" {
			continue
		}
		whole := slices.Contains(there, s.table)
		if !whole {
			c.lacks(Difference{Table: s.table, Problem: TableMissing})
		}
		for _, column := range s.columns {
			if slices.Contains(there, s.table) && !slices.Contains(columns[s.table], column) {
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

func (c *check) lacks(d Difference) {
	c.unreadable = fmt.Errorf("%w (%s: %s)", ErrNotRepairable, d.Table, d.Problem)
	c.found(d)
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
	t := Table{Table: s.table}
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
func (c *check) group(ctx context.Context, live pgx.Tx, s shape, t *Table, g group) error {
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
func (c *check) rows(ctx context.Context, live pgx.Tx, s shape, t *Table, where string, args []any) error {
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
	left, err := openSide(ctx, live, sql(schema.Name), args)
	if err != nil {
		return err
	}
	defer left.close()
	right, err := openSide(ctx, c.s.Pool(), sql(rebuild.ScratchSchema), args)
	if err != nil {
		return err
	}
	defer right.close()
	for left.row != nil || right.row != nil {
		order := 0
		switch {
		case left.row == nil:
			order = 1
		case right.row == nil:
			order = -1
		default:
			order = slices.CompareFunc(left.row[:key], right.row[:key], func(a, b *string) int { return strings.Compare(text(a), text(b)) })
		}
		var found, expected []*string
		if order <= 0 {
			found = left.row
		}
		if order >= 0 {
			expected = right.row
		}
		if err := f(found, expected); err != nil {
			return err
		}
		if found != nil {
			if err := left.next(); err != nil {
				return err
			}
		}
		if expected != nil {
			if err := right.next(); err != nil {
				return err
			}
		}
	}
	return nil
}

// side is one of two results, with its current row; row is nil at its end.
type side struct {
	rows pgx.Rows
	row  []*string
}

func openSide(ctx context.Context, db querier, sql string, args []any) (*side, error) {
	// Values of all types as text, which is compared and shown.
	rows, err := db.Query(ctx, sql, append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, args...)...)
	if err != nil {
		return nil, err
	}
	s := &side{rows: rows}
	if err := s.next(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *side) next() error {
	s.row = nil
	if !s.rows.Next() {
		return s.rows.Err()
	}
	for _, raw := range s.rows.RawValues() {
		if raw == nil {
			s.row = append(s.row, nil)
			continue
		}
		v := string(raw)
		s.row = append(s.row, &v)
	}
	return nil
}

func (s *side) close() { s.rows.Close() }

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
