package readmodel

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// Those of a customer are collected by their hash index first: for a short page the planner would else walk the key, in the hope of
// finding some soon.
const (
	remindersSQL = `SELECT x.r, x.campaign, x.customer_id, x.kind, x.before_us, coalesce(x.n, 0), x.due_at, x.state, x.settled_at FROM scrip.reminder x
WHERE x.campaign = $1 AND $2::text IN ('', x.customer_id) AND $3::text IN ('', x.state) AND $4::text IN ('', x.kind) AND $5::bigint IN (-1, x.before_us) AND x.r < $6 ORDER BY x.r DESC LIMIT $7`
	ofTheCustomer = `(SELECT * FROM scrip.reminder WHERE customer_id = $2 OFFSET 0)`
)

// Reminders implements ops.Reminders.
func (s *History) Reminders(ctx context.Context, q ops.ListReminders) (ops.Page[domain.ReminderView], error) {
	sql, before, end := remindersSQL, int64(-1), int64(math.MaxInt64)
	if q.CustomerID != "" {
		sql = strings.Replace(sql, "scrip.reminder", ofTheCustomer, 1)
	}
	if q.Kind != "" {
		before = q.Before.Microseconds()
	}
	if q.After != "" {
		end, _ = strconv.ParseInt(q.After, 10, 64)
	}
	return schema.Again(func() (page ops.Page[domain.ReminderView], err error) {
		rows, err := s.db.Query(ctx, sql, q.Campaign, q.CustomerID, q.State, q.Kind, before, end, q.Limit+1)
		if err != nil {
			return page, err
		}
		var r, last, us, n int64
		var v domain.ReminderView
		var due, settled pgtype.Timestamptz
		_, err = pgx.ForEachRow(rows, []any{&r, &v.Campaign, &v.CustomerID, &v.Kind, &us, &n, &due, &v.State, &settled}, func() error {
			if len(page.Items) == q.Limit { // there are more
				page.Next = strconv.FormatInt(last, 10)
				return nil
			}
			v.Before, v.N, v.DueAt, v.SettledAt = wire.Period(time.Duration(us)*time.Microsecond).String(), uint32(n), timeOf(due), timeOf(settled)
			page.Items, last = append(page.Items, v), r
			return nil
		})
		return page, err
	})
}
