package replay

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// EventsTable is the table that Rows fills, and the temporary one that SQL projections are given.
const EventsTable = "events"

// Rows is the projection that keeps the events themselves: table events of schema name, with Columns, filled by COPY.
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

// CopyEvents adds events to a table that has Columns. Text that PostgreSQL cannot hold is changed as little as needed:
// U+0000 and invalid UTF-8 become U+FFFD; in raw also halves of surrogate pairs, and numbers beyond 1e±10000 become text.
func CopyEvents(ctx context.Context, tx pgx.Tx, table pgx.Identifier, events []Event) error {
	return copyEvents(ctx, tx, table, events, true)
}

// copyEvents can leave out raw: making jsonb of it costs PostgreSQL four times as much as all other columns.
func copyEvents(ctx context.Context, tx pgx.Tx, table pgx.Identifier, events []Event, withRaw bool) error {
	var list []string
	for _, c := range Columns {
		list = append(list, c.Name)
	}
	rows := copyRows{withRaw: withRaw, buf: append(make([]byte, 0, 512*len(events)), copySignature...)}
	for i := range events {
		rows.buf = binary.BigEndian.AppendUint16(rows.buf, uint16(len(Columns)))
		columnsOf(&events[i], &rows)
	}
	rows.buf = append(rows.buf, 0xff, 0xff) // no more rows
	sql := "COPY " + table.Sanitize() + " (" + strings.Join(list, ", ") + ") FROM STDIN (FORMAT binary)"
	if _, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(rows.buf), sql); err != nil {
		return fmt.Errorf("copying %d events: %w", len(events), err)
	}
	return nil
}

// copySignature begins the binary format of COPY: no flags, no header extension.
const copySignature = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// postgresEpoch is 2000-01-01T00:00:00Z, where PostgreSQL's timestamps begin.
const postgresEpoch wire.Instant = 946_684_800_000_000

// copyRows writes rows in the binary format of COPY. By hand: pgx's CopyFrom boxes every value.
type copyRows struct {
	buf     []byte
	withRaw bool
}

func (r *copyRows) null() { r.buf = append(r.buf, 0xff, 0xff, 0xff, 0xff) }

func (r *copyRows) small(v int32) {
	r.buf = binary.BigEndian.AppendUint32(append(r.buf, 0, 0, 0, 4), uint32(v))
}

func (r *copyRows) number(v uint64) {
	r.buf = binary.BigEndian.AppendUint64(append(r.buf, 0, 0, 0, 8), v)
}

func (r *copyRows) instant(at wire.Instant) { r.number(uint64(at - postgresEpoch)) }

func (r *copyRows) text(s string) {
	if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
		s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	}
	r.buf = append(binary.BigEndian.AppendUint32(r.buf, uint32(len(s))), s...)
}

// raw is jsonb: its version, 1, and the text.
func (r *copyRows) raw(line []byte) {
	if !r.withRaw {
		r.null()
		return
	}
	line = storable(line)
	r.buf = append(binary.BigEndian.AppendUint32(r.buf, uint32(len(line))+1), 1)
	r.buf = append(r.buf, line...)
}
