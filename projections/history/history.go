// Package history reads what happened to a coupon or a customer back from the read tables.
//
//	coupon_row ──┐
//	redemption ──┼──> entries, in the order they happened
//	reminder   ──┘
//
// The lanes know how a coupon stands now, and answer that; who held it, when and for which orders it was used is in the
// tables only. What is read here is as of the checkpoints, and may be behind the lanes.
package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// MostEntries is how many entries are read at once when nobody says otherwise, and at most.
const MostEntries = 500

// Entry is one thing that happened.
type Entry struct {
	At time.Time `json:"at"`
	// What is claimed, redeemed, rolled_back, expired, voided, reminder_set, reminder_fired, reminder_cancelled or
	// reminder_dropped.
	What       string          `json:"what"`
	Campaign   string          `json:"campaign"`
	N          int64           `json:"n,omitempty"` // coupon; 0 for reminders of an opening
	Code       string          `json:"code,omitempty"`
	CustomerID string          `json:"customer_id,omitempty"`
	OrderID    string          `json:"order_id,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Attributes json.RawMessage `json:"attributes,omitempty"`
	Kind       string          `json:"kind,omitempty"` // of a reminder
	DueAt      *time.Time      `json:"due_at,omitempty"`
}

// Store reads the tables through a pool. Any number of goroutines may use it.
type Store struct{ db *pgxpool.Pool }

// New returns a Store. It asks nobody: PostgreSQL may be away.
func New(db *pgxpool.Pool) *Store { return &Store{db: db} }

// Entries of the coupons in k, which has the columns of view coupon, and of the reminders in m. rank orders what happened
// at one instant, sub what is equal even then.
const entriesSQL = `
SELECT claimed_at, 'claimed', campaign, n, code, customer_id, NULL, NULL, attributes, NULL, NULL::timestamptz, 1, 0::bigint FROM k
UNION ALL SELECT x.redeemed_at, 'redeemed', x.campaign, x.n, x.code, x.customer_id, x.order_id, NULL, NULL, NULL, NULL, 2, x.sequence * 1048576 + x.line
  FROM k JOIN scrip.redemption x ON x.campaign = k.campaign AND x.n = k.n
UNION ALL SELECT x.rolled_back_at, 'rolled_back', x.campaign, x.n, x.code, x.customer_id, x.order_id, NULL, NULL, NULL, NULL, 3, x.sequence * 1048576 + x.line
  FROM k JOIN scrip.redemption x ON x.campaign = k.campaign AND x.n = k.n WHERE x.rolled_back_at IS NOT NULL
UNION ALL SELECT expires_at, 'expired', campaign, n, code, customer_id, NULL, NULL, NULL, NULL, NULL, 4, 0 FROM k WHERE status = 'expired'
UNION ALL SELECT voided_at, 'voided', campaign, n, code, customer_id, NULL, void_reason, NULL, NULL, NULL, 5, 0 FROM k WHERE voided_at IS NOT NULL
UNION ALL SELECT m.set_at, 'reminder_set', m.campaign, coalesce(m.n, 0), NULL, m.customer_id, NULL, NULL, NULL, m.kind, m.due_at, 6, m.r FROM m
UNION ALL SELECT m.settled_at, 'reminder_' || m.state, m.campaign, coalesce(m.n, 0), NULL, m.customer_id, NULL, NULL, NULL, m.kind, m.due_at, 7, m.r
  FROM m WHERE m.settled_at IS NOT NULL`

// The newest entries before a place.
//
// $2 = how many   $3.. = the place: time, campaign, n, rank, sub
const pageSQL = `
SELECT * FROM (` + entriesSQL + `) e (at, what, campaign, n, code, customer_id, order_id, reason, attributes, kind, due_at, rank, sub)
WHERE (at, campaign, n, rank, sub) < ($3::timestamptz, $4::text COLLATE "C", $5::bigint, $6::int, $7::bigint)
ORDER BY at DESC, campaign DESC, n DESC, rank DESC, sub DESC LIMIT $2`

// $1 = customer
const customerSQL = `
WITH k AS (SELECT * FROM scrip.coupon WHERE customer_id = $1), m AS (SELECT * FROM scrip.reminder WHERE customer_id = $1)` + pageSQL

// $1 = campaign   $8 = n
const couponSQL = `
WITH k AS (SELECT * FROM scrip.coupon WHERE campaign = $1 AND n = $8),
     m AS (SELECT x.* FROM k JOIN scrip.reminder x ON x.customer_id = k.customer_id AND x.campaign = k.campaign AND x.n = k.n)` + pageSQL

// CouponEntries is what happened to coupon n of a campaign, oldest first: the newest MostEntries of it. Empty if the
// tables do not know it, or not yet.
func (s *Store) CouponEntries(ctx context.Context, campaign string, n uint32) ([]Entry, error) {
	list, _, err := s.read(ctx, couponSQL, campaign, MostEntries, "", int64(n))
	if err != nil {
		return nil, fmt.Errorf("reading the history of coupon %d of %s: %w", n, campaign, err)
	}
	return list, nil
}

// CustomerEntries is what happened to a customer's coupons and reminders in all campaigns, oldest first: the newest
// limit entries (0 = MostEntries, which is also the most) before a place. before is empty for the newest, else what the
// call before gave as earlier, which is empty when nothing is left.
func (s *Store) CustomerEntries(ctx context.Context, customerID string, limit int, before string) (list []Entry, earlier string, err error) {
	list, earlier, err = s.read(ctx, customerSQL, customerID, limit, before)
	if err != nil {
		return nil, "", fmt.Errorf("reading the history of customer %s: %w", customerID, err)
	}
	return list, earlier, nil
}

// Coupon is CouponEntries as the micro service asks for it.
func (s *Store) Coupon(ctx context.Context, campaign string, n uint32) (any, error) {
	return s.CouponEntries(ctx, campaign, n)
}

// Customer is the newest page of CustomerEntries, as the micro service asks for it.
func (s *Store) Customer(ctx context.Context, customerID string) (any, error) {
	list, _, err := s.CustomerEntries(ctx, customerID, 0, "")
	return list, err
}

func (s *Store) read(ctx context.Context, sql, of string, limit int, before string, more ...any) (list []Entry, earlier string, err error) {
	if limit < 0 || limit > MostEntries {
		return nil, "", fmt.Errorf("limit %d: give 1 to %d, or 0 for the most", limit, MostEntries)
	}
	if limit == 0 {
		limit = MostEntries
	}
	from, err := parsePlace(before)
	if err != nil {
		return nil, "", err
	}
	args := append([]any{of, limit, from.at, from.campaign, from.n, from.rank, from.sub}, more...)
	rows, err := s.db.Query(ctx, sql, args...)
	if err != nil {
		return nil, "", err
	}
	var last place
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Entry, error) {
		e, at, err := scan(row)
		last = at
		return e, err
	})
	if err != nil {
		return nil, "", err
	}
	if len(list) == limit {
		earlier = last.String()
	}
	slices.Reverse(list)
	return list, earlier, nil
}

func scan(row pgx.CollectableRow) (e Entry, at place, err error) {
	var code, customer, order, reason, attributes, kind pgtype.Text
	var due pgtype.Timestamptz
	err = row.Scan(&e.At, &e.What, &e.Campaign, &e.N, &code, &customer, &order, &reason, &attributes, &kind, &due, &at.rank, &at.sub)
	if err != nil {
		return e, at, err
	}
	e.At = e.At.UTC()
	e.Code, e.CustomerID, e.OrderID, e.Reason, e.Kind = code.String, customer.String, order.String, reason.String, kind.String
	if json.Valid([]byte(attributes.String)) {
		e.Attributes = json.RawMessage(attributes.String)
	}
	if due.Valid {
		t := due.Time.UTC()
		e.DueAt = &t
	}
	at.at, at.campaign, at.n = pgtype.Timestamptz{Time: e.At, Valid: true}, e.Campaign, e.N
	return e, at, nil
}

// place is where a page ends.
type place struct {
	at       pgtype.Timestamptz
	campaign string
	n        int64
	rank     int32
	sub      int64
}

// String is the place as callers keep it: <µs>.<n>.<rank>.<sub>.<campaign>.
func (p place) String() string {
	return fmt.Sprintf("%d.%d.%d.%d.%s", p.at.Time.UnixMicro(), p.n, p.rank, p.sub, p.campaign)
}

func parsePlace(s string) (p place, err error) {
	if s == "" {
		return place{at: pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}}, nil
	}
	parts := strings.SplitN(s, ".", 5)
	if len(parts) != 5 {
		return p, fmt.Errorf("%q is not a place in a history; give what the page before ended with", s)
	}
	var numbers [4]int64
	var errs [4]error
	for i := range numbers {
		numbers[i], errs[i] = strconv.ParseInt(parts[i], 10, 64)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return p, fmt.Errorf("%q is not a place in a history; give what the page before ended with: %w", s, err)
	}
	p.at = pgtype.Timestamptz{Time: time.UnixMicro(numbers[0]).UTC(), Valid: true}
	p.n, p.rank, p.sub, p.campaign = numbers[1], int32(numbers[2]), numbers[3], parts[4]
	return p, nil
}
