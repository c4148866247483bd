package schema

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Digest says what one table holds, whatever the order of its rows.
type Digest struct {
	Relation string
	Rows     int64
	Digest   string // 128 bits in hex; equal contents give equal digests on any machine
}

// querier is what a pool, a connection and a transaction have in common.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Digests digests every table of schema scrip, sorted by name: helpers included, checkpoint and processed expiry tasks
// left out. Inside a REPEATABLE READ transaction it is one consistent picture.
func Digests(ctx context.Context, db querier) ([]Digest, error) {
	rows, err := db.Query(ctx, "SELECT relation, row_count, digest FROM scrip.digest()")
	if err != nil {
		return nil, fmt.Errorf("digesting the read tables: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Digest])
	if err != nil {
		return nil, fmt.Errorf("digesting the read tables: %w", err)
	}
	return list, nil
}
