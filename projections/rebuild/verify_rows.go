package rebuild

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// shape is the definition of a relation, as schema.Make makes it.
type shape struct {
	table   string
	columns []string // without generated ones, which follow from the others
	key     []string
	group   string // expression, a text: the campaign, or the lane
	number  string // column of the key: groups are divided by it, "" = they are not
	lanes   bool   // its key has the lane, and its groups are campaigns: they are divided by lanes
}

// byCampaign is the group of most tables.
const byCampaign = "x.campaign"

// bucketBits is how many bits of a number are within a piece: if one row differs, 4,096 numbers are compared.
const bucketBits = 12

// bucket is an expression, a text, that divides a group into pieces; "" = the group is one piece.
func (s *shape) bucket() string {
	switch {
	case s.number != "":
		return fmt.Sprintf("(x.%s >> %d)::text", s.number, bucketBits)
	case s.lanes:
		return "x.lane::text"
	}
	return ""
}

// piece is a part of a group that is compared row by row, and repaired at once.
type piece struct {
	shape
	name   string // of the group
	lane   int    // whose projector writes it
	bucket int64  // of numbers

	parked *parked // only dead letters of one campaign; nil = all rows
}

// parked are dead letters of events of one campaign: they have no column for it, but the line that could not be applied.
type parked struct{ stream, prefix string }

// where is the condition for rows x of the piece, for which an index is used, with its arguments.
func (p *piece) where() (where string, args []any) {
	where, args = "x.campaign = $1", []any{p.name}
	if p.group != byCampaign {
		where, args = "x.lane = $1", []any{int64(p.lane)}
	}
	switch {
	case p.parked != nil:
		return where + " AND x.stream = $2 AND x.payload ~ $3", append(args, p.parked.stream, p.parked.prefix)
	case p.number != "":
		return fmt.Sprintf("%s AND x.%s >= $2 AND x.%[2]s < $3", where, p.number), append(args, p.bucket<<bucketBits, (p.bucket+1)<<bucketBits)
	case p.lanes:
		return where + " AND x.lane = $2", append(args, int64(p.lane))
	}
	return where, args
}

// $1 = schema
const shapesSQL = `
SELECT c.relname::text,
       ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum),
       ARRAY(SELECT a.attname::text FROM pg_index x CROSS JOIN LATERAL unnest(x.indkey::int[]) WITH ORDINALITY k (attnum, place)
             JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum WHERE x.indrelid = c.oid AND x.indisprimary ORDER BY k.place)
FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = $1 AND c.relname <> 'checkpoint' AND ` + comparedSQL + ` ORDER BY c.relname COLLATE "C"`

// shapes reads the definitions of the relations of a schema that are compared, sorted by name, without checkpoint.
func shapes(ctx context.Context, db schema.Querier, name string) ([]shape, error) {
	scan := func(row pgx.CollectableRow) (s shape, err error) {
		err = row.Scan(&s.table, &s.columns, &s.key)
		if s.table == couponRow {
			s.key = []string{"campaign", "n"}
		}
		s.group = "x.lane::text"
		if slices.Contains(s.columns, "campaign") {
			s.group, s.lanes = byCampaign, slices.Contains(s.key, "lane")
		}
		for _, number := range []string{"n", "r", "event_sequence"} {
			if slices.Contains(s.key, number) {
				s.number = number
			}
		}
		return s, err
	}
	return schema.Collect(ctx, db, scan, shapesSQL, name)
}

// tables compares all tables.
func (c *check) tables(ctx context.Context, tx pgx.Tx, there []string) error {
	list, err := shapes(ctx, tx, c.sh.name)
	if err != nil {
		return err
	}
	c.shapes = list
	found, err := shapes(ctx, tx, c.s.now.Live)
	if err != nil {
		return err
	}
	if !slices.Contains(there, checkpointTable) {
		c.lacks(Difference{Table: checkpointTable, Problem: TableMissing})
	}
	var hides bool // table leaving, which is not compared: without it the rows of others that are shown are unknown
	if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", c.s.now.Live+".leaving").Scan(&hides); err != nil {
		return err
	}
	if !hides {
		c.lacks(Difference{Table: "leaving", Problem: TableMissing})
	}
	for _, s := range list {
		if c.opts.Campaign != "" && s.group != byCampaign {
			continue
		}
		i := slices.IndexFunc(found, func(f shape) bool { return f.table == s.table })
		if i < 0 {
			c.lacks(Difference{Table: s.table, Problem: TableMissing})
			continue
		}
		whole := hides || !schema.Leaves(s.table)
		for _, column := range s.columns {
			if !slices.Contains(found[i].columns, column) {
				c.lacks(Difference{Table: s.table, Column: column, Problem: ColumnMissing})
				whole = false
			}
		}
		if !whole {
			continue
		}
		if err := c.table(ctx, tx, s); err != nil {
			return fmt.Errorf("comparing table %s: %w", s.table, err)
		}
	}
	return nil
}

// where returns the condition of all queries, with its arguments.
func (c *check) where(s shape) (string, []any) {
	switch {
	case c.opts.Campaign == "":
		return "true", nil
	case s.lanes:
		return "x.campaign = $1 AND x.lane = $2", []any{c.opts.Campaign, c.lane}
	}
	return "x.campaign = $1", []any{c.opts.Campaign}
}

// table compares one table: digests per group, of groups that differ digests per piece, and rows of pieces that differ.
func (c *check) table(ctx context.Context, tx pgx.Tx, s shape) error {
	where, args := c.where(s)
	t := VerifiedTable{Table: s.table}
	all, err := c.groups(ctx, tx, s, s.group, where, args)
	if err != nil {
		return err
	}
	for _, g := range all {
		t.Rows += g.Found
		t.Expected += g.Expected
		if !g.Differs {
			continue
		}
		t.Groups = append(t.Groups, g.Name)
		pieces, err := c.divide(ctx, tx, s, g.Name)
		if err != nil {
			return err
		}
		for _, p := range pieces {
			if err := c.rows(ctx, tx, p, &t); err != nil {
				return err
			}
		}
		c.pieces = append(c.pieces, pieces...)
	}
	c.report.Tables = append(c.report.Tables, t)
	return nil
}

// divide returns the pieces of a group that differ. If one campaign alone was folded, other lanes are not looked at.
func (c *check) divide(ctx context.Context, tx pgx.Tx, s shape, name string) (pieces []piece, err error) {
	whole := piece{shape: s, name: name, lane: topology.LaneOf(name, c.s.log.Lanes)}
	if s.group != byCampaign {
		if whole.lane, err = strconv.Atoi(name); err != nil {
			return nil, err
		}
	}
	if s.bucket() == "" {
		return []piece{whole}, nil
	}
	all, err := c.groups(ctx, tx, s, s.bucket(), s.group+" = $1", []any{name})
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		p := whole
		bucket, err := strconv.ParseInt(g.Name, 10, 64)
		if err != nil {
			return nil, err
		}
		if p.bucket = bucket; s.number == "" {
			p.lane = int(bucket)
		}
		if g.Differs && (c.opts.Campaign == "" || p.lane == c.lane) {
			pieces = append(pieces, p)
		}
	}
	return pieces, nil
}

// group is the digest of some rows of a table on both sides.
type group struct {
	Name            string
	Found, Expected int64 // rows
	Differs         bool
}

// groups digests both sides by an expression.
func (c *check) groups(ctx context.Context, tx pgx.Tx, s shape, by, where string, args []any) ([]group, error) {
	side := func(name string) string {
		return fmt.Sprintf(`(SELECT %s COLLATE "C" AS name, count(*) AS n, sum(hash_record_extended(ROW(x.%s), 0)) AS digest
			FROM %s.%s x WHERE %s AND %s GROUP BY 1)`,
			by, strings.Join(s.columns, ", x."), name, s.table, where, schema.Staying(name, s.table))
	}
	return schema.Collect(ctx, tx, pgx.RowToStructByPos[group], `SELECT name, coalesce(f.n, 0), coalesce(e.n, 0), (f.n, f.digest) IS DISTINCT FROM (e.n, e.digest)
		FROM `+side(c.s.now.Live)+` f FULL JOIN `+side(c.sh.name)+` e USING (name) ORDER BY 1`, args...)
}

// rows compares rows column by column, as text. A row that is there twice differs once.
func (c *check) rows(ctx context.Context, tx pgx.Tx, p piece, t *VerifiedTable) error {
	s := p.shape
	where, args := p.where()
	side := func(name string) string {
		return fmt.Sprintf(`(SELECT ARRAY[x.%s::text] COLLATE "C" AS key, ARRAY[x.%s::text] COLLATE "C" AS row FROM %s.%s x WHERE %s AND %s)`,
			strings.Join(s.key, "::text, x."), strings.Join(s.columns, "::text, x."), name, s.table, where, schema.Staying(name, s.table))
	}
	live, scratch := side(c.s.now.Live), side(c.sh.name)
	found, _ := tx.Query(ctx, `SELECT array_to_string(key, '/'), f.row, e.row FROM (`+live+` EXCEPT ALL `+scratch+`) f
		FULL JOIN (`+scratch+` EXCEPT ALL `+live+`) e USING (key) ORDER BY key`, args...) // its error is that of the rows
	d := Difference{Table: s.table}
	var is, want []*string
	_, err := pgx.ForEachRow(found, []any{&d.Key, &is, &want}, func() error {
		d.Column, d.Expected, d.Found = "", nil, nil
		switch {
		case is == nil:
			t.Missing++
			d.Problem = Missing
		case want == nil:
			t.TooMany++
			d.Problem = TooMany
		default:
			t.Changed++
			d.Problem = Changed
		}
		if d.Problem != Changed {
			c.found(d)
			return nil
		}
		var changed []Difference
		for i, column := range s.columns {
			if d.Found, d.Expected = is[i], want[i]; !same(d.Found, d.Expected) {
				d.Column = column
				changed = append(changed, d)
			}
		}
		c.found(changed...)
		return nil
	})
	return err
}

func same(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
