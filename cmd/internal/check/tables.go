package check

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/projections/compare"
)

// Tables compares the read tables with the fold and returns the differences, nil if there are none. The projector must
// have reached the end of the fold.
func (f *Fold) Tables(ctx context.Context, db *pgx.Conn) ([]string, error) {
	return compare.Tables(ctx, db, f.Fold)
}

// undefinedTable is PostgreSQL's code for a relation that does not exist.
const undefinedTable = "42P01"

// CaughtUp waits until the projector's checkpoint of every lane has reached the given sequences.
func CaughtUp(ctx context.Context, db *pgx.Conn, ends []uint64) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		lagging := 0
		for lane, end := range ends {
			var sequence int64
			err := db.QueryRow(ctx, `SELECT coalesce(max(sequence), 0) FROM scrip.checkpoint WHERE lane = $1`, lane).Scan(&sequence)
			var missing *pgconn.PgError
			switch {
			case errors.As(err, &missing) && missing.Code == undefinedTable:
				lagging++ // the projector has not made the tables yet
			case err != nil:
				return fmt.Errorf("reading scrip.checkpoint: %w", err)
			case uint64(sequence) < end:
				lagging++
			}
		}
		if lagging == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the read tables of %d lanes lag: %w", lagging, ctx.Err())
		case <-tick.C:
		}
	}
}
