package tables

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// beginSQL begins a transaction for Apply. Three settings hold for this transaction alone.
//
// Commits need not wait for the disk: the log is the truth, and what PostgreSQL loses in a crash is applied again,
// rows and checkpoint alike.
//
// Every statement of this package names its rows by a key, some thousand at most, so that a batch costs the same
// whatever else is in the tables. The planner must come to see it so. Plans are therefore not kept: one made while a
// table was small would go on reading all of it when it has grown, and with a million campaigns each batch would read a
// million rows. And joining by anything but "for each row given, look into the index" is ruled out as far as that goes;
// the rest is up to the statements, whose conditions but for the keys must not look as if they left few rows, or the
// planner begins with these (see coalesce in them).
//
// Time limits that a role or a database carries are off: a batch that took too long once would take as long the next time,
// for ever.
const beginSQL = `BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; ` +
	`SET LOCAL synchronous_commit = off; SET LOCAL plan_cache_mode = force_custom_plan; ` +
	`SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off`

// Beginner is a pool or a connection.
type Beginner interface {
	BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
}

// Begin opens the transaction in which to call Apply. In any other, rows are the same, but the time it takes may grow
// with the tables.
func Begin(ctx context.Context, db Beginner) (pgx.Tx, error) {
	return db.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL})
}
