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

// repair replaces the rows of what differs by those that the log makes. The scratch tables are brought to where the live
// ones are by then, which are held meanwhile: what the projector applied is in both, and what it will apply in neither.
func (c *check) repair(ctx context.Context) error {
	if c.unreadable != nil {
		return c.unreadable
	}
	if err := c.sh.Approach(ctx, false); err != nil {
		return err
	}
	list, err := shapes(ctx, c.s.Pool())
	if err != nil {
		return err
	}
	campaigns, lanes := c.differing(list)
	err = c.s.Locked(ctx, func(ctx context.Context, tx pgx.Tx, _ bool) error {
		if err := c.sh.Reach(ctx, tx); err != nil {
			return err
		}
		if err := c.level(ctx, tx); err != nil {
			return err
		}
		if err := c.s.Phase(rebuild.Exchanging); err != nil {
			return err
		}
		background := context.WithoutCancel(ctx)
		for _, s := range list {
			names := campaigns
			if s.group != "x.campaign" {
				names = lanes
			}
			if err := c.replace(background, tx, s, names); err != nil {
				return fmt.Errorf("repairing table %s: %w", s.table, err)
			}
		}
		return rebuild.Renew(background, tx)
	})
	if err != nil {
		return err
	}
	c.report.Repaired = campaigns
	for _, lane := range lanes {
		c.report.Repaired = append(c.report.Repaired, "lane "+lane)
	}
	return c.s.Phase(rebuild.Exchanged)
}

// level makes sure that both stand at the same place in the log. They do not if somebody made the tables anew meanwhile, or
// moved their checkpoint back: rows as of a later place would get what lies between once more.
func (c *check) level(ctx context.Context, tx pgx.Tx) error {
	live, err := rebuild.Live(context.WithoutCancel(ctx), tx, c.s.Log().Lanes, c.s.Log().UUID)
	if err != nil {
		return err
	}
	for n, at := range c.sh.Positions() {
		if (c.opts.Campaign == "" || n == c.lane) && live[n] != at {
			return fmt.Errorf("%w (lane %d: the tables in use went to message %d meanwhile, the fold of the log is at %d)", ErrNotRepairable, n, live[n].Sequence, at.Sequence)
		}
	}
	return nil
}

// differing lists campaigns of which any table differs, and lanes of tables that know no campaign.
func (c *check) differing(list []shape) (campaigns, lanes []string) {
	for _, t := range c.report.Tables {
		i := slices.IndexFunc(list, func(s shape) bool { return s.table == t.Table })
		if list[i].group == "x.campaign" {
			campaigns = append(campaigns, t.Groups...)
		} else {
			lanes = append(lanes, t.Groups...)
		}
	}
	slices.Sort(campaigns)
	slices.Sort(lanes)
	return slices.Compact(campaigns), slices.Compact(lanes)
}

// replace puts rows of the scratch table in the place of the live ones.
func (c *check) replace(ctx context.Context, tx pgx.Tx, s shape, names []string) error {
	if len(names) == 0 {
		return nil
	}
	where, args := c.where(s)
	where, args = fmt.Sprintf("%s AND %s = ANY($%d)", where, s.group, len(args)+1), append(slices.Clone(args), names)
	if _, err := tx.Exec(ctx, fmt.Sprintf("DELETE FROM %s.%s x WHERE %s", schema.Name, s.table, where), args...); err != nil {
		return err
	}
	columns := strings.Join(s.columns, ", ")
	_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s.%s (%s) SELECT x.%s FROM %s.%s x WHERE %s",
		schema.Name, s.table, columns, strings.ReplaceAll(columns, ", ", ", x."), rebuild.ScratchSchema, s.table, where), args...)
	return err
}
