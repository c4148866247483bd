package replay

import (
	"bufio"
	"encoding/csv"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"

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
		e := &csvEncoder{w: csv.NewWriter(bufio.NewWriterSize(w, 64<<10)), harmless: f == ExcelCSV} // it keeps a larger buffer
		if resumed {
			return e, nil
		}
		return e, e.w.Write(columnNames())
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
		n.buf = append(e.AppendPositioned(n.buf[:0]), '\n')
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
	fields   []string
	harmless bool // texts are escaped by Harmless
}

func (c *csvEncoder) encode(events []Event) error {
	for i := range events {
		c.fields = c.fields[:0]
		for n := range Columns {
			c.fields = append(c.fields, c.field(Columns[n].value(&events[i])))
		}
		if err := c.w.Write(c.fields); err != nil {
			return err
		}
	}
	return nil
}

func (c *csvEncoder) field(v any) string {
	switch v := v.(type) {
	case int32:
		return strconv.Itoa(int(v))
	case uint64:
		return strconv.FormatUint(v, 10)
	case wire.Instant:
		return v.String()
	case string:
		return c.text(v)
	case line:
		return c.text(string(v))
	}
	return ""
}

func (c *csvEncoder) text(s string) string {
	if c.harmless {
		return Harmless(s)
	}
	return s
}

func (c *csvEncoder) flush() error {
	c.w.Flush()
	return c.w.Error()
}

func (c *csvEncoder) close() error { return c.flush() }

// Harmless returns s as a CSV field that a spreadsheet does not evaluate: if s starts as a formula may, a single quote
// is put in front. Producers choose customer and order ids, and a formula runs with the rights of the user who opens
// the file.
func Harmless(field string) string {
	if field != "" && strings.ContainsRune("=+-@\t\r\n", rune(field[0])) {
		return "'" + field
	}
	return field
}

const (
	// groupRows and groupBytes (of lines) bound a row group: it is held in memory until it is written.
	groupRows  = 128 << 10
	groupBytes = 32 << 20
)

// parquetRow is Columns in Parquet, field by field. Numbers for which zero is a value are pointers; for others zero is null.
type parquetRow struct {
	Lane            int32  `parquet:"lane"`
	Sequence        int64  `parquet:"sequence"`
	Line            int32  `parquet:"line"`
	Type            string `parquet:"type,dict"`
	Campaign        string `parquet:"campaign,optional,dict"`
	At              int64  `parquet:"at,timestamp(microsecond)"`
	ID              string `parquet:"id,optional"`
	N               int64  `parquet:"n,optional"`
	Code            string `parquet:"code,optional"`
	CustomerID      string `parquet:"customer_id,optional"`
	OrderID         string `parquet:"order_id,optional"`
	ExpiresAt       int64  `parquet:"expires_at,optional,timestamp(microsecond)"`
	RedeemedCount   *int64 `parquet:"redeemed_count,optional"`
	Status          string `parquet:"status,optional,dict"`
	Reason          string `parquet:"reason,optional"`
	Kind            string `parquet:"kind,optional,dict"`
	DueAt           int64  `parquet:"due_at,optional,timestamp(microsecond)"`
	R               int64  `parquet:"r,optional"`
	Fired           *int64 `parquet:"fired,optional"`
	Dropped         *int64 `parquet:"dropped,optional"`
	Through         int64  `parquet:"through,optional,timestamp(microsecond)"`
	Count           *int64 `parquet:"count,optional"`
	CommandSequence int64  `parquet:"command_sequence,optional"`
	CommandLine     int64  `parquet:"command_line,optional"`
	Raw             string `parquet:"raw"`
}

type parquetEncoder struct {
	w     *parquet.GenericWriter[parquetRow]
	rows  []parquetRow
	group struct{ rows, bytes int } // of the row group not yet written
}

func newParquet(w io.Writer) *parquetEncoder {
	// Every reader supports Snappy and version 1 of data pages.
	return &parquetEncoder{w: parquet.NewGenericWriter[parquetRow](w, parquet.Compression(&snappy.Codec{}),
		parquet.DataPageVersion(1), parquet.SkipPageBounds("raw"), parquet.CreatedBy("scrip replay", "1", ""))}
}

func (p *parquetEncoder) encode(events []Event) error {
	p.rows = slices.Grow(p.rows[:0], len(events))[:len(events)]
	for i := range events {
		p.rows[i].set(&events[i])
		p.group.bytes += len(events[i].Raw)
	}
	if _, err := p.w.Write(p.rows); err != nil {
		return err
	}
	if p.group.rows += len(p.rows); p.group.rows < groupRows && p.group.bytes < groupBytes {
		return nil
	}
	p.group.rows, p.group.bytes = 0, 0
	return p.w.Flush()
}

func (p *parquetEncoder) flush() error { return nil } // a row group per flush would be too small
func (p *parquetEncoder) close() error { return p.w.Close() }

func (r *parquetRow) set(e *Event) {
	*r = parquetRow{}
	row := reflect.ValueOf(r).Elem()
	for c := range Columns {
		field := row.Field(c)
		switch v := Columns[c].value(e).(type) {
		case int32:
			field.SetInt(int64(v))
		case wire.Instant:
			field.SetInt(int64(v))
		case uint64:
			if n := int64(v); field.Kind() == reflect.Pointer {
				field.Set(reflect.ValueOf(&n))
			} else {
				field.SetInt(n)
			}
		case string:
			field.SetString(v)
		case line:
			field.SetString(string(v))
		}
	}
}
