package readmodel

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/service"
)

const (
	// MostEntries is the maximum of entries per page, DefaultEntries the default.
	MostEntries    = 1000
	DefaultEntries = 100
)

// reminderDropped is what a reminders.due event did to a reminder that it did not fire.
const reminderDropped = "reminder_dropped"

// Changes are what may have happened to a coupon or a reminder: those that the table of events has, and reminder_dropped.
func Changes() (all []string) {
	for t := range wire.Events() {
		if change := t.Spec().Change; change != "-" {
			all = append(all, change)
		}
	}
	return append(all, reminderDropped)
}

// Entry is one event of a coupon or reminder.
type Entry struct {
	At time.Time `json:"at"`
	// What is one of Changes.
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
	// RequestID is of the request that sent it, where its client sent one.
	RequestID string `json:"request_id,omitempty"`
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

// Messages reads messages of a lane's event stream: eventlog.Events(js, lane).In(log).LookupAll.
type Messages func(ctx context.Context, lane int, sequences []uint64, each func(sequence uint64, raw eventlog.Raw, err error))

// History reads the tables through a pool. Any number of goroutines may use it.
type History struct {
	db  *pgxpool.Pool
	log Messages
}

// NewHistory returns a History. It sends no query: PostgreSQL may be unavailable. If log is nil, entries have no ids, and pages
// have a note.
func NewHistory(db *pgxpool.Pool, log Messages) *History { return &History{db: db, log: log} }

// Coupon returns the events of coupon n of a campaign: up to limit entries (0 = DefaultEntries, at most MostEntries), older than
// before ("" = the newest, else the Before of an entry). Empty if the tables do not have the coupon, or not yet.
func (s *History) Coupon(ctx context.Context, campaign string, n uint32, limit int, before string) (service.HistoryPage, error) {
	page, err := s.read(ctx, couponSQL, limit, before, campaign, int64(n))
	return served(page, err, "coupon %d of %s", n, campaign)
}

// Customer returns the same of a customer's coupons and reminders in all campaigns. Each lane has its own lag, so an event of a
// lagging lane may appear later among older ones.
func (s *History) Customer(ctx context.Context, customerID string, limit int, before string) (service.HistoryPage, error) {
	page, err := s.read(ctx, customerSQL, limit, before, customerID)
	return served(page, err, "customer %s", customerID)
}

// served encodes a page as JSON.
func served(page historyPage, err error, format string, args ...any) (out service.HistoryPage, _ error) {
	if err != nil {
		return out, fmt.Errorf("reading the history of "+format+": %w", append(args, err)...)
	}
	out.More, out.Note = page.more, page.note
	for i := range page.entries {
		e := &page.entries[i]
		raw, err := json.Marshal(e)
		if err != nil {
			return out, fmt.Errorf("encoding the history: %w", err)
		}
		out.Entries = append(out.Entries, service.HistoryEntry{Campaign: e.Campaign, JSON: raw, Before: e.cursor()})
	}
	return out, nil
}

// historyPage is a part of a history, newest first. note names the missing ids and the reason, "" if none are missing.
type historyPage struct {
	entries []Entry
	more    bool
	note    string
}

// positionLines is the factor by which a position is packed into one number; see schema/tables.sql.
const positionLines = 1 << 20

//go:embed history.sql
var historySQL string

// $1 = customer, or campaign   $8 = n
var (
	customerSQL = strings.NewReplacer("{{which}}", "t.customer_id = $1", "{{printed}}", "").Replace(historySQL)
	couponSQL   = strings.NewReplacer("{{which}}", "t.campaign = $1 AND t.n = $8", "{{printed}}", printedSQL).Replace(historySQL)
)

// printedSQL is a printed coupon to which nothing happened: it has no row.
const printedSQL = `
    UNION ALL SELECT a.campaign, $8, NULL, NULL, a.allotted_at, a.place, NULL, a.expires_at, NULL, c.lane, c.max_redemptions
    FROM scrip_tables.allotment a JOIN scrip_tables.campaign c ON c.campaign = a.campaign
    WHERE a.campaign = $1 AND a.from_n <= $8 AND a.through_n >= $8 AND NOT EXISTS (SELECT FROM scrip_tables.coupon_row r WHERE r.campaign = $1 AND r.n = $8)`

func (s *History) read(ctx context.Context, sql string, limit int, before, of string, more ...any) (page historyPage, err error) {
	if limit < 0 || limit > MostEntries {
		return page, fmt.Errorf("limit %d: give 1 to %d, or 0 for %d", limit, MostEntries, DefaultEntries)
	}
	limit = cmp.Or(limit, DefaultEntries)
	after, ok := parseCursor(before, 4)
	if !ok {
		return page, fmt.Errorf("%q is no place in a history", before)
	}
	// The transaction has ended before the log is read.
	page.entries, err = within(ctx, s.db, beginSQL, scanEntry, sql, slices.Concat([]any{of, limit + 1}, after, more)...)
	if err != nil {
		return page, err
	}
	page.entries, page.more = cut(page.entries, limit)
	page.note = s.readIDs(ctx, page.entries)
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

// cursor is the end of a page with this entry. Entries are ordered by time, then by position; one event may concern several
// coupons and reminders of a customer.
func (e *Entry) cursor() string {
	return cursor(e.At, int64(e.Lane), int64(e.Sequence)*positionLines+int64(e.Line), int64(e.N), e.r)
}

// A cursor is the end of a page, for callers: the time of its last row in microseconds, and what orders rows of one time, joined by
// dots.
func cursor(at time.Time, rest ...int64) string {
	text := strconv.FormatInt(at.UnixMicro(), 10)
	for _, n := range rest {
		text += "." + strconv.FormatInt(n, 10)
	}
	return text
}

// parseCursor parses a cursor with so many numbers after the time, as arguments of a statement; "" is after the newest row.
func parseCursor(s string, rest int) (args []any, ok bool) {
	if s == "" {
		args = append(args, pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true})
		for range rest {
			args = append(args, int64(0))
		}
		return args, true
	}
	for i, part := range strings.Split(s, ".") {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n < 0 || i == 0 && n > latest {
			return nil, false
		}
		if i == 0 {
			args = append(args, pgtype.Timestamptz{Time: time.UnixMicro(n).UTC(), Valid: true})
		} else {
			args = append(args, n)
		}
	}
	return args, len(args) == rest+1
}

// latest is the year 9999 in microseconds, within PostgreSQL's range.
const latest = 253_402_300_799_999_999

// cut cuts a list, of which one row more than the limit was read, to a page.
func cut[T any](list []T, limit int) (page []T, more bool) {
	return list[:min(len(list), limit)], len(list) > limit
}

// idsWait bounds reading the messages of a page; after that entries are returned without ids.
const idsWait = time.Second

// readIDs reads from the log what the tables do not have: ids, what a claim replaces, and the due instant of a reminder when it was set. It
// returns what is missing and why, "" if nothing is.
func (s *History) readIDs(ctx context.Context, entries []Entry) (note string) {
	if s.log == nil {
		return "ids of commands are missing: there is no connection to the log"
	}
	wanted, messages := map[int]map[uint64][]*Entry{}, 0 // by lane and sequence
	for i := range entries {
		e := &entries[i]
		if wanted[e.Lane] == nil {
			wanted[e.Lane] = map[uint64][]*Entry{}
		}
		if wanted[e.Lane][e.Sequence] == nil {
			messages++
		}
		wanted[e.Lane][e.Sequence] = append(wanted[e.Lane][e.Sequence], e)
	}
	ctx, cancel := context.WithTimeout(ctx, idsWait)
	defer cancel()
	var problem error
	missing := 0
	for lane, of := range wanted {
		s.log(ctx, lane, slices.Collect(maps.Keys(of)), func(sequence uint64, raw eventlog.Raw, err error) {
			if err == nil {
				err = readMessage(&raw, lane, of[sequence])
			}
			if err != nil { // which does not affect the other messages
				missing, problem = missing+1, cmp.Or(problem, err)
			}
		})
	}
	if problem != nil {
		return fmt.Sprintf("ids of commands are missing, from %d of %d messages: %s", missing, messages, problem)
	}
	return ""
}

// errOtherEvent: the log has another event at the position in the tables, perhaps because it was restored; `scrip verify`
// detects that.
var errOtherEvent = errors.New("the log has another event at this position than the read tables; run `scrip verify`")

// readMessage reads into entries what their message has.
func readMessage(raw *eventlog.Raw, lane int, entries []*Entry) error {
	byLine := make(map[int][]*Entry, len(entries))
	for _, e := range entries {
		byLine[e.Line] = append(byLine[e.Line], e)
	}
	found := 0
	for n, line := range eventlog.Lines(raw.Data) {
		list := byLine[n+1]
		if list == nil {
			continue
		}
		var ev wire.Event
		if err := wire.ParseEvent(line, &ev); err != nil {
			return fmt.Errorf("message %d of lane %d: %w", raw.Sequence, lane, err)
		}
		for _, e := range list {
			if !e.matches(&ev) {
				return fmt.Errorf("message %d of lane %d: %w", raw.Sequence, lane, errOtherEvent)
			}
			e.ID, e.By, e.RequestID, e.ByN, e.Replaces = ev.ID, ev.By, ev.RequestID, ev.ByN, ev.Replaces
			if ev.Type == wire.ReminderSet && ev.DueAt != 0 {
				at := ev.DueAt.Time()
				e.DueAt = &at
			}
			found++
		}
	}
	if found < len(entries) {
		return fmt.Errorf("message %d of lane %d: %w", raw.Sequence, lane, errOtherEvent)
	}
	return nil
}

// matches reports whether ev is the event that the entry was made from.
func (e *Entry) matches(ev *wire.Event) bool {
	spec, change := ev.Type.Spec(), e.What
	if change == reminderDropped { // by the same event that fires others
		change = wire.RemindersDue.Spec().Change
	}
	if spec.Change != change || ev.Campaign != e.Campaign {
		return false
	}
	switch {
	case spec.About == wire.AboutCoupon:
		return ev.N == e.N
	case spec.About == wire.AboutReminder:
		return ev.R == uint64(e.r)
	case ev.Type == wire.RemindersDue:
		return ev.FromR <= uint64(e.r) && uint64(e.r) <= ev.ThroughR
	}
	return true
}
