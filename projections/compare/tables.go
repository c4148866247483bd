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

// rowsOf are the rows that the tables must have.
type rowsOf struct{ *oracle.Fold }

// Queryer is a connection or a pool.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Tables compares the read tables with the fold and returns the differences, nil if there are none. The projector must
// have reached the end of the fold.
func Tables(ctx context.Context, db Queryer, fold *oracle.Fold) ([]string, error) {
	f := rowsOf{fold}
	var differences []string
	for _, r := range []struct {
		relation, query string
		want            iter.Seq[string]
	}{
		{"campaign", `SELECT format('%s %s codes=%s claimed=%s redeemed=%s expired=%s voided=%s', campaign, status, codes, claimed, redeemed, expired, voided) FROM scrip.campaign`, f.campaignRows},
		{"coupon", `SELECT format('%s/%s %s %s %s %s %s %s', campaign, n, code, customer_id, status, ` + micros("claimed_at") + `, ` + micros("expires_at") + `, redeemed_count) FROM scrip.coupon`, f.couponRows},
		{"redemption", `SELECT format('%s/%s %s %s %s %s', campaign, n, order_id, customer_id, ` + micros("redeemed_at") + `, ` + micros("rolled_back_at") + `) FROM scrip.redemption`, f.redemptionRows},
		{"reminder", `SELECT format('%s %s %s %s %s', campaign, customer_id, kind, ` + micros("due_at") + `, state) FROM scrip.reminder`, f.reminderRows},
		{"reminders by state", `SELECT format('%s %s', state, count(*)) FROM scrip.reminder GROUP BY state`, f.stateRows},
		{"expiry_task", `SELECT format('%s %s pending=%s redeemed=%s expired=%s %s', campaign, ` + micros("due_at") + `, pending, redeemed, expired, state) FROM scrip.expiry_task WHERE pending + redeemed + expired > 0`, f.taskRows},
	} {
		rows, err := db.Query(ctx, r.query)
		if err != nil {
			return nil, fmt.Errorf("reading scrip.%s: %w", r.relation, err)
		}
		differences = append(differences, compare(r.relation, texts(rows), r.want)...)
		if err := rows.Err(); err != nil {
			return nil, fmt.Errorf("reading scrip.%s: %w", r.relation, err)
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

// micros formats a column as microseconds since 1970, empty for NULL, independent of time zones.
func micros(column string) string {
	return `(extract(epoch FROM ` + column + `) * 1000000)::bigint`
}

// compare compares rows of the table with those of the log. It iterates over those of the log a second time to list the
// missing ones.
func compare(relation string, got, want iter.Seq[string]) []string {
	left := map[uint64]int{} // hash of a row → how often the table should still have it
	for row := range want {
		left[maphash.String(seed, row)]++
	}
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
		for row := range want {
			if h := maphash.String(seed, row); left[h] > 0 {
				left[h]--
				show(1, row)
			}
		}
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

// stamp formats an instant as micros does a time in the table.
func stamp(i wire.Instant) string {
	if i == 0 || i == wire.Never {
		return ""
	}
	return strconv.FormatInt(int64(i), 10)
}

func (f rowsOf) campaignRows(yield func(string) bool) {
	for _, c := range f.Campaigns {
		n := c.ByStatus()
		if !yield(fmt.Sprintf("%s %s codes=%d claimed=%d redeemed=%d expired=%d voided=%d", c.Name, c.Status, c.Codes,
			len(c.Coupons), n[wire.StatusRedeemed], n[wire.StatusExpired], n[wire.StatusVoided])) {
			return
		}
	}
}

func (f rowsOf) couponRows(yield func(string) bool) {
	for _, c := range f.Campaigns {
		for _, k := range c.Coupons {
			if !yield(fmt.Sprintf("%s/%d %s %s %s %s %s %d", c.Name, k.N, k.Code, k.Customer, c.StatusOf(k), stamp(k.ClaimedAt), stamp(c.Expires(k)), k.Count)) {
				return
			}
		}
	}
}

func (f rowsOf) redemptionRows(yield func(string) bool) {
	for _, c := range f.Campaigns {
		for _, k := range c.Coupons {
			for _, r := range k.Redemptions {
				if !yield(fmt.Sprintf("%s/%d %s %s %s %s", c.Name, k.N, r.Order, k.Customer, stamp(r.At), stamp(r.RolledBackAt))) {
					return
				}
			}
		}
	}
}

func (f rowsOf) reminderRows(yield func(string) bool) {
	for _, c := range f.Campaigns {
		for i := range c.Reminders {
			r := &c.Reminders[i]
			if !yield(fmt.Sprintf("%s %s %s %s %s", c.Name, r.Customer, r.Kind(), stamp(r.Due), r.State)) {
				return
			}
		}
	}
}

func (f rowsOf) stateRows(yield func(string) bool) {
	t := f.Tally()
	for s, n := range map[oracle.State]uint64{oracle.Pending: t.Pending, oracle.Fired: t.Fired, oracle.Cancelled: t.Cancelled, oracle.Dropped: t.Dropped} {
		if n > 0 && !yield(fmt.Sprintf("%s %d", s, n)) {
			return
		}
	}
}

// taskRows are the expiry tasks, before any of them is removed.
func (f rowsOf) taskRows(yield func(string) bool) {
	for _, c := range f.Campaigns {
		type task struct{ live, spent int }
		tasks := map[wire.Instant]*task{}
		for _, k := range c.Coupons {
			at := c.Expires(k)
			if at == wire.Never || k.Voided {
				continue
			}
			if tasks[at] == nil {
				tasks[at] = &task{}
			}
			if k.Count >= c.Settings.MaxRedemptions {
				tasks[at].spent++
			} else {
				tasks[at].live++
			}
		}
		for at, t := range tasks {
			row := fmt.Sprintf("%s %s pending=%d redeemed=%d expired=0 pending", c.Name, stamp(at), t.live, t.spent)
			if at <= c.Through {
				row = fmt.Sprintf("%s %s pending=0 redeemed=%d expired=%d processed", c.Name, stamp(at), t.spent, t.live)
			}
			if !yield(row) {
				return
			}
		}
	}
}
