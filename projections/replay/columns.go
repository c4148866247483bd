package replay

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// Column is one typed column of an event.
type Column struct {
	Name, SQL string
	// value is an int32, uint64, string, wire.Instant or, of the column raw, a line; nil where the event lacks the field.
	value func(*Event) any
}

// notNull ends the SQL of a column that every event has.
const notNull = " NOT NULL"

// line is an event's line.
type line []byte

// Columns of an event in CSV, Parquet and PostgreSQL, in this order; empty (NULL) where an event lacks the field.
//
//	lane, sequence, line        its position in the log
//	expires_at                  of the coupon, if its own; of campaign.created and .updated, the campaign's
//	command_sequence, …_line    of the command that a command.rejected refers to
//	raw                         the whole line
var Columns = []Column{
	{"lane", "integer NOT NULL", func(e *Event) any { return int32(e.Lane) }},
	{"sequence", "bigint NOT NULL", func(e *Event) any { return e.Position.Sequence }},
	{"line", "integer NOT NULL", func(e *Event) any { return int32(e.Position.Line) }},
	{"type", "text NOT NULL", func(e *Event) any { return e.Type.String() }},
	{"campaign", "text", func(e *Event) any { return given(e.Campaign) }},
	{"at", "timestamptz NOT NULL", func(e *Event) any { return e.At }},
	{"id", "text", func(e *Event) any { return given(e.ID) }},
	{"n", "bigint", func(e *Event) any { return given(uint64(e.N)) }},
	{"code", "text", func(e *Event) any { return given(e.Code) }},
	{"customer_id", "text", func(e *Event) any { return given(e.CustomerID) }},
	{"order_id", "text", func(e *Event) any { return given(e.OrderID) }},
	{"expires_at", "timestamptz", func(e *Event) any { return given(max(e.ExpiresAt, e.Settings.ExpiresAt)) }}, // it has one of them
	{"redeemed_count", "bigint", func(e *Event) any {
		return counted(uint64(e.RedeemedCount), e.Type == wire.CouponRedeemed || e.Type == wire.CouponRolledBack)
	}},
	{"status", "text", func(e *Event) any { return given(e.Status) }},
	{"reason", "text", func(e *Event) any { return given(e.Reason) }},
	{"kind", "text", func(e *Event) any { return given(e.Kind) }},
	{"due_at", "timestamptz", func(e *Event) any { return given(e.DueAt) }},
	{"r", "bigint", func(e *Event) any { return given(e.R) }},
	{"fired", "bigint", func(e *Event) any { return counted(e.Fired, e.Type == wire.RemindersDue) }},
	{"dropped", "bigint", func(e *Event) any { return counted(e.Dropped, e.Type == wire.RemindersDue) }},
	{"through", "timestamptz", func(e *Event) any { return given(e.Through) }},
	{"count", "bigint", func(e *Event) any { return counted(e.Count, e.Type == wire.CouponsExpired || e.Count != 0) }},
	{"from_n", "bigint", func(e *Event) any { return given(uint64(e.FromN)) }},
	{"through_n", "bigint", func(e *Event) any { return given(uint64(e.ThroughN)) }},
	{"batch", "text", func(e *Event) any { return given(e.Batch) }},
	{"command_sequence", "bigint", func(e *Event) any { return given(e.Event.Sequence) }},
	{"command_line", "bigint", func(e *Event) any { return given(uint64(e.Event.Line)) }},
	{"raw", "jsonb NOT NULL", func(e *Event) any { return line(e.Raw) }},
}

// given is a value, nil if it is zero.
func given[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// counted is a count that some events have even if it is zero.
func counted(n uint64, there bool) any {
	if !there {
		return nil
	}
	return n
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
			return copyEvents(ctx, tx, pgx.Identifier{name, EventsTable}, b.Events, true)
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

func columnNames() (list []string) {
	for _, c := range Columns {
		list = append(list, c.Name)
	}
	return list
}

// copyEvents appends events to a table that has Columns. Text that PostgreSQL cannot store is changed: U+0000 and invalid
// UTF-8 become U+FFFD; in raw also halves of surrogate pairs. It can omit raw: converting it to jsonb costs PostgreSQL four times
// as much as all other columns.
func copyEvents(ctx context.Context, tx pgx.Tx, table pgx.Identifier, events []Event, withRaw bool) error {
	var rows pgcopy.Rows
	rows.Grow(512 * len(events))
	for i := range events {
		rows.Row(len(Columns))
		for c := range Columns {
			switch v := Columns[c].value(&events[i]).(type) {
			case nil:
				rows.Null()
			case int32:
				rows.Int32(v)
			case uint64:
				rows.Int64(int64(v))
			case string:
				rows.Text(pgcopy.Clean(v))
			case wire.Instant:
				rows.Instant(v)
			case line:
				if withRaw {
					rows.JSONB(storable(v))
				} else {
					rows.Null()
				}
			}
		}
	}
	return rows.Send(ctx, tx, table.Sanitize(), strings.Join(columnNames(), ", "))
}
