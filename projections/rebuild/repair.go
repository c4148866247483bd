package rebuild

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// repair replaces differing rows by those folded from the log. It locks the live tables and fills the scratch tables to
// their checkpoints first: events that the projector has applied are in both, later ones in neither.
func (c *check) repair(ctx context.Context) error {
	if c.unreadable != nil {
		return c.unreadable
	}
	if err := c.sh.catchUp(ctx, false); err != nil {
		return err
	}
	list, err := shapes(ctx, c.s.pool, c.sh.name)
	if err != nil {
		return err
	}
	campaigns, lanes := c.differing(list)
	err = c.s.locked(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if c.s.unlocked != nil {
			return c.s.unlocked
		}
		if err := c.sh.catchUpLocked(ctx, tx); err != nil {
			return err
		}
		if err := c.level(ctx, tx); err != nil {
			return err
		}
		if err := c.s.phase(Exchanging); err != nil {
			return err
		}
		background := context.WithoutCancel(ctx)
		if _, err := tx.Exec(background, "LOCK TABLE "+c.s.now.Live+".segment IN EXCLUSIVE MODE"); err != nil { // locks out merging
			return err
		}
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
		return fill.Fence(background, tx, c.s.now.Live, c.s.log.UUID, c.s.log.Lanes) // running projectors start again
	})
	if err != nil {
		return err
	}
	c.report.Repaired = campaigns
	for _, lane := range lanes {
		c.report.Repaired = append(c.report.Repaired, "lane "+lane)
	}
	return c.s.phase(Exchanged)
}

// level returns an error unless both are at the same positions. They differ if the tables were dropped and created
// again in between, or their checkpoint was moved back: then later events would be applied twice to repaired rows.
func (c *check) level(ctx context.Context, tx pgx.Tx) error {
	live, _, err := c.s.positions(context.WithoutCancel(ctx), tx, c.s.now.Live)
	if err != nil {
		return err
	}
	for n, l := range c.sh.lanes {
		if (c.opts.Campaign == "" || n == c.lane) && live[n] != l.At {
			return fmt.Errorf("%w (lane %d: the tables in use are now at message %d, the fold of the log is at %d)", ErrNotRepairable, n, live[n].Sequence, l.At.Sequence)
		}
	}
	return nil
}

// differing lists the campaigns with differing rows in any table, and the lanes for tables without a campaign column.
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
// $1 = lanes   $2 = their event streams   $3 = prefix of the quoted line, empty = any
const parkedSQL = `x.lane = ANY($1) AND x.stream = ANY($2) AND x.payload ~ $3`

// renewParked replaces the dead letters of events of repaired campaigns. The live projector makes a dead letter of an
// event that conflicts with a damaged row, also after the snapshot that was compared, so the comparison may miss it.
// Dead letters have no campaign column: all of the lane are replaced, or, if only one campaign was folded, those whose
// line has the prefix of its events.
func (c *check) renewParked(ctx context.Context, tx pgx.Tx, campaigns []string) error {
	var lanes []int
	var streams []string
	for _, name := range campaigns {
		lane := topology.LaneOf(name, c.s.log.Lanes)
		lanes, streams = append(lanes, lane), append(streams, topology.EvtStream(lane))
	}
	prefix := ""
	if c.opts.Campaign != "" {
		prefix = `^\{"type":"[^"]*","campaign":"` + regexp.QuoteMeta(c.opts.Campaign) + `"`
	}
	scratch, live := c.sh.name+"."+deadLetter, c.s.now.Live+"."+deadLetter
	removed, err := tx.Exec(ctx, "DELETE FROM "+live+" x WHERE "+parkedSQL+" AND NOT EXISTS (SELECT 1 FROM "+scratch+` s
		WHERE s.lane = x.lane AND s.event_sequence = x.event_sequence AND s.event_line = x.event_line)`, lanes, streams, prefix)
	if err != nil {
		return err
	}
	added, err := tx.Exec(ctx, "INSERT INTO "+live+" SELECT x.* FROM "+scratch+" x WHERE "+parkedSQL+" ON CONFLICT DO NOTHING", lanes, streams, prefix)
	if n := removed.RowsAffected() + added.RowsAffected(); err == nil && n > 0 {
		c.report.Notes = append(c.report.Notes, fmt.Sprintf("dead letters of events that conflicted with damaged rows: %d repaired as well", n))
	}
	return err
}

// replace replaces rows of the live table by those of the scratch table. Of coupons, those of both tables are replaced; the new
// ones go to segment 0, because the others are never written again.
func (c *check) replace(ctx context.Context, tx pgx.Tx, s shape, names []string) error {
	if len(names) == 0 {
		return nil
	}
	if s.table == couponRow {
		claim := shape{table: "coupon_claim", group: s.group, columns: strings.Split(tables.ClaimColumns, ", ")}
		state := shape{table: "coupon_state", group: s.group, columns: strings.Fields("n redeemed_count expires_at redeemed_at voided_at campaign void_reason")}
		return errors.Join(c.replace(ctx, tx, claim, names), c.replace(ctx, tx, state, names))
	}
	where, args := c.where(s)
	where, args = fmt.Sprintf("%s AND %s = ANY($%d)", where, s.group, len(args)+1), append(slices.Clone(args), names)
	if _, err := tx.Exec(ctx, fmt.Sprintf("DELETE FROM %s.%s x WHERE %s", c.s.now.Live, s.table, where), args...); err != nil {
		return err
	}
	columns := strings.Join(s.columns, ", ")
	values := strings.Replace("x."+strings.ReplaceAll(columns, ", ", ", x."), "x.segment", "0", 1)
	_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s.%s (%s) SELECT %s FROM %s.%s x WHERE %s",
		c.s.now.Live, s.table, columns, values, c.sh.name, s.table, where), args...)
	return err
}
