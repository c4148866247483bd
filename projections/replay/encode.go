package replay

import (
	"bufio"
	"encoding/csv"
	"io"
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
		e := &csvEncoder{w: csv.NewWriter(bufio.NewWriterSize(w, 64<<10)), row: csvRow{harmless: f == ExcelCSV}} // it keeps a larger buffer
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
	w   *csv.Writer
	row csvRow
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
	return c.w.Error()
}

func (c *csvEncoder) close() error { return c.flush() }

// Harmless returns s as a CSV field that a spreadsheet does not evaluate: if s begins as a formula may, a single quote
// is put in front. Producers choose customer and order ids, and a formula runs with the rights of the user who opens
// the file.
func Harmless(field string) string {
	if field != "" && strings.ContainsRune("=+-@\t\r\n", rune(field[0])) {
		return "'" + field
	}
	return field
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

const (
	// groupRows and groupBytes (of lines) bound a row group: it is held in memory until it is written.
	groupRows  = 128 << 10
	groupBytes = 32 << 20
)

// parquetRow is Columns in Parquet. Numbers for which zero is a value are pointers; for others zero is null.
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
	p.rows = p.rows[:0]
	for i := range events {
		p.rows = append(p.rows, rowOf(&events[i]))
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

func rowOf(e *Event) parquetRow {
	there := func(v uint64, is bool) *int64 {
		if !is {
			return nil
		}
		n := int64(v)
		return &n
	}
	redeemed, count, reminders := counts(e.Type)
	return parquetRow{
		Lane: int32(e.Lane), Sequence: int64(e.Position.Sequence), Line: int32(e.Position.Line),
		Type: e.Type.String(), Campaign: e.Campaign, At: int64(e.At), ID: e.ID,
		N: int64(e.N), Code: e.Code, CustomerID: e.CustomerID, OrderID: e.OrderID, ExpiresAt: int64(e.expires()),
		RedeemedCount: there(uint64(e.RedeemedCount), redeemed), Status: e.Status, Reason: e.Reason,
		Kind: e.Kind, DueAt: int64(e.DueAt), R: int64(e.R),
		Fired: there(e.Fired, reminders), Dropped: there(e.Dropped, reminders),
		Through: int64(e.Through), Count: there(e.Count, count),
		CommandSequence: int64(e.Event.Sequence), CommandLine: int64(e.Event.Line), Raw: string(e.Raw),
	}
}
