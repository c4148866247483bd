package replay

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Format is a file format for events.
type Format string

// The formats of files.
const (
	// NDJSON is the line as it is in the log, with its position in front: {"lane":0,"sequence":12,"line":1,"type":….
	NDJSON Format = "ndjson"
	// CSV has Columns and a header line.
	CSV Format = "csv"
	// ExcelCSV is CSV for spreadsheets: see Harmless. Other programs would read the added quotes as part of the text.
	ExcelCSV Format = "csv-excel"
	// Parquet has Columns, typed; times are UTC microseconds. A complete file cannot be appended to.
	Parquet Format = "parquet"
)

// encoder writes events to the writer it was made with. Its output is complete after close.
type encoder interface {
	encode(events []Event) error
	// flush writes what was encoded so far, as far as the format allows.
	flush() error
	close() error
}

// newEncoder makes an encoder. With resumed, the header line is not written again.
func newEncoder(f Format, w io.Writer, resumed bool) (encoder, error) {
	switch f {
	case NDJSON:
		return &ndjson{w: bufio.NewWriterSize(w, 64<<10)}, nil
	case CSV, ExcelCSV:
		buffered := bufio.NewWriterSize(w, 64<<10)
		e := &csvEncoder{w: csv.NewWriter(buffered), buffered: buffered, row: csvRow{harmless: f == ExcelCSV}}
		if resumed {
			return e, nil
		}
		var heading []string
		for _, c := range Columns {
			heading = append(heading, c.Name)
		}
		return e, e.w.Write(heading)
	case Parquet:
		return newParquet(w), nil
	}
	return nil, invalid("format", "there is no format %q; give ndjson, csv or parquet", f)
}

type ndjson struct {
	w   *bufio.Writer
	buf []byte
}

func (n *ndjson) encode(events []Event) error {
	for i := range events {
		e := &events[i]
		n.buf = append(appendWithPosition(n.buf[:0], e, e.Type == wire.CommandRejected), '\n')
		if _, err := n.w.Write(n.buf); err != nil {
			return err
		}
	}
	return nil
}

func (n *ndjson) flush() error { return n.w.Flush() }
func (n *ndjson) close() error { return n.w.Flush() }

type csvEncoder struct {
	w        *csv.Writer
	buffered *bufio.Writer
	row      csvRow
}

func (c *csvEncoder) encode(events []Event) error {
	for i := range events {
		c.row.fields = c.row.fields[:0]
		columnsOf(&events[i], &c.row)
		if err := c.w.Write(c.row.fields); err != nil {
			return err
		}
	}
	return nil
}

func (c *csvEncoder) flush() error {
	c.w.Flush()
	if err := c.w.Error(); err != nil {
		return err
	}
	return c.buffered.Flush()
}

func (c *csvEncoder) close() error { return c.flush() }

// writeError adds the name of the file.
func writeError(what string, err error) error {
	return fmt.Errorf("writing %s: %w", what, err)
}

// Harmless returns s as a CSV field that a spreadsheet does not evaluate: if s begins as a formula may, a single quote
// is put in front. Producers choose customer and order ids, and a formula runs with the rights of the user who opens
// the file.
func Harmless(field string) string {
	if field != "" && strings.ContainsRune("=+-@\t\r\n", rune(field[0])) {
		return "'" + field
	}
	return field
}

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

// csvRow writes an event as CSV fields.
type csvRow struct {
	fields   []string
	harmless bool // texts are escaped by Harmless
}

func (r *csvRow) add(s string)            { r.fields = append(r.fields, s) }
func (r *csvRow) small(v int32)           { r.add(strconv.Itoa(int(v))) }
func (r *csvRow) number(v uint64)         { r.add(strconv.FormatUint(v, 10)) }
func (r *csvRow) text(s string)           { r.add(r.field(s)) }
func (r *csvRow) instant(at wire.Instant) { r.add(at.String()) }
func (r *csvRow) null()                   { r.add("") }
func (r *csvRow) raw(line []byte)         { r.add(r.field(string(line))) }

func (r *csvRow) field(s string) string {
	if r.harmless {
		return Harmless(s)
	}
	return s
}
