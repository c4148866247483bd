package readmodel

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// $1 = campaign   $2..$5 = customer, state, kind, before   $6 = place   $7 = how many   $8 = the last row of the part
//
// The end of a part is read first, and the part up to that row. A part of so many rows, with its end counted after it, would have
// another end when reminders are set meanwhile.
//
// Reminders of a customer are collected by their hash index first: for a short page the planner would else walk the key, in the hope
// of finding some soon.
const (
	remindersSQL = `SELECT x.r, x.campaign, x.customer_id, x.kind, x.before_us, coalesce(x.n, 0), x.due_at, x.state, x.settled_at FROM {{rows}} x
WHERE x.campaign = $1 AND ($2::text IS NULL OR x.customer_id = $2) AND ($3::text IS NULL OR x.state = $3) AND ($4::text IS NULL OR x.kind = $4)
  AND ($5::bigint IS NULL OR x.before_us = $5) AND x.r < $6 ORDER BY x.r DESC LIMIT $7`
	remindersByKey      = `(SELECT * FROM scrip_tables.reminder k WHERE k.campaign = $1 AND k.r < $6 AND k.r >= $8 ORDER BY k.r DESC OFFSET 0)`
	remindersOfCustomer = `(SELECT * FROM scrip_tables.reminder k WHERE k.customer_id = $2 AND $8::bigint >= 0 OFFSET 0)`

	countOfReminders = `SELECT count(*) FROM (SELECT FROM scrip_tables.reminder x WHERE x.customer_id = $1 LIMIT $2) x`
	// The last row of a part. $1 = campaign   $2 = place   $3 = rows of the part
	endOfReminders = `SELECT x.r, x.set_at FROM scrip_tables.reminder x WHERE x.campaign = $1 AND x.r < $2 ORDER BY x.r DESC OFFSET $3 - 1 LIMIT 1`
)

// reminderPlace is the reminder after which a part goes on.
type reminderPlace struct {
	R    int64
	Walk bool `json:",omitempty"` // the key is walked, although a customer is given
}

// numbered is a reminder with its number in the campaign.
type numbered struct {
	r int64
	domain.ReminderView
}

// Reminders implements ops.Reminders.
func (s *History) Reminders(ctx context.Context, q ops.ListReminders) (page ops.Page[domain.ReminderView], err error) {
	at, err := placed[reminderPlace](q.After)
	if err != nil {
		return page, err
	}
	if q.After == "" {
		at.R = math.MaxInt64
	}
	if q.CustomerID != "" && !at.Walk {
		if at.Walk, err = crowded(ctx, s.db, countOfReminders, q.CustomerID); err != nil {
			return page, err
		}
	}
	from, filtered := remindersByKey, q.CustomerID != "" || q.State != "" || q.Kind != ""
	if q.CustomerID != "" && !at.Walk {
		from = remindersOfCustomer
	}
	var before *int64
	if q.Kind != "" {
		us := q.Before.Microseconds()
		before = &us
	}
	most := q.Limit + 1
	if filtered && from == remindersByKey {
		if most, err = partRows, ops.Turn(ctx); err != nil {
			return page, err
		}
	}
	type end struct {
		R     int64
		SetAt time.Time
	}
	var ends []end
	list, _, err := inParts(ctx, most, func(rows int) (list []numbered, err error) {
		ends = nil
		if from == remindersByKey {
			if ends, err = read(ctx, s.db, partWait, pgx.RowToStructByPos[end], endOfReminders, q.Campaign, at.R, rows); err != nil {
				return nil, err
			}
		}
		last := int64(0)
		if len(ends) > 0 {
			last = ends[0].R
		}
		return read(ctx, s.db, partWait, scanReminder, strings.Replace(remindersSQL, "{{rows}}", from, 1),
			q.Campaign, given(q.CustomerID), given(q.State), given(q.Kind), before, at.R, q.Limit+1, last)
	})
	if err != nil {
		return page, err
	}
	whole := pageOf(list, q.Limit, func(v *numbered) any { return reminderPlace{v.r, at.Walk} })
	page.Next = whole.Next
	for i := range whole.Items {
		page.Items = append(page.Items, whole.Items[i].ReminderView)
	}
	if page.Next == "" && len(ends) > 0 {
		page.Next, page.Looked = cursorOf(reminderPlace{ends[0].R, at.Walk}), lookedAt(ends[0].SetAt)
	}
	return page, nil
}

// lookedAt is how far a part of a list that is in the order of time has looked.
func lookedAt(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func scanReminder(row pgx.CollectableRow) (v numbered, err error) {
	var us, n int64
	var due, settled pgtype.Timestamptz
	err = row.Scan(&v.r, &v.Campaign, &v.CustomerID, &v.Kind, &us, &n, &due, &v.State, &settled)
	v.Before, v.N, v.DueAt, v.SettledAt = wire.Period(time.Duration(us)*time.Microsecond).String(), uint32(n), timeOf(due), timeOf(settled)
	return v, err
}
