package verify

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/rebuild"
)

// definitions compares how indexes, constraints, views and functions are made: tables with the right rows answer wrong, slowly or
// twice without them. What others made beside them is theirs.
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
			continue // its table is missing, which is said already
		}
		c.lacks(d)
	}
	return nil
}
