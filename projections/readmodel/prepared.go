package readmodel

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// beginSQL opens the transaction of a look-up. A connection plans its statement once: planning takes five milliseconds, executing one.
// PostgreSQL drops the plan when a relation of it changes, as with each new segment and after an exchange of the tables, and then
// the next look-up plans again.
//
// The plan must be right for every argument, and for tables that have grown a million times since: each table is read by an index,
// once per coupon. These settings make the planner choose that also without statistics, as after a rebuild, and when a small table
// makes a scan look cheap. A bitmap would read all redemptions of a coupon, of which a page shows some. JIT compilation would take
// longer than the statement.
var beginSQL = fmt.Sprintf(`BEGIN READ ONLY; SET LOCAL statement_timeout = %d; SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; `+
	`SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL jit = off`, readWait.Milliseconds())

// lookUp runs a statement by the plan that the connection has for it. pgx prepares it once for each connection.
func lookUp[R any](ctx context.Context, db *pgxpool.Pool, row pgx.RowToFunc[R], sql string, args ...any) ([]R, error) {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // read only
	return schema.Collect(ctx, tx, row, sql, args...)
}

// $1 = campaign   $2 = n
const oneSQL = couponColumns + `c.campaign = $1 AND c.n = $2`

// One returns a coupon, nil if the tables do not have it, or not yet.
func (c *Coupons) One(ctx context.Context, campaign string, n uint32) (*ops.Coupon, error) {
	list, err := schema.Again(func() ([]ops.Coupon, error) {
		return lookUp(ctx, c.db, pgx.RowToStructByPos[ops.Coupon], oneSQL, campaign, int64(n))
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}
