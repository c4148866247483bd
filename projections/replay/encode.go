package replay

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Format is how events are written to a file.
type Format string

// The formats of files.
const (
	// NDJSON is the line as the log holds it with its place in front: {"lane":0,"sequence":12,"line":1,"type":….
	NDJSON Format = "ndjson"
	// CSV has Columns, with a heading.
	CSV Format = "csv"
	// ExcelCSV is CSV for people who open it in a spreadsheet: see Harmless. Programs would read the quotes as part of the
	// text.
	ExcelCSV Format = "csv-excel"
	// Parquet has Columns, typed; times are UTC microseconds. It cannot be added to once it is complete.
	Parquet Format = "parquet"
)

// encoder writes events to the writer it was made with. Its output is complete after close.
type encoder interface {
	encode(events []Event) error
	// flush hands all so far encoded to the writer, as far as the format can.
	flush() error
	close() error
}

// newEncoder makes an encoder. With resumed, what the writer holds already has its heading.
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
		n.buf = append(appendPlaced(n.buf[:0], e, e.Type == wire.CommandRejected), '\n')
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

// writeError says what could not be written, and what to do.
func writeError(what string, err error) error {
	return fmt.Errorf("writing %s: %w", what, err)
}

// Harmless is a text as a CSV field that a spreadsheet does not take for a formula: one that begins as a formula may gets a
// single quote in front. Producers choose customer and order ids, and a formula runs with the rights of whoever opens the
// file.
func Harmless(field string) string {
	if field != "" && strings.ContainsRune("=+-@\t\r\n", rune(field[0])) {
		return "'" + field
	}
	return field
}
