package segments

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
)

// ErrBusy: rows to replace are being copied or indexed. The transaction must be rolled back, and the same may be tried again.
var ErrBusy = errors.New("segments of these coupons are being merged")

const (
	// Merged segments are hidden for good, and copies are given up.
	placesSQL = "SELECT segment FROM scrip.segment WHERE merged_at IS NULL ORDER BY segment DESC"

	// Where a coupon goes that no segment has: the smallest one, so that it is merged and swept like all others.
	smallestSQL = `
SELECT segment FROM scrip.segment WHERE rows > 0 AND merged_at IS NULL AND segment < 0 ORDER BY rows >= 1000000, rows, segment LIMIT 1`

	stateColumns = "n, redeemed_count, expires_at, redeemed_at, voided_at, campaign, void_reason"

	// A merge that copies one of them holds it FOR KEY SHARE, and one that begins now waits, and copies what is replaced.
	//
	// $1 = segments
	holdSQL = "SELECT segment FROM scrip.segment WHERE segment = ANY($1) AND merged_at IS NULL ORDER BY segment FOR UPDATE NOWAIT"
)

// Replace makes coupons of a campaign as they are in another schema, or removes them where that has none, in the caller's
// transaction. Its lane must be held: no one else changes them. It returns how many rows it wrote. A coupon stays in its segment; one that
// was missing goes to the smallest sealed segment, or to segment 0 while there is none: then the tables have few coupons.
// Coupons that have left the other schema are not copied.
//
// The owner of the segments goes on. Only a copy that waits to take the place of these segments is given up, because it may have what
// is replaced; see swap.
func Replace(ctx context.Context, tx pgx.Tx, name, from, campaign string, numbers []int64) (written int64, err error) {
	if len(numbers) == 0 {
		return 0, nil
	}
	r := &replacing{tx: tx, name: name, from: from, campaign: campaign}
	if err := r.find(ctx, numbers); err != nil {
		return 0, fmt.Errorf("looking for coupons to replace: %w", err)
	}
	if err := r.hold(ctx); err != nil {
		return 0, err
	}
	for segment, of := range r.found {
		err := r.exec(ctx, "DELETE FROM scrip."+tables.SegmentTable(segment)+" WHERE campaign = $1 AND n = ANY($2)", campaign, of)
		if err != nil {
			return 0, fmt.Errorf("removing coupons to replace: %w", err)
		}
	}
	for segment, of := range r.homes {
		values := strings.Replace(tables.ClaimColumns, "segment", fmt.Sprint(segment), 1)
		err := r.exec(ctx, fmt.Sprintf("INSERT INTO scrip.%s (%s) SELECT %s FROM %s.coupon_claim WHERE campaign = $1 AND n = ANY($2)",
			tables.SegmentTable(segment), tables.ClaimColumns, values, from), campaign, of)
		if err != nil {
			return 0, fmt.Errorf("writing coupons: %w", err)
		}
	}
	if added := len(r.missing); added > 0 && r.target != 0 {
		if _, err := tx.Exec(ctx, r.in("UPDATE scrip.segment SET rows = rows + $2 WHERE segment = $1"), r.target, added); err != nil {
			return 0, fmt.Errorf("counting coupons: %w", err)
		}
	}
	for _, sql := range []string{
		"DELETE FROM scrip.coupon_state WHERE campaign = $1 AND n = ANY($2)",
		"INSERT INTO scrip.coupon_state (" + stateColumns + ") SELECT " + stateColumns + " FROM " + from + ".coupon_state r " +
			"WHERE campaign = $1 AND n = ANY($2) AND NOT " + tables.In(from, leftSQL),
	} {
		if err := r.exec(ctx, sql, campaign, numbers); err != nil {
			return 0, fmt.Errorf("writing what happened to coupons: %w", err)
		}
	}
	return r.written, nil
}

// GiveUp gives up all copies, in the caller's transaction, which is about to change table removal: they do not have what has left by
// then. A new copy begins after it.
func GiveUp(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, tables.In(name, "SELECT FROM scrip.segment WHERE segment = 0 FOR NO KEY UPDATE"))
	if err == nil {
		_, err = tx.Exec(ctx, tables.In(name, discardSQL))
	}
	if err != nil {
		return fmt.Errorf("giving up copies of segments: %w", err)
	}
	return nil
}

// replacing is one Replace.
type replacing struct {
	tx                   pgx.Tx
	name, from, campaign string

	found   map[int32][]int64 // where coupons are
	homes   map[int32][]int64 // where they will be
	missing []int64           // of homes[target], in none
	target  int32             // for those
	written int64
}

func (r *replacing) in(sql string) string { return tables.In(r.name, sql) }

func (r *replacing) exec(ctx context.Context, sql string, args ...any) error {
	tag, err := r.tx.Exec(ctx, r.in(sql), args...)
	r.written += tag.RowsAffected()
	return err
}

// find finds where coupons are, each segment by its name: this session may have listed the tables before one was attached.
func (r *replacing) find(ctx context.Context, numbers []int64) error {
	places, err := schema.Collect(ctx, r.tx, pgx.RowTo[int32], r.in(placesSQL))
	if err != nil {
		return err
	}
	parts := make([]string, len(places))
	for i, segment := range places {
		parts[i] = "SELECT segment, n FROM scrip." + tables.SegmentTable(segment) + " WHERE campaign = $1 AND n = ANY($2)"
	}
	type place struct {
		Segment int32
		N       int64
	}
	found, err := schema.Collect(ctx, r.tx, pgx.RowToStructByPos[place], r.in(strings.Join(parts, " UNION ALL ")), r.campaign, numbers)
	if err != nil {
		return err
	}
	r.found, r.homes = map[int32][]int64{}, map[int32][]int64{}
	home := map[int64]int32{}
	for _, p := range found {
		r.found[p.Segment] = append(r.found[p.Segment], p.N)
		if p.Segment < 0 {
			home[p.N] = p.Segment
		}
	}
	// A printed coupon, and no other one, is in segment 0 of tables that were filled with segments.
	wanted, err := schema.Collect(ctx, r.tx, pgx.RowToStructByPos[place],
		"SELECT segment, n FROM "+r.from+".coupon_claim r WHERE campaign = $1 AND n = ANY($2) AND NOT "+tables.In(r.from, leftSQL),
		r.campaign, numbers)
	if err != nil {
		return err
	}
	for _, p := range wanted {
		segment, there := home[p.N]
		switch {
		case p.Segment == 0:
			r.homes[0] = append(r.homes[0], p.N)
		case there:
			r.homes[segment] = append(r.homes[segment], p.N)
		default:
			r.missing = append(r.missing, p.N)
		}
	}
	if len(r.missing) == 0 {
		return nil
	}
	err = r.tx.QueryRow(ctx, r.in(smallestSQL)).Scan(&r.target)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	r.homes[r.target] = append(r.homes[r.target], r.missing...)
	return err
}

// hold keeps merges, and who makes indexes, away from the segments that are changed, and waits for none. Segment 0 is never merged, and
// its row is the owner's fence.
func (r *replacing) hold(ctx context.Context) error {
	changed := slices.Collect(maps.Keys(r.found))
	changed = slices.AppendSeq(changed, maps.Keys(r.homes))
	slices.Sort(changed)
	changed = slices.Compact(changed)
	names := make([]string, len(changed))
	for i, segment := range changed {
		names[i] = "scrip." + tables.SegmentTable(segment)
	}
	changed = slices.DeleteFunc(changed, func(segment int32) bool { return segment == 0 })
	held, err := schema.Collect(ctx, r.tx, pgx.RowTo[int32], r.in(holdSQL), changed)
	if err == nil && len(held) < len(changed) {
		return ErrBusy // merged meanwhile
	}
	if err == nil && len(names) > 0 {
		_, err = r.tx.Exec(ctx, r.in("LOCK TABLE "+strings.Join(names, ", ")+" IN ROW EXCLUSIVE MODE NOWAIT"))
	}
	if err == nil && len(changed) > 0 {
		_, err = r.tx.Exec(ctx, r.in(discardSQL+" AND sources && $1"), changed)
	}
	if schema.State(err) == locked {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return fmt.Errorf("holding segments: %w", err)
	}
	return nil
}
