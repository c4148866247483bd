package segments

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/tables"
)

// leave deletes what other tables have of coupons that have left, piece by piece, each in one transaction, and pauses for as
// long as each took: lanes write at the same time. After a crash the rest is found again.
func (s *Set) leave(ctx context.Context) error {
	for more := true; more; {
		started := time.Now()
		err := s.long(ctx, "deleting what has left", func(tx pgx.Tx) (err error) {
			more, err = s.leaving.Next(ctx, tx, s.schema)
			return err
		})
		if err != nil {
			s.leaving = tables.Leaving{}
			if ctx.Err() == nil && inTheWay(err) && !tables.Missing(err) {
				return nil // the next look goes on
			}
			return err
		}
		select {
		case <-time.After(time.Since(started)):
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}
