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
// by table, in pieces. It needs no fence: each piece reads and locks the row of its campaign, which a repair may take away, and two that
// delete do no harm. A crash loses the place, and another Leaving finds the rows that remain. The zero value is ready; after an error, of
// the commit as well, it must not be used again.
type Leaving struct {
	row leavingRow

	table int     // of leftTables
	from  *string // value of the column from which on rows may be there; nil = the first
}

// leavingRow is a row of table leaving.
type leavingRow struct {
	campaign  string // "" = none is looked at
	through   int64
	reminders pgtype.Int8
	expiries  pgtype.Timestamptz
}

const (
	// The campaign that is looked at, or the next one.
	//
	// $1 = campaign
	nextLeavingSQL = `
SELECT campaign, through, reminders, expiries FROM scrip.leaving WHERE campaign >= $1 ORDER BY campaign LIMIT 1 FOR UPDATE`

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

	// $1 = campaign
	leftSQL = `DELETE FROM scrip.leaving l WHERE campaign = $1`
)

// Next deletes a piece, in the caller's transaction, and reports whether there may be more to delete now.
func (l *Leaving) Next(ctx context.Context, tx pgx.Tx, name string) (more bool, err error) {
	// By the index, however few rows the planner believes there are.
	if _, err := tx.Exec(ctx, "SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_seqscan = off"); err != nil {
		return false, err
	}
	var now leavingRow
	err = tx.QueryRow(ctx, In(name, nextLeavingSQL), l.row.campaign).Scan(&now.campaign, &now.through, &now.reminders, &now.expiries)
	if errors.Is(err, pgx.ErrNoRows) {
		l.row = leavingRow{}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if now != l.row {
		l.row, l.table, l.from = now, 0, nil
	}
	for rows := 0; l.table < len(leftTables); l.table, l.from = l.table+1, nil {
		t := leftTables[l.table]
		highest := map[string]any{"through": now.through, "reminders": now.reminders, "expiries": now.expiries}[t.highest]
		sql := In(name, fmt.Sprintf(leavePieceSQL, t.table, t.column, t.kind))
		if err := tx.QueryRow(ctx, sql, now.campaign, highest, l.from, LeavePiece).Scan(&rows, &l.from); err != nil || rows > 0 {
			return err == nil, err
		}
	}
	return l.end(ctx, tx, name)
}

// end takes the campaign off the list unless rows of it remain, which another transaction had locked.
func (l *Leaving) end(ctx context.Context, tx pgx.Tx, name string) (more bool, err error) {
	var sql strings.Builder
	sql.WriteString(leftSQL)
	for _, t := range leftTables {
		fmt.Fprintf(&sql, " AND NOT EXISTS (SELECT FROM scrip.%s x WHERE x.campaign = l.campaign AND x.%s <= l.%s)", t.table, t.column, t.highest)
	}
	tag, err := tx.Exec(ctx, In(name, sql.String()), l.row.campaign)
	l.row = leavingRow{}
	return tag.RowsAffected() > 0, err
}
