// Package history reads what happened to a coupon or a customer back: each event with its time, its place in the log and
// the id of the command that caused it, newest first, a page at a time.
//
//	coupon_row ───┐
//	redemption ───┤
//	coupon_event ─┼──> a page of entries ──> their messages in SCRIP_EVT_<lane> ──> ids of commands
//	expiry_event ─┤    (place: lane, sequence, line)
//	reminder ─────┘
//
// The lanes know how a coupon stands now, and answer that; who held it, when and for which orders it was used is in the
// tables only. What is read here is as of the checkpoints, and may be behind the lanes. The tables keep the place of each
// event and not its command's id, which nobody looks for and which would make each coupon a fifth larger: a page reads
// the ids from the log.
//
// Owner: nobody; a Store keeps nothing. A crash here loses an answer.
package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/service"
)

const (
	// MostEntries is how many entries a page has at most, DefaultEntries how many when nobody says otherwise.
	MostEntries    = service.MaxShown
	DefaultEntries = 100
)

// Entry is one thing that happened.
type Entry struct {
	At time.Time `json:"at"`
	// What is claimed, redeemed, rolled_back, voided, extended, expired, reminder_set, reminder_cancelled, reminder_fired
	// or reminder_dropped.
	What string `json:"what"`
	// Lane, Sequence and Line are where the event stands: the message in the lane's event stream, and the line in it,
	// from 1. One event tells of many coupons that expired, or reminders that fired, at once.
	Lane     int    `json:"lane"`
	Sequence uint64 `json:"sequence"`
	Line     int    `json:"line"`
	// ID is of the command that caused it.
	ID         string          `json:"id,omitempty"`
	Campaign   string          `json:"campaign"`
	N          uint32          `json:"n,omitempty"` // coupon; 0 for reminders of an opening
	Code       string          `json:"code,omitempty"`
	CustomerID string          `json:"customer_id,omitempty"`
	OrderID    string          `json:"order_id,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Attributes json.RawMessage `json:"attributes,omitempty"`
	// ExpiresAt is until when it was extended, or when it expired: At is when that was announced.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Kind and DueAt are of a reminder; it is due then unless its anchor moved later.
	Kind  string     `json:"kind,omitempty"`
	DueAt *time.Time `json:"due_at,omitempty"`

	r int64 // number of the reminder
}

// Page is a part of a history, newest first.
type Page struct {
	Entries []Entry
	// Before is the cursor of what is older, "" when nothing is.
	Before string
	// Note says which ids are lacking and why, "" if none are.
	Note string
}

// Messages reads one message of a lane's event stream: eventlog.Events(js, lane).In(log).Lookup.
type Messages func(ctx context.Context, lane int, sequence uint64) (eventlog.Raw, error)

// Store reads the tables through a pool. Any number of goroutines may use it.
type Store struct {
	db  *pgxpool.Pool
	log Messages
}

// New returns a Store. It asks nobody: PostgreSQL may be away. Without log, entries have no ids, and pages say so.
func New(db *pgxpool.Pool, log Messages) *Store { return &Store{db: db, log: log} }

// CouponEntries is what happened to coupon n of a campaign: up to limit entries (0 = DefaultEntries, at most
// MostEntries) that are older than before says ("" = the newest, else the Before of another page). Empty if the tables do
// not know it, or not yet.
func (s *Store) CouponEntries(ctx context.Context, campaign string, n uint32, limit int, before string) (Page, error) {
	page, err := s.read(ctx, couponSQL, limit, before, campaign, int64(n))
	if err != nil {
		return page, fmt.Errorf("reading the history of coupon %d of %s: %w", n, campaign, err)
	}
	return page, nil
}

// CustomerEntries is the same of a customer's coupons and reminders in all campaigns. Lanes are projected each at its own
// pace, so an event of a lane that lags may later appear among older ones.
func (s *Store) CustomerEntries(ctx context.Context, customerID string, limit int, before string) (Page, error) {
	page, err := s.read(ctx, customerSQL, limit, before, customerID, nil)
	if err != nil {
		return page, fmt.Errorf("reading the history of customer %s: %w", customerID, err)
	}
	return page, nil
}

// Coupon is CouponEntries as the micro service asks for it.
func (s *Store) Coupon(ctx context.Context, campaign string, n uint32, limit int, before string) (service.HistoryPage, error) {
	page, err := s.CouponEntries(ctx, campaign, n, limit, before)
	return served(page, err)
}

// Customer is CustomerEntries as the micro service asks for it.
func (s *Store) Customer(ctx context.Context, customerID string, limit int, before string) (service.HistoryPage, error) {
	page, err := s.CustomerEntries(ctx, customerID, limit, before)
	return served(page, err)
}

func served(page Page, err error) (service.HistoryPage, error) {
	if err != nil {
		return service.HistoryPage{}, err
	}
	out := service.HistoryPage{More: page.Before != "", Note: page.Note}
	for i := range page.Entries {
		raw, err := json.Marshal(&page.Entries[i])
		if err != nil {
			return out, fmt.Errorf("encoding the history: %w", err)
		}
		out.Entries = append(out.Entries, service.HistoryEntry{JSON: raw, Before: cursorAt(&page.Entries[i]).String()})
	}
	return out, nil
}

func (s *Store) read(ctx context.Context, sql string, limit int, before string, of string, n any) (page Page, err error) {
	if limit < 0 || limit > MostEntries {
		return page, fmt.Errorf("limit %d: give 1 to %d, or 0 for %d", limit, MostEntries, DefaultEntries)
	}
	if limit == 0 {
		limit = DefaultEntries
	}
	from, err := parseCursor(before)
	if err != nil {
		return page, err
	}
	tx, err := s.db.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL})
	if err != nil {
		return page, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it only read
	args := []any{of, limit + 1, from.at, from.lane, from.place, from.n, from.r}
	if n != nil {
		args = append(args, n)
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return page, err
	}
	if page.Entries, err = pgx.CollectRows(rows, scan); err != nil {
		return page, err
	}
	if len(page.Entries) > limit {
		page.Entries = page.Entries[:limit]
		page.Before = cursorAt(&page.Entries[limit-1]).String()
	}
	// Not held while the log is asked.
	if err := tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return page, err
	}
	page.Note = s.readIDs(ctx, page.Entries)
	return page, nil
}

func scan(row pgx.CollectableRow) (e Entry, err error) {
	var place, n int64
	var code, customer, order, reason, attributes, kind pgtype.Text
	var due, expires pgtype.Timestamptz
	err = row.Scan(&e.At, &e.What, &e.Lane, &place, &e.Campaign, &n, &e.r, &code, &customer, &order, &reason, &attributes, &kind, &due, &expires)
	if err != nil {
		return e, err
	}
	e.At = e.At.UTC()
	e.Sequence, e.Line, e.N = uint64(place/placeLines), int(place%placeLines), uint32(n)
	e.Code, e.CustomerID, e.OrderID, e.Reason, e.Kind = code.String, customer.String, order.String, reason.String, kind.String
	if json.Valid([]byte(attributes.String)) {
		e.Attributes = json.RawMessage(attributes.String)
	}
	e.DueAt, e.ExpiresAt = timeOf(due), timeOf(expires)
	return e, nil
}

func timeOf(at pgtype.Timestamptz) *time.Time {
	if !at.Valid {
		return nil
	}
	t := at.Time.UTC()
	return &t
}
