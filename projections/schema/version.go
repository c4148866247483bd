package schema

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// $1 = relations of this program
const relationsSQL = `
SELECT c.relname::text FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = 'scrip' AND c.relkind IN ('r', 'p', 'v') AND c.relname = ANY($1) ORDER BY c.relname COLLATE "C"`

// rower is what a pool, a connection and a transaction have in common.
type rower interface {
	querier
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Applied is the newest migration that the tables in schema scrip have had; 0 = there are no such tables. It changes
// nothing. Errors of kind ErrUnusable: the tables are not scrip's.
func Applied(ctx context.Context, db rower) (version int64, err error) {
	rows, err := db.Query(ctx, relationsSQL, Relations)
	if err != nil {
		return 0, err
	}
	ours, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(ours) == 0 {
		return 0, err
	}
	var known bool
	if err := db.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", stateTable).Scan(&known); err != nil {
		return 0, err
	}
	if !known {
		return 0, notOurs(ours)
	}
	err = db.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+stateTable).Scan(&version)
	return version, err
}

// $1 = version
const stampSQL = `
INSERT INTO ` + stateTable + ` (version_id, is_applied)
SELECT v, true FROM generate_series(1, $1::bigint) v WHERE NOT EXISTS (SELECT 1 FROM ` + stateTable + ` WHERE version_id = v)`

// Stamp notes that the tables which the transaction puts into schema scrip have every migration of this program. It waits
// for a Migrate under way, until the transaction's lock_timeout.
func Stamp(ctx context.Context, tx pgx.Tx) error {
	for _, statement := range []string{fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", int64(migrateLock)), deadLettersSQL} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, stampSQL, Version())
	return err
}
