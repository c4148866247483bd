package replay

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

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
// invalid UTF-8 become U+FFFD; in raw also halves of surrogate pairs; numbers beyond 1e±10000 in raw become text.
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
