package replay

import (
	"bufio"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

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
	// CSV has Columns and a header line; see CSVWriter.
	CSV Format = "csv"
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
	case CSV:
		e := &csvEncoder{w: NewCSVWriter(bufio.NewWriterSize(w, 64<<10))} // it keeps a larger buffer
		if resumed {
			return e, nil
		}
		return e, e.w.Write(columnNames()...)
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
	w      CSVWriter
	fields []string
}

func (c *csvEncoder) encode(events []Event) error {
	for i := range events {
		c.fields = c.fields[:0]
		for n := range Columns {
			c.fields = append(c.fields, c.field(Columns[n].value(&events[i])))
		}
		if err := c.w.Write(c.fields...); err != nil {
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
		return v
	case line:
		return string(v)
	}
	return ""
}

func (c *csvEncoder) flush() error { return c.w.Flush() }
func (c *csvEncoder) close() error { return c.w.Flush() }

const (
	// groupRows and groupBytes (of lines) bound a row group: it is held in memory until it is written.
	groupRows  = 128 << 10
	groupBytes = 32 << 20
)

// recurring are the columns of few texts: Parquet has each once in a dictionary.
var recurring = []string{"type", "campaign", "status", "kind"}

// parquetSchema is Columns in Parquet. A struct is the one kind of group whose columns keep their order.
var parquetSchema = sync.OnceValue(func() *parquet.Schema {
	var fields []reflect.StructField
	for i, c := range Columns {
		kind, required := strings.CutSuffix(c.SQL, notNull)
		tag := c.Name
		if !required {
			tag += ",optional"
		}
		of := reflect.TypeFor[string]()
		switch kind {
		case "integer":
			of = reflect.TypeFor[int32]()
		case "bigint":
			of = reflect.TypeFor[int64]()
		case "timestamptz":
			of, tag = reflect.TypeFor[int64](), tag+",timestamp(microsecond)"
		}
		if slices.Contains(recurring, c.Name) {
			tag += ",dict"
		}
		fields = append(fields, reflect.StructField{Name: "C" + strconv.Itoa(i), Type: of, Tag: reflect.StructTag(`parquet:"` + tag + `"`)})
	}
	return parquet.NewSchema("event", parquet.SchemaOf(reflect.New(reflect.StructOf(fields)).Interface()))
})

type parquetEncoder struct {
	w     *parquet.GenericWriter[any]
	rows  []parquet.Row
	group struct{ rows, bytes int } // of the row group not yet written
}

func newParquet(w io.Writer) *parquetEncoder {
	// Every reader supports Snappy and version 1 of data pages.
	return &parquetEncoder{w: parquet.NewGenericWriter[any](w, parquetSchema(), parquet.Compression(&snappy.Codec{}),
		parquet.DataPageVersion(1), parquet.SkipPageBounds("raw"), parquet.CreatedBy("scrip replay", "1", ""))}
}

func (p *parquetEncoder) encode(events []Event) error {
	p.rows = slices.Grow(p.rows[:0], len(events))[:len(events)]
	for i := range events {
		p.rows[i] = appendParquet(p.rows[i][:0], &events[i])
		p.group.bytes += len(events[i].Raw)
	}
	if _, err := p.w.WriteRows(p.rows); err != nil {
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

// appendParquet appends the values of Columns. A value has a level of definition: 1 in a column that may be null, else 0.
func appendParquet(row parquet.Row, e *Event) parquet.Row {
	for c := range Columns {
		level := 1
		if strings.HasSuffix(Columns[c].SQL, notNull) {
			level = 0
		}
		var value parquet.Value
		switch v := Columns[c].value(e).(type) {
		case nil:
			level = 0
		case int32:
			value = parquet.Int32Value(v)
		case wire.Instant:
			value = parquet.Int64Value(int64(v))
		case uint64:
			value = parquet.Int64Value(int64(v))
		case string:
			value = parquet.ValueOf(v)
		case line:
			value = parquet.ByteArrayValue(v)
		}
		row = append(row, value.Level(0, level, c))
	}
	return row
}
