package replay

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// Column is one typed column of an event.
type Column struct{ Name, SQL string }

// Columns of an event in CSV, Parquet and PostgreSQL, in this order; empty (NULL) where an event lacks the field.
//
//	lane, sequence, line        its position in the log
//	expires_at                  of the coupon, if its own; of campaign.created and .updated, the campaign's
//	command_sequence, …_line    of the command that a command.rejected refers to
//	raw                         the whole line
var Columns = []Column{
	{"lane", "integer NOT NULL"}, {"sequence", "bigint NOT NULL"}, {"line", "integer NOT NULL"},
	{"type", "text NOT NULL"}, {"campaign", "text"}, {"at", "timestamptz NOT NULL"}, {"id", "text"},
	{"n", "bigint"}, {"code", "text"}, {"customer_id", "text"}, {"order_id", "text"}, {"expires_at", "timestamptz"},
	{"redeemed_count", "bigint"}, {"status", "text"}, {"reason", "text"},
	{"kind", "text"}, {"due_at", "timestamptz"}, {"r", "bigint"}, {"fired", "bigint"}, {"dropped", "bigint"},
	{"through", "timestamptz"}, {"count", "bigint"}, {"command_sequence", "bigint"}, {"command_line", "bigint"},
	{"raw", "jsonb NOT NULL"},
}

// columnWriter receives the values of one event, column by column.
type columnWriter interface {
	// small and number are integers; for an absent value null is called.
	small(int32)
	number(uint64)
	text(string)
	instant(wire.Instant)
	null()
	raw([]byte)
}

// columnsOf writes the columns of an event to w.
func columnsOf(e *Event, w columnWriter) {
	number := func(v uint64, there bool) {
		if there {
			w.number(v)
		} else {
			w.null()
		}
	}
	text := func(s string) {
		if s == "" {
			w.null()
		} else {
			w.text(s)
		}
	}
	instant := func(at wire.Instant) {
		if at == 0 {
			w.null()
		} else {
			w.instant(at)
		}
	}
	redeemed, count, reminders := counts(e.Type)
	w.small(int32(e.Lane))
	w.number(e.Position.Sequence)
	w.small(int32(e.Position.Line))
	w.text(e.Type.String())
	text(e.Campaign)
	w.instant(e.At)
	text(e.ID)
	number(uint64(e.N), e.N != 0)
	text(e.Code)
	text(e.CustomerID)
	text(e.OrderID)
	instant(e.expires())
	number(uint64(e.RedeemedCount), redeemed)
	text(e.Status)
	text(e.Reason)
	text(e.Kind)
	instant(e.DueAt)
	number(e.R, e.R != 0)
	number(e.Fired, reminders)
	number(e.Dropped, reminders)
	instant(e.Through)
	number(e.Count, count || e.Count != 0)
	number(e.Event.Sequence, e.Event.Sequence != 0)
	number(uint64(e.Event.Line), e.Event.Line != 0)
	w.raw(e.Raw)
}

// EventsTable is the table that Rows fills, and the temporary table that SQL projections read.
const EventsTable = "events"

// Rows is the projection that stores the events themselves: table events of schema name, with Columns, filled by COPY.
func Rows(name string) Definition {
	return Definition{
		Name: name, Version: "rows 1", FoldVersion: "rows 1",
		Create: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "CREATE TABLE "+EventsTable+" ("+columnsSQL()+", PRIMARY KEY (lane, sequence, line))")
			return err
		},
		Fold: func(ctx context.Context, tx pgx.Tx, b *Batch) error {
			return CopyEvents(ctx, tx, pgx.Identifier{name, EventsTable}, b.Events)
		},
	}
}

func columnsSQL() string {
	var list []string
	for _, c := range Columns {
		list = append(list, c.Name+" "+c.SQL)
	}
	return strings.Join(list, ", ")
}

// CopyEvents appends events to a table that has Columns. Text that PostgreSQL cannot store is changed: U+0000 and
// invalid UTF-8 become U+FFFD; in raw also halves of surrogate pairs.
func CopyEvents(ctx context.Context, tx pgx.Tx, table pgx.Identifier, events []Event) error {
	return copyEvents(ctx, tx, table, events, true)
}

// copyEvents can omit raw: converting it to jsonb costs PostgreSQL four times as much as all other columns.
func copyEvents(ctx context.Context, tx pgx.Tx, table pgx.Identifier, events []Event, withRaw bool) error {
	var list []string
	for _, c := range Columns {
		list = append(list, c.Name)
	}
	rows := copyRows{withRaw: withRaw}
	rows.Grow(512 * len(events))
	for i := range events {
		rows.Row(len(Columns))
		columnsOf(&events[i], &rows)
	}
	return rows.Send(ctx, tx, table.Sanitize(), strings.Join(list, ", "))
}

// copyRows is a columnWriter for COPY.
type copyRows struct {
	pgcopy.Rows
	withRaw bool
}

func (r *copyRows) null()                   { r.Null() }
func (r *copyRows) small(v int32)           { r.Int32(v) }
func (r *copyRows) number(v uint64)         { r.Int64(int64(v)) }
func (r *copyRows) instant(at wire.Instant) { r.Instant(at) }
func (r *copyRows) text(s string)           { r.Text(pgcopy.Clean(s)) }

func (r *copyRows) raw(line []byte) {
	if !r.withRaw {
		r.Null()
		return
	}
	r.JSONB(storable(line))
}
