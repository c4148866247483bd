package replay

import (
	"encoding/csv"
	"io"
	"slices"
	"strings"
)

// CSVWriter writes the one form of CSV that scrip has: see [Harmless]. A crash leaves whole rows, and a part of one.
type CSVWriter struct{ w *csv.Writer }

// NewCSVWriter returns a writer of rows. What it holds is written by Flush.
func NewCSVWriter(to io.Writer) CSVWriter { return CSVWriter{csv.NewWriter(to)} }

// Write writes a row.
func (c CSVWriter) Write(fields ...string) error {
	given := fields
	for i, field := range given {
		if safe := Harmless(field); len(safe) != len(field) {
			if &fields[0] == &given[0] {
				fields = slices.Clone(given)
			}
			fields[i] = safe
		}
	}
	return c.w.Write(fields)
}

// Flush writes what is held, and returns the first error of all.
func (c CSVWriter) Flush() error {
	c.w.Flush()
	return c.w.Error()
}

// Harmless returns a text as a CSV field that a spreadsheet does not evaluate: if it starts as a formula may, or with a
// single quote, a single quote is put in front. Producers choose customer and order ids, and a formula runs with the
// rights of the person who opens the file. Programs take the quote off by [Plain]; what needs no such step is JSON or
// Parquet.
func Harmless(field string) string {
	if field != "" && strings.IndexByte("=+-@'\t\r\n", field[0]) >= 0 {
		return "'" + field
	}
	return field
}

// Plain returns the text of a field that Harmless made.
func Plain(field string) string { return strings.TrimPrefix(field, "'") }
