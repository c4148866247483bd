package readmodel

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// Lists are read in parts, of which each reads a bounded number of rows, whatever the filter selects. Which index serves it:
//
//	list        filter                          index
//	coupons     campaign                        key of each segment, from the place on
//	            campaign and status, last_four  none: the key, in parts
//	            customer_id, order_id           by hash, up to partRows; beyond that the key, in parts
//	reminders   campaign                        key, from the place on
//	            campaign and state              none: the key, in parts
//	            customer_id                     by hash, up to partRows; beyond that the key, in parts
//	letters     since                           dead_letter_at, from the place on
//	            stream, lane, state, cause      none: dead_letter_at, in parts
//	changes     campaign                        key, from the place on
//	days        campaign, attribute             key: all days of the campaign, whose values are bounded
//	due         the next hour                   by due instant: as many rows as are due, by turns
//
// A part that no index serves is read in a turn of its caller: see ops.Turn.

// partRows is how many rows a part reads. A variable for tests.
var partRows = 10_000

// partWait bounds a statement that reads a part of a list, which can be read in smaller ones.
const partWait = 1500 * time.Millisecond

// beginPart opens the transaction of a read that has so many milliseconds. A statement is planned with its arguments: those that are
// absent decide which index serves it. It follows the order of one index and looks up the rest row by row: with these settings it reads
// no more rows than are wanted whatever the statistics say, which are absent after a rebuild.
const beginPart = beginRead + `force_custom_plan` + rowByRow

// The two parts of a BEGIN between which the plan_cache_mode is.
const (
	beginRead = `BEGIN READ ONLY; SET LOCAL statement_timeout = %d; SET LOCAL plan_cache_mode = `
	rowByRow  = `; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off; ` +
		`SET LOCAL enable_mergejoin = off; SET LOCAL jit = off`
)

// read runs a query of a list and collects its rows.
func read[R any](ctx context.Context, db beginner, wait time.Duration, row pgx.RowToFunc[R], sql string, args ...any) ([]R, error) {
	return within(ctx, db, fmt.Sprintf(beginPart, wait.Milliseconds()), row, sql, args...)
}

// leastRows is how few rows a part may have.
const leastRows = 100

// inParts reads a part of so many rows, and a smaller one if that takes longer than a statement may: the caller gets on also on a slow
// disk. It returns how many rows were wanted at last.
func inParts[R any](ctx context.Context, rows int, read func(rows int) (R, error)) (got R, wanted int, err error) {
	for wanted = rows; ; wanted = max(wanted/10, leastRows) {
		got, err = read(wanted)
		if schema.State(err) != queryCanceled || wanted <= leastRows || ctx.Err() != nil {
			return got, wanted, err
		}
	}
}

// queryCanceled is the state of a statement that took too long.
const queryCanceled = "57014"

// crowded reports whether an index finds more rows of a customer or an order than a part may read: sql counts those of $1, up to $2.
// Then the key of the table is walked, which has them in the order of the list. An index by hash has no order: each page would read
// all of them. More than a tenth of a part are counted in a turn, which is then also the turn of the page.
func crowded(ctx context.Context, db beginner, sql, of string) (bool, error) {
	for _, most := range []int{partRows / 10, partRows} {
		found, err := read(ctx, db, readWait, pgx.RowTo[int], sql, of, most+1)
		if err != nil || found[0] <= most {
			return false, err
		}
		if err := ops.Turn(ctx); err != nil {
			return false, err
		}
	}
	return true, nil
}

// given is a value of a filter, nil if it is the zero value.
func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// pageOf cuts a page from its entries and the one after it. Its cursor is the place of the last one, as JSON.
func pageOf[T any](list []T, limit int, place func(*T) any) (page ops.Page[T]) {
	if page.Items = list; len(list) > limit {
		page.Items, page.Next = list[:limit], cursorOf(place(&list[limit-1]))
	}
	return page
}

func cursorOf(place any) string {
	text, _ := json.Marshal(place) // never fails
	return string(text)
}

// placed reads a cursor; "" is the start. Only servers seal one.
func placed[P any](after string) (place P, err error) {
	if after != "" {
		err = json.Unmarshal([]byte(after), &place)
	}
	return place, err
}
