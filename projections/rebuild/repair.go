package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/segments"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// mostRounds bounds how often a lane is compared again: its events go on, and one that meets a wrong row makes others wrong.
	mostRounds = 10
	// stepAttempts are made to hold a lane, or to find coupons that are not being merged.
	stepAttempts = 40
)

// repair replaces rows that differ by those folded from the log, piece by piece. Each piece is a step in one transaction: it
// holds the piece's lane, fills the scratch tables to its place, and replaces the rows that differ then. Other lanes go on, and
// this one does between two steps. An event that met a wrong row in the meantime has made others wrong: so what was repaired is
// compared again until it is equal. A crash leaves whole pieces; the next repair finds the others.
func (c *check) repair(ctx context.Context) error {
	if c.unreadable != nil {
		return c.unreadable
	}
	byLane := map[int][]piece{}
	var campaigns, lanes []string
	for _, p := range c.pieces {
		if byLane[p.lane] = append(byLane[p.lane], p); p.group == byCampaign {
			campaigns = append(campaigns, p.name)
		} else {
			lanes = append(lanes, "lane "+p.name)
		}
	}
	if c.opts.Campaign != "" { // dead letters of its events were not compared
		byLane[c.lane] = append(byLane[c.lane], c.parkedOf())
	}
	var later int64
	for _, lane := range slices.Sorted(maps.Keys(byLane)) {
		more, err := c.repairLane(ctx, lane, byLane[lane])
		if later += more; err != nil {
			return err
		}
	}
	if later > 0 {
		c.report.Notes = append(c.report.Notes, fmt.Sprintf("events conflicted with damaged rows meanwhile: %d more rows were written", later))
	}
	slices.Sort(campaigns)
	slices.Sort(lanes)
	c.report.Repaired = slices.Concat(slices.Compact(campaigns), slices.Compact(lanes))
	return c.s.phase(Exchanged)
}

// repairLane repairs pieces of one lane, and returns how many rows it wrote that the comparison had not found.
func (c *check) repairLane(ctx context.Context, lane int, pieces []piece) (later int64, err error) {
	var campaigns []string
	for _, p := range pieces {
		if p.group == byCampaign && !slices.Contains(campaigns, p.name) {
			campaigns = append(campaigns, p.name)
		}
	}
	for round := 1; len(pieces) > 0; round++ {
		if round > mostRounds {
			return later, fmt.Errorf("rows of lane %d still differ after %d rounds; run it again", lane, mostRounds)
		}
		compared := c.at(lane)
		slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(a.turn(), b.turn()) })
		for _, p := range pieces {
			written, err := c.step(ctx, lane, p)
			if err != nil {
				return later, fmt.Errorf("repairing table %s: %w", p.table, err)
			}
			if round > 1 || p.parked != nil {
				later += written
			}
		}
		if c.at(lane) == compared {
			break
		}
		if pieces, err = c.again(ctx, lane, campaigns); err != nil {
			return later, fmt.Errorf("comparing what was repaired: %w", err)
		}
	}
	return later, nil
}

// at is how far the scratch tables are. Damaged rows may name a lane that there is not.
func (c *check) at(lane int) (at eventlog.Position) {
	if c.has(lane) {
		at = c.sh.lanes[lane].At
	}
	return at
}

func (c *check) has(lane int) bool { return lane >= 0 && lane < len(c.sh.lanes) }

// step replaces what differs in a piece, and returns how many rows it wrote.
func (c *check) step(ctx context.Context, lane int, p piece) (written int64, err error) {
	err = c.holding(ctx, lane, func(ctx context.Context, tx pgx.Tx) error {
		background := context.WithoutCancel(ctx)
		if _, err := tx.Exec(background, "SET LOCAL enable_seqscan = off"); err != nil {
			return err
		}
		if written, err = c.replace(background, tx, p); err != nil {
			return err
		}
		return c.s.phase(Repairing)
	})
	return written, err
}

// holding runs f while the projector of a lane waits, and live and scratch tables are at the same place in it.
func (c *check) holding(ctx context.Context, lane int, f func(ctx context.Context, tx pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		if err := c.near(ctx, lane); err != nil {
			return err
		}
		err := c.s.tryLocked(ctx, lane, false, func(ctx context.Context, tx pgx.Tx) error {
			if c.s.unlocked != nil {
				return c.s.unlocked
			}
			if err := c.align(ctx, tx, lane); err != nil {
				return err
			}
			return f(ctx, tx)
		})
		again := schema.Blocked(err) || errors.Is(err, errLockedTooLong) || errors.Is(err, segments.ErrBusy)
		if !again || attempt == stepAttempts || ctx.Err() != nil {
			return err
		}
		if err := natsx.Pause(ctx, waits.lock); err != nil {
			return err
		}
	}
}

// near fills the scratch tables of a lane until few messages are left, while no projector waits.
func (c *check) near(ctx context.Context, lane int) error {
	for range rounds {
		to, err := c.place(ctx, c.s.pool, lane)
		if err != nil || c.sh.lags(to) <= near {
			return err
		}
		if err := c.sh.fill(ctx, CatchingUp, to); err != nil {
			return err
		}
	}
	return nil
}

// place returns where the live tables are in a lane, for fill: the other lanes stay where they are.
func (c *check) place(ctx context.Context, db schema.Querier, lane int) ([]uint64, error) {
	to := make([]uint64, len(c.sh.lanes))
	for n, l := range c.sh.lanes {
		to[n] = l.At.Sequence
	}
	if !c.has(lane) {
		return to, nil
	}
	live, _, err := c.s.positions(context.WithoutCancel(ctx), db, c.s.now.Live)
	if err != nil {
		return nil, err
	}
	bounds, err := eventlog.Events(c.s.js, lane).Bounds(ctx)
	to[lane] = min(live[lane].Sequence, bounds.Last)
	return to, err
}

// align fills the scratch tables to where the live ones are in a lane that is held. They are not at the same place then if the live
// ones were dropped and created again in between, or their checkpoint was moved back: later events would be applied twice.
func (c *check) align(ctx context.Context, tx pgx.Tx, lane int) error {
	to, err := c.place(ctx, tx, lane)
	if err != nil || !c.has(lane) {
		return err
	}
	if err := c.sh.fillLocked(ctx, CatchingUp, to); err != nil {
		return err
	}
	live, _, err := c.s.positions(context.WithoutCancel(ctx), tx, c.s.now.Live)
	if at := c.sh.lanes[lane].At; err == nil && live[lane] != at {
		err = fmt.Errorf("%w (lane %d: the tables in use are now at message %d, the fold of the log is at %d)",
			ErrNotRepairable, lane, live[lane].Sequence, at.Sequence)
	}
	return err
}

// again compares campaigns that were repaired, and the dead letters of their lane, and returns the pieces that differ.
func (c *check) again(ctx context.Context, lane int, campaigns []string) (pieces []piece, err error) {
	var tx pgx.Tx
	end := func() {
		if tx != nil {
			_ = tx.Rollback(context.WithoutCancel(ctx))
		}
	}
	defer func() { end() }()
	err = c.holding(ctx, lane, func(ctx context.Context, _ pgx.Tx) (err error) {
		end() // of an attempt before
		tx, err = c.s.begin(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, s := range c.shapes {
		where, args := s.group+" = ANY($1)", []any{campaigns}
		divide := func(name string) ([]piece, error) { return c.divide(ctx, tx, s, name) }
		switch {
		case s.group == byCampaign:
		case c.opts.Campaign != "":
			parked := c.parkedOf()
			where, args = parked.where()
			divide = func(string) ([]piece, error) { return []piece{parked}, nil }
		default:
			args = []any{[]string{strconv.Itoa(lane)}}
		}
		all, err := c.groups(ctx, tx, s, s.group, where, args)
		if err != nil {
			return nil, err
		}
		for _, g := range all {
			if !g.Differs {
				continue
			}
			of, err := divide(g.Name)
			if err != nil {
				return nil, err
			}
			pieces = append(pieces, slices.DeleteFunc(of, func(p piece) bool { return p.lane != lane })...)
		}
	}
	return pieces, nil
}

const deadLetter, removal = "dead_letter", "removal"

// parkedOf is the piece of the dead letters of the campaign that alone was folded: the live projector makes one of an event that
// conflicts with a damaged row.
func (c *check) parkedOf() piece {
	s := c.shapes[slices.IndexFunc(c.shapes, func(s shape) bool { return s.table == deadLetter })]
	return piece{shape: s, name: strconv.Itoa(c.lane), lane: c.lane, parked: &parked{
		stream: topology.EvtStream(c.lane), prefix: `^\{"type":"[^"]*","campaign":"` + regexp.QuoteMeta(c.opts.Campaign) + `"`,
	}}
}

// turn orders the pieces of a repair: what table removal has decides which coupons are shown.
func (p *piece) turn() int {
	if p.table == removal {
		return 0
	}
	return 1
}

// replace replaces rows of a piece that differ, and returns how many it wrote. A row that is there twice differs.
func (c *check) replace(ctx context.Context, tx pgx.Tx, p piece) (written int64, err error) {
	live, scratch := c.s.now.Live, c.sh.name
	if p.group == byCampaign && !p.lanes {
		if err := c.leave(ctx, tx, p); err != nil {
			return 0, err
		}
	}
	where, args := p.where()
	columns := "x." + strings.Join(p.columns, ", x.")
	side := func(name string) string {
		return fmt.Sprintf("SELECT %s FROM %s.%s x WHERE %s AND %s", columns, name, p.table, where, schema.Staying(name, p.table))
	}
	if p.table == couponRow {
		numbers, err := schema.Collect(ctx, tx, pgx.RowTo[int64], fmt.Sprintf(
			"SELECT DISTINCT n FROM ((%[1]s EXCEPT ALL %[2]s) UNION ALL (%[2]s EXCEPT ALL %[1]s)) x", side(live), side(scratch)), args...)
		if err != nil {
			return 0, err
		}
		return segments.Replace(ctx, tx, live, scratch, p.name, numbers)
	}
	keys := strings.Join(p.key, ", ")
	removed, err := tx.Exec(ctx, fmt.Sprintf("DELETE FROM %s.%s x WHERE %s AND (x.%s) IN (SELECT %s FROM (%s EXCEPT ALL %s) d)",
		live, p.table, where, strings.ReplaceAll(keys, ", ", ", x."), keys, side(live), side(scratch)), args...)
	if err != nil {
		return 0, err
	}
	same := make([]string, len(p.key))
	for i, k := range p.key {
		same[i] = "y." + k + " = x." + k
	}
	added, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s.%s (%s) %s AND NOT EXISTS (SELECT FROM %[1]s.%[2]s y WHERE %[5]s)",
		live, p.table, strings.Join(p.columns, ", "), side(scratch), strings.Join(same, " AND ")), args...)
	return removed.RowsAffected() + added.RowsAffected(), err
}

// leave has views hide, and the owner of the segments delete, what leaves by the log, and no more: rows that were left out by another
// setting would stay hidden, and be deleted once more.
func (c *check) leave(ctx context.Context, tx pgx.Tx, p piece) error {
	if p.table == removal {
		if err := segments.GiveUp(ctx, tx, c.s.now.Live); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, "DELETE FROM "+c.s.now.Live+".leaving WHERE campaign = $1", p.name); err != nil {
		return err
	}
	const columns = "campaign, through, reminders, expiries"
	_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s.leaving (%s) SELECT %[2]s FROM %s.leaving WHERE campaign = $1", c.s.now.Live, columns, c.sh.name), p.name)
	return err
}
