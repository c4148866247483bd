package check

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/domain"
)

// maxShown bounds the differences listed per relation.
const maxShown = 10

// Tables compares the read tables with the fold and returns the differences, nil if there are none. The projector must
// have reached where the fold ends.
func (f *Fold) Tables(ctx context.Context, db *pgx.Conn) ([]string, error) {
	var differences []string
	for _, r := range []struct {
		relation, query string
		want            []string
	}{
		{"campaign", `SELECT format('%s %s codes=%s claimed=%s redeemed=%s expired=%s voided=%s', campaign, status, codes, claimed, redeemed, expired, voided) FROM scrip.campaign`, f.campaignRows()},
		{"coupon", `SELECT format('%s/%s %s %s %s %s %s %s', campaign, n, code, customer_id, status, ` + micros("claimed_at") + `, ` + micros("expires_at") + `, redeemed_count) FROM scrip.coupon`, f.couponRows()},
		{"redemption", `SELECT format('%s/%s %s %s %s %s', campaign, n, order_id, customer_id, ` + micros("redeemed_at") + `, ` + micros("rolled_back_at") + `) FROM scrip.redemption`, f.redemptionRows()},
		{"reminder", `SELECT format('%s %s %s %s %s', campaign, customer_id, kind, ` + micros("due_at") + `, state) FROM scrip.reminder`, f.reminderRows()},
		{"expiry_task", `SELECT format('%s %s pending=%s redeemed=%s expired=%s %s', campaign, ` + micros("due_at") + `, pending, redeemed, expired, state) FROM scrip.expiry_task WHERE pending + redeemed + expired > 0`, f.taskRows()},
	} {
		rows, err := db.Query(ctx, r.query)
		if err != nil {
			return nil, fmt.Errorf("reading scrip.%s: %w", r.relation, err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("reading scrip.%s: %w", r.relation, err)
		}
		differences = append(differences, compare(r.relation, got, r.want)...)
	}
	return differences, nil
}

// micros formats a column as microseconds since 1970, empty for NULL, so that no time zone gets in between.
func micros(column string) string {
	return `(extract(epoch FROM ` + column + `) * 1000000)::bigint`
}

func compare(relation string, got, want []string) (differences []string) {
	left := map[string]int{}
	for _, row := range want {
		left[row]++
	}
	for _, row := range got {
		left[row]--
	}
	var rows []string
	for row, n := range left {
		if n != 0 {
			rows = append(rows, row)
		}
	}
	sort.Strings(rows)
	for i, row := range rows {
		if i == maxShown {
			return append(differences, fmt.Sprintf("%s: … and %d more rows differ", relation, len(rows)-maxShown))
		}
		where := "only in the table"
		if left[row] > 0 {
			where = "only in the log"
		}
		differences = append(differences, fmt.Sprintf("%s: %s: %s", relation, where, row))
	}
	return differences
}

// stamp is what micros makes of a time in the table.
func stamp(i domain.Instant) string {
	if i == 0 || i == domain.Never {
		return ""
	}
	return fmt.Sprint(int64(i))
}

func (f *Fold) campaignRows() (rows []string) {
	for _, c := range f.Campaigns {
		n := c.byStatus()
		rows = append(rows, fmt.Sprintf("%s %s codes=%d claimed=%d redeemed=%d expired=%d voided=%d", c.Name, c.Status, c.Codes,
			len(c.Coupons), n[domain.StatusRedeemed], n[domain.StatusExpired], n[domain.StatusVoided]))
	}
	return rows
}

func (f *Fold) couponRows() (rows []string) {
	for _, c := range f.Campaigns {
		for _, k := range c.Coupons {
			rows = append(rows, fmt.Sprintf("%s/%d %s %s %s %s %s %d", c.Name, k.N, k.Code, k.Customer, c.StatusOf(k), stamp(k.ClaimedAt), stamp(c.Expires(k)), k.Count))
		}
	}
	return rows
}

func (f *Fold) redemptionRows() (rows []string) {
	for _, c := range f.Campaigns {
		for _, k := range c.Coupons {
			for _, r := range k.Redemptions {
				rows = append(rows, fmt.Sprintf("%s/%d %s %s %s %s", c.Name, k.N, r.Order, k.Customer, stamp(r.At), stamp(r.RolledBackAt)))
			}
		}
	}
	return rows
}

func (f *Fold) reminderRows() (rows []string) {
	for _, c := range f.Campaigns {
		for _, r := range c.Reminders {
			rows = append(rows, fmt.Sprintf("%s %s %s %s %s", c.Name, r.Customer, r.Kind, stamp(r.Due), r.State))
		}
	}
	return rows
}

// taskRows are the expiry tasks younger than any clean-up.
func (f *Fold) taskRows() (rows []string) {
	for _, c := range f.Campaigns {
		type task struct{ live, spent int }
		tasks := map[domain.Instant]*task{}
		for _, k := range c.Coupons {
			at := c.Expires(k)
			if at == domain.Never || k.Voided {
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
			rows = append(rows, row)
		}
	}
	return rows
}

// undefinedTable is PostgreSQL's code for a relation that does not exist.
const undefinedTable = "42P01"

// Caught waits until the projector's checkpoint of every lane has reached the given sequences.
func Caught(ctx context.Context, db *pgx.Conn, ends []uint64) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		behind := 0
		for lane, end := range ends {
			var sequence int64
			err := db.QueryRow(ctx, `SELECT coalesce(max(sequence), 0) FROM scrip.checkpoint WHERE lane = $1`, lane).Scan(&sequence)
			var missing *pgconn.PgError
			switch {
			case errors.As(err, &missing) && missing.Code == undefinedTable:
				behind++ // the projector has not made the tables yet
			case err != nil:
				return fmt.Errorf("reading scrip.checkpoint: %w", err)
			case uint64(sequence) < end:
				behind++
			}
		}
		if behind == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d lanes of the read tables are behind: %w", behind, ctx.Err())
		case <-tick.C:
		}
	}
}
