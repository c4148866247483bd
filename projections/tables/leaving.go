package tables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// LeavePiece is how many rows are deleted in one transaction: some ten milliseconds. Fewer in tests.
var LeavePiece = 5000

// leftTables are those with rows that leave, besides segments of claims, which are rewritten: the column that follows the campaign
// in an index, its type, and the column of table leaving that has its highest value.
var leftTables = []struct{ table, column, kind, highest string }{
	{"coupon_claim_0", "n", "bigint", "through"}, {"coupon_state", "n", "bigint", "through"}, {"allotment", "from_n", "bigint", "through"},
	{"redemption_row", "n", "bigint", "through"}, {"coupon_event", "n", "bigint", "through"}, {"reminder", "r", "bigint", "reminders"},
	{"expiry_event", "through", "timestamptz", "expiries"},
}

// Leaving deletes rows that views hide since their coupons have left the tables, see table leaving: a campaign after the other, table
// by table, in pieces. It needs no fence: what has left stays so, and two that delete do no harm. A crash loses the place, and another Leaving
// finds the rows that remain. The zero value is ready; after an error, of the commit as well, it must not be used again.
type Leaving struct {
	campaign  string // "" = none is looked at
	through   int64
	reminders pgtype.Int8
	expiries  pgtype.Timestamptz

	table int     // of leftTables
	from  *string // value of the column from which on rows may be there; nil = the first
}

const (
	nextLeavingSQL = `SELECT campaign, through, reminders, expiries FROM scrip.leaving ORDER BY campaign LIMIT 1`

	// Rows that another transaction has locked are left to a later round, so this waits for no lane. A snapshot may keep entries of
	// the index: what is before the last piece is not looked at again.
	//
	// $1 = campaign   $2 = highest value   $3 = from   $4 = rows
	leavePieceSQL = `
WITH gone AS (
    DELETE FROM scrip.%[1]s x WHERE x.ctid = ANY (ARRAY(
        SELECT y.ctid FROM scrip.%[1]s y WHERE y.campaign = $1 AND y.%[2]s <= $2 AND ($3::text IS NULL OR y.%[2]s >= $3::text::%[3]s)
        ORDER BY y.%[2]s LIMIT $4 FOR UPDATE SKIP LOCKED))
    RETURNING x.%[2]s AS at)
SELECT count(*), max(at)::text FROM gone`

	// $1 to $4 = the row
	leftSQL = `
DELETE FROM scrip.leaving l WHERE campaign = $1 AND through = $2 AND reminders IS NOT DISTINCT FROM $3 AND expiries IS NOT DISTINCT FROM $4`
)

// Next deletes a piece, in the caller's transaction, and reports whether there may be more to delete now.
func (l *Leaving) Next(ctx context.Context, tx pgx.Tx, name string) (more bool, err error) {
	// By the index, however few rows the planner believes there are.
	if _, err := tx.Exec(ctx, "SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_seqscan = off"); err != nil {
		return false, err
	}
	if l.campaign == "" {
		err := tx.QueryRow(ctx, In(name, nextLeavingSQL)).Scan(&l.campaign, &l.through, &l.reminders, &l.expiries)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		l.table, l.from = 0, nil
	}
	for rows := 0; l.table < len(leftTables); l.table, l.from = l.table+1, nil {
		t := leftTables[l.table]
		highest := map[string]any{"through": l.through, "reminders": l.reminders, "expiries": l.expiries}[t.highest]
		sql := In(name, fmt.Sprintf(leavePieceSQL, t.table, t.column, t.kind))
		if err := tx.QueryRow(ctx, sql, l.campaign, highest, l.from, LeavePiece).Scan(&rows, &l.from); err != nil || rows > 0 {
			return err == nil, err
		}
	}
	return l.end(ctx, tx, name)
}

// end takes the campaign off the list unless rows of it remain, which another transaction had locked, or it has left again meanwhile.
func (l *Leaving) end(ctx context.Context, tx pgx.Tx, name string) (more bool, err error) {
	var sql strings.Builder
	sql.WriteString(leftSQL)
	for _, t := range leftTables {
		fmt.Fprintf(&sql, " AND NOT EXISTS (SELECT FROM scrip.%s x WHERE x.campaign = l.campaign AND x.%s <= l.%s)", t.table, t.column, t.highest)
	}
	tag, err := tx.Exec(ctx, In(name, sql.String()), l.campaign, l.through, l.reminders, l.expiries)
	l.campaign = ""
	return tag.RowsAffected() > 0, err
}
