package readmodel

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

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
var beginSQL = fmt.Sprintf(beginRead+`force_generic_plan`+rowByRow, readWait.Milliseconds())

// $1 = campaign   $2 = n
const oneSQL = couponColumns + `c.campaign = $1 AND c.n = $2`

// One returns a coupon, nil if the tables do not have it, or not yet.
func (c *Coupons) One(ctx context.Context, campaign string, n uint32) (*ops.Coupon, error) {
	list, err := within(ctx, c.db, beginSQL, pgx.RowToStructByPos[ops.Coupon], oneSQL, campaign, int64(n))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}
