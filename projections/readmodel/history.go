package readmodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/service"
)

const (
	// MostEntries is the maximum of entries per page, DefaultEntries the default.
	MostEntries    = service.MaxShown
	DefaultEntries = 100
)

// Entry is one event of a coupon or reminder.
type Entry struct {
	At time.Time `json:"at"`
	// What is the Change of the event's type in the table of events, or reminder_dropped.
	What string `json:"what"`
	// Lane, Sequence and Line are the event's position: the message in the lane's event stream, and the line in it,
	// from 1. One event may concern many coupons that expired, or reminders that fired, at once.
	Lane     int    `json:"lane"`
	Sequence uint64 `json:"sequence"`
	Line     int    `json:"line"`
	// ID is of the command that caused it.
	ID string `json:"id,omitempty"`
	// By is the person who sent that command, "" = no person.
	By string `json:"by,omitempty"`
	// ByN: that command named the coupon by campaign and n, not by its code.
	ByN        bool            `json:"by_n,omitempty"`
	Campaign   string          `json:"campaign"`
	N          uint32          `json:"n,omitempty"`        // coupon; 0 for reminders of kind opens
	Replaces   uint32          `json:"replaces,omitempty"` // of a claim: the customer's void coupon before it
	Code       string          `json:"code,omitempty"`
	CustomerID string          `json:"customer_id,omitempty"`
	OrderID    string          `json:"order_id,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Attributes json.RawMessage `json:"attributes,omitempty"`
	// ExpiresAt is the expiry instant after an extension, or at which the coupon expired: At is when that was
	// announced.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Kind and DueAt are of a reminder; its due instant moves if its anchor moves later.
	Kind  string     `json:"kind,omitempty"`
	DueAt *time.Time `json:"due_at,omitempty"`

	r int64 // number of the reminder
}

// HistoryPage is a part of a history, newest first.
type HistoryPage struct {
	Entries []Entry
	// Before is the cursor of the next older page, "" if there is none.
	Before string
	// Note names the missing ids and the reason, "" if none are missing.
	Note string
}

// Messages reads one message of a lane's event stream: eventlog.Events(js, lane).In(log).Lookup.
type Messages func(ctx context.Context, lane int, sequence uint64) (eventlog.Raw, error)

// History reads the tables through a pool. Any number of goroutines may use it.
type History struct {
	db  *pgxpool.Pool
	log Messages
}

// NewHistory returns a History. It sends no query: PostgreSQL may be unavailable. If log is nil, entries have no ids, and pages
// have a Note.
func NewHistory(db *pgxpool.Pool, log Messages) *History { return &History{db: db, log: log} }

// CouponEntries returns the events of coupon n of a campaign: up to limit entries (0 = DefaultEntries, at most
// MostEntries), older than before ("" = the newest, else the Before of another page). Empty if the tables do not have
// the coupon, or not yet.
func (s *History) CouponEntries(ctx context.Context, campaign string, n uint32, limit int, before string) (HistoryPage, error) {
	page, err := s.read(ctx, couponSQL, limit, before, campaign, int64(n))
	if err != nil {
		return page, fmt.Errorf("reading the history of coupon %d of %s: %w", n, campaign, err)
	}
	return page, nil
}

// CustomerEntries returns the same of a customer's coupons and reminders in all campaigns. Each lane has its own lag,
// so an event of a lagging lane may appear later among older ones.
func (s *History) CustomerEntries(ctx context.Context, customerID string, limit int, before string) (HistoryPage, error) {
	page, err := s.read(ctx, customerSQL, limit, before, customerID, nil)
	if err != nil {
		return page, fmt.Errorf("reading the history of customer %s: %w", customerID, err)
	}
	return page, nil
}

// Coupon is CouponEntries for the micro service, encoded as JSON.
func (s *History) Coupon(ctx context.Context, campaign string, n uint32, limit int, before string) (service.HistoryPage, error) {
	page, err := s.CouponEntries(ctx, campaign, n, limit, before)
	return served(page, err)
}

// Customer is CustomerEntries for the micro service, encoded as JSON.
func (s *History) Customer(ctx context.Context, customerID string, limit int, before string) (service.HistoryPage, error) {
	page, err := s.CustomerEntries(ctx, customerID, limit, before)
	return served(page, err)
}

func served(page HistoryPage, err error) (service.HistoryPage, error) {
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

func (s *History) read(ctx context.Context, sql string, limit int, before string, of string, n any) (page HistoryPage, err error) {
	if limit < 0 || limit > MostEntries {
		return page, fmt.Errorf("limit %d: give 1 to %d, or 0 for %d", limit, MostEntries, DefaultEntries)
	}
	if limit == 0 {
		limit = DefaultEntries
	}
	from, err := parseEntryCursor(before)
	if err != nil {
		return page, err
	}
	tx, err := s.db.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL})
	if err != nil {
		return page, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // read only
	args := []any{of, limit + 1, from.at, from.lane, from.position, from.n, from.r}
	if n != nil {
		args = append(args, n)
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return page, err
	}
	if page.Entries, err = pgx.CollectRows(rows, scanEntry); err != nil {
		return page, err
	}
	if len(page.Entries) > limit {
		page.Entries = page.Entries[:limit]
		page.Before = cursorAt(&page.Entries[limit-1]).String()
	}
	// Ended before the log is read.
	if err := tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return page, err
	}
	page.Note = s.readIDs(ctx, page.Entries)
	return page, nil
}

func scanEntry(row pgx.CollectableRow) (e Entry, err error) {
	var position, n int64
	var code, customer, order, reason, attributes, kind pgtype.Text
	var due, expires pgtype.Timestamptz
	err = row.Scan(&e.At, &e.What, &e.Lane, &position, &e.Campaign, &n, &e.r, &code, &customer, &order, &reason, &attributes, &kind, &due, &expires)
	if err != nil {
		return e, err
	}
	e.At = e.At.UTC()
	e.Sequence, e.Line, e.N = uint64(position/positionLines), int(position%positionLines), uint32(n)
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

// entryCursor is the end of a page. Entries are ordered by time, then by position; one event may concern several coupons and
// reminders of a customer.
type entryCursor struct {
	at                   pgtype.Timestamptz
	lane, position, n, r int64
}

func cursorAt(e *Entry) entryCursor {
	return entryCursor{
		at:   pgtype.Timestamptz{Time: e.At, Valid: true},
		lane: int64(e.Lane), position: int64(e.Sequence)*positionLines + int64(e.Line), n: int64(e.N), r: e.r,
	}
}

// String returns the cursor for callers: <µs>.<lane>.<packed position>.<n>.<r>.
func (c entryCursor) String() string {
	return fmt.Sprintf("%d.%d.%d.%d.%d", c.at.Time.UnixMicro(), c.lane, c.position, c.n, c.r)
}

// parseEntryCursor parses the result of String; "" is after the newest entry.
func parseEntryCursor(s string) (c entryCursor, err error) {
	if s == "" {
		return entryCursor{at: pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}}, nil
	}
	parts := strings.Split(s, ".")
	var numbers [5]int64
	if len(parts) != len(numbers) {
		return c, fmt.Errorf("%q: %w", s, service.ErrBadCursor)
	}
	for i := range numbers {
		n, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil || n < 0 || i == 0 && n > latest {
			return c, fmt.Errorf("%q: %w", s, service.ErrBadCursor)
		}
		numbers[i] = n
	}
	return entryCursor{
		at:   pgtype.Timestamptz{Time: time.UnixMicro(numbers[0]).UTC(), Valid: true},
		lane: numbers[1], position: numbers[2], n: numbers[3], r: numbers[4],
	}, nil
}

// latest is the year 9999 in microseconds, within PostgreSQL's range.
const latest = 253_402_300_799_999_999
