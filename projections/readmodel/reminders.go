package readmodel

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// remindersSQL selects those of a campaign, $1, and of a customer, $2. The latter are collected by their hash index first: for a
// short page the planner would else walk the key, in the hope of finding some soon.
const (
	reminderColumns  = `SELECT x.r, x.customer_id, x.kind, x.before_us, coalesce(x.n, 0) AS n, x.due_at, x.state, x.settled_at, x.campaign FROM scrip.reminder x WHERE x.campaign = $1`
	ofCampaignSQL    = reminderColumns + ` AND $2 = ''`
	ofCustomerSQL    = `SELECT * FROM (` + reminderColumns + ` AND x.customer_id = $2 OFFSET 0) x WHERE true`
	remindersPageSQL = ` AND x.r > $3 AND ($4 = '' OR x.state = $4) ORDER BY x.r LIMIT $5`
	oneReminderSQL   = ofCustomerSQL + ` AND x.kind = $3 AND x.before_us = $4 ORDER BY x.r DESC LIMIT 1`
)

// reminderRow is a row, with the number of the subscription.
type reminderRow struct {
	r int64
	domain.ReminderView
}

func scanReminder(row pgx.CollectableRow) (v reminderRow, err error) {
	var before, n int64
	err = row.Scan(&v.r, &v.CustomerID, &v.Kind, &before, &n, &v.DueAt, &v.State, &v.SettledAt, &v.Campaign)
	v.Before, v.N = (time.Duration(before) * time.Microsecond).String(), uint32(n)
	for _, at := range []*time.Time{v.DueAt, v.SettledAt} {
		if at != nil {
			*at = at.UTC()
		}
	}
	return v, err
}

// Reminders implements ops.Reminders: those of a campaign, in the order in which they were set.
func (s *History) Reminders(ctx context.Context, q ops.ListReminders) (page ops.Page[domain.ReminderView], err error) {
	sql := ofCampaignSQL
	if q.CustomerID != "" {
		sql = ofCustomerSQL
	}
	after, _ := strconv.ParseInt(q.After, 10, 64) // "" at the start
	rows, err := s.db.Query(ctx, sql+remindersPageSQL, q.Campaign, q.CustomerID, after, q.State, q.Limit+1)
	if err != nil {
		return page, err
	}
	all, err := pgx.CollectRows(rows, scanReminder)
	if err != nil {
		return page, fmt.Errorf("reading reminders: %w", err)
	}
	all, more := cut(all, q.Limit)
	for i := range all {
		page.Items = append(page.Items, all[i].ReminderView)
	}
	if more {
		page.Next = strconv.FormatInt(all[q.Limit-1].r, 10)
	}
	return page, nil
}

// Reminder returns the newest subscription of a customer to a reminder, nil = there is none.
func (s *History) Reminder(ctx context.Context, campaign, customerID, kind string, before time.Duration) (*domain.ReminderView, error) {
	rows, err := s.db.Query(ctx, oneReminderSQL, campaign, customerID, kind, before.Microseconds())
	if err != nil {
		return nil, err
	}
	v, err := pgx.CollectExactlyOneRow(rows, scanReminder)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &v.ReminderView, err
}
