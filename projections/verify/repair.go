package verify

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/rebuild"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/topology"
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
		if err := c.renewParked(background, tx, campaigns); err != nil {
			return fmt.Errorf("repairing table %s: %w", deadLetter, err)
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

const deadLetter = "dead_letter"

// Dead letters of events, in the lanes of some campaigns.
//
// $1 = lanes   $2 = their event streams   $3 = what the quoted line begins with, empty = whatever
const parkedSQL = `x.lane = ANY($1) AND x.stream = ANY($2) AND x.payload ~ $3`

// renewParked makes anew which events of repaired campaigns are parked. The live projector parks an event that meets a
// damaged row, also after the snapshot that was compared, so the comparison cannot know. Dead letters name no campaign:
// all of the lane are looked at, and where one campaign alone was folded, those whose line begins as its events do.
func (c *check) renewParked(ctx context.Context, tx pgx.Tx, campaigns []string) error {
	var lanes []int
	var streams []string
	for _, name := range campaigns {
		lane := topology.LaneOf(name, c.s.Log().Lanes)
		lanes, streams = append(lanes, lane), append(streams, topology.EvtStream(lane))
	}
	begins := ""
	if c.opts.Campaign != "" {
		begins = `^\{"type":"[^"]*","campaign":"` + regexp.QuoteMeta(c.opts.Campaign) + `"`
	}
	const scratch = rebuild.ScratchSchema + "." + deadLetter
	const live = schema.Name + "." + deadLetter
	removed, err := tx.Exec(ctx, "DELETE FROM "+live+" x WHERE "+parkedSQL+" AND NOT EXISTS (SELECT 1 FROM "+scratch+` s
		WHERE s.lane = x.lane AND s.event_sequence = x.event_sequence AND s.event_line = x.event_line)`, lanes, streams, begins)
	if err != nil {
		return err
	}
	added, err := tx.Exec(ctx, "INSERT INTO "+live+" SELECT x.* FROM "+scratch+" x WHERE "+parkedSQL+" ON CONFLICT DO NOTHING", lanes, streams, begins)
	if n := removed.RowsAffected() + added.RowsAffected(); err == nil && n > 0 {
		c.report.Notes = append(c.report.Notes, fmt.Sprintf("events that met damaged rows: %d dead letters put right as well", n))
	}
	return err
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
