// Package compare compares the read tables with the oracle of the tests: promise 5.
//
//	oracle.Fold ──┐
//	              ├──> Tables ──> differences
//	schema scrip ─┘
//
// Rows are compared as they are read, by hashes: neither side is completely in memory.
//
// Owner: the caller's goroutine. It keeps no state.
package compare

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"sort"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// maxShown bounds the differences listed per relation and side.
const maxShown = 10

// seed of the hashes that replace rows. A collision would hide one difference of millions.
var seed = maphash.MakeSeed()

// Queryer is a connection or a pool.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// relation is what a relation must have: rows passes the values of each row, and query reads them, joined by spaces.
type relation struct {
	name, query string
	rows        func(c *oracle.Campaign, row func(values ...any))
}

var relations = []relation{
	{"campaign", `SELECT concat_ws(' ', campaign, status, codes, claimed, redeemed, expired, voided) FROM scrip.campaign`, campaignRow},
	{"coupon", `SELECT concat_ws(' ', campaign, n, code, customer_id, status, ` + micros("claimed_at") + `, ` + micros("expires_at") + `, redeemed_count) FROM scrip.coupon`, couponRows},
	{"allotment", `SELECT concat_ws(' ', campaign, batch, from_n, through_n, ` + micros("allotted_at") + `, ` + micros("expires_at") + `) FROM scrip.allotment`, allotmentRows},
	{"campaign_event", `SELECT concat_ws(' ', campaign, type, ` + micros("at") + `) FROM scrip.campaign_event`, changeRows},
	{"redemption", `SELECT concat_ws(' ', campaign, n, order_id, customer_id, ` + micros("redeemed_at") + `, ` + micros("rolled_back_at") + `) FROM scrip.redemption`, redemptionRows},
	{"reminder", `SELECT concat_ws(' ', campaign, customer_id, kind, ` + micros("due_at") + `, state) FROM scrip.reminder`, reminderRows},
	{"expiry_task", `SELECT concat_ws(' ', campaign, ` + micros("due_at") + `, pending, redeemed, expired, state) FROM scrip.expiry_task WHERE pending + redeemed + expired > 0`, taskRows},
}

// Tables compares the read tables with the fold and returns the differences, nil if there are none. The projector must
// have reached the end of the fold.
func Tables(ctx context.Context, db Queryer, fold *oracle.Fold) ([]string, error) {
	var differences []string
	for _, r := range relations {
		rows, err := db.Query(ctx, r.query)
		if err != nil {
			return nil, fmt.Errorf("reading scrip.%s: %w", r.name, err)
		}
		differences = append(differences, compare(r.name, texts(rows), func(yield func(string)) {
			for _, c := range fold.Campaigns {
				r.rows(c, func(values ...any) { yield(joined(values)) })
			}
		})...)
		if err := rows.Err(); err != nil {
			return nil, fmt.Errorf("reading scrip.%s: %w", r.name, err)
		}
	}
	return differences, nil
}

// texts are rows of one column of text. Errors are in rows.Err.
func texts(rows pgx.Rows) iter.Seq[string] {
	return func(yield func(string) bool) {
		defer rows.Close()
		for rows.Next() {
			if raw := rows.RawValues()[0]; !yield(string(raw)) {
				return
			}
		}
	}
}

// micros formats a column as microseconds since 1970, 0 for NULL, independent of time zones.
func micros(column string) string {
	return `coalesce((extract(epoch FROM ` + column + `) * 1000000)::bigint, 0)`
}

// joined formats values as the queries do.
func joined(values []any) string {
	var line []byte
	for i, v := range values {
		if i > 0 {
			line = append(line, ' ')
		}
		switch v := v.(type) {
		case string:
			line = append(line, v...)
		case wire.Instant:
			if v == wire.Never {
				v = 0
			}
			line = strconv.AppendInt(line, int64(v), 10)
		default:
			line = fmt.Append(line, v)
		}
	}
	return string(line)
}

// compare compares rows of the table with those of the log. It iterates over those of the log a second time to list the
// missing ones.
func compare(relation string, got iter.Seq[string], want func(yield func(string))) []string {
	left := map[uint64]int{} // hash of a row → how often the table should still have it
	want(func(row string) { left[maphash.String(seed, row)]++ })
	var only [2][]string // in the table, in the log
	var more int
	show := func(where int, row string) {
		if len(only[where]) == maxShown {
			more++
			return
		}
		only[where] = append(only[where], row)
	}
	for row := range got {
		h := maphash.String(seed, row)
		switch left[h] {
		case 0:
			show(0, row)
		case 1:
			delete(left, h)
		default:
			left[h]--
		}
	}
	if len(left) > 0 {
		want(func(row string) {
			if h := maphash.String(seed, row); left[h] > 0 {
				left[h]--
				show(1, row)
			}
		})
	}
	var differences []string
	for where, rows := range only {
		sort.Strings(rows)
		for _, row := range rows {
			differences = append(differences, fmt.Sprintf("%s: only in the %s: %s", relation, [...]string{"table", "log"}[where], row))
		}
	}
	if more > 0 {
		differences = append(differences, fmt.Sprintf("%s: … and %d more rows differ", relation, more))
	}
	return differences
}

func campaignRow(c *oracle.Campaign, row func(...any)) {
	n := c.ByStatus()
	row(c.Name, c.Status, c.Codes, len(c.Coupons), n[wire.StatusRedeemed], n[wire.StatusExpired], n[wire.StatusVoided])
}

func couponRows(c *oracle.Campaign, row func(...any)) {
	for _, k := range c.Coupons {
		if k.N == 0 { // printed, and nothing happened to it
			continue
		}
		row(c.Name, k.N, k.Code, k.Customer, c.StatusOf(k), k.ClaimedAt, c.Expires(k), k.Count)
	}
}

func allotmentRows(c *oracle.Campaign, row func(...any)) {
	for _, a := range c.Allotments {
		row(c.Name, a.Batch, a.From, a.Through, a.At, a.OwnExpiry)
	}
}

func changeRows(c *oracle.Campaign, row func(...any)) {
	for _, e := range c.Changes {
		row(c.Name, e.Type, e.At)
	}
}

func redemptionRows(c *oracle.Campaign, row func(...any)) {
	for _, k := range c.Coupons {
		for _, r := range k.Redemptions {
			row(c.Name, k.N, r.Order, r.Customer, r.At, r.RolledBackAt)
		}
	}
}

func reminderRows(c *oracle.Campaign, row func(...any)) {
	for i := range c.Reminders {
		r := &c.Reminders[i]
		row(c.Name, r.Customer, r.Kind(), r.Due, r.State)
	}
}

// taskRows are the expiry tasks, before any of them is removed.
func taskRows(c *oracle.Campaign, row func(...any)) {
	type task struct{ live, spent int }
	tasks := map[wire.Instant]task{}
	for _, k := range c.Coupons {
		at := c.Expires(k)
		if at == wire.Never || k.Voided {
			continue
		}
		t := tasks[at]
		if k.Count >= c.Settings.MaxRedemptions {
			t.spent++
		} else {
			t.live++
		}
		tasks[at] = t
	}
	for at, t := range tasks {
		if at <= c.Through {
			row(c.Name, at, 0, t.spent, t.live, "processed")
		} else {
			row(c.Name, at, t.live, t.spent, 0, "pending")
		}
	}
}
