package readmodel

import "context"

const checkpointSQL = `SELECT sequence FROM scrip.checkpoint WHERE projection = 'tables' AND lane = $1`

// Checkpoint implements ops.Coupons.
func (c *Coupons) Checkpoint(ctx context.Context, lane int) (sequence uint64, ok bool, err error) {
	got, err := query[struct{ Sequence uint64 }](ctx, c.db, checkpointSQL, lane)
	if err != nil || len(got) == 0 {
		return 0, false, err
	}
	return got[0].Sequence, true, nil
}
