// Package codescsv reads codes from CSV files of spreadsheets and other programs, and has the rows of files of coupons.
//
//	file ──> rows ──> column "code", else the first ──> normalised ──> once each ──> yield
//	                                                        │
//	                                     row number, text and correction ──> reject
//
// Accepted: a byte-order mark, CRLF, empty rows, a header row, further columns, semicolons or tabs instead of commas,
// lower case, the same code twice, the single quote of our own files. A row without a usable code is passed to reject
// with its number; reading continues. The only state is the set of codes seen, about 24 bytes each.
package codescsv

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/replay"
)

// Column is the header of the column with the codes, in any case. A code "code" in the first row is read as a header.
const Column = "code"

// Reject is a row without a usable code.
type Reject struct {
	Row    int // line of the file, from 1
	Text   string
	Reason string // the error and its correction
}

// Report counts what was in the file.
type Report struct {
	Rows       int // not empty, without the header
	Codes      int // passed to yield
	Duplicates int // equal to an earlier row's, ignoring case, spaces and hyphens
	Rejected   int
}

// Read passes every code of r to yield, in the order of the file, normalised and each once, and every unusable row to
// reject. weak: codes that can be guessed are usable. It returns the first error of yield, reject or r.
func Read(r io.Reader, weak bool, yield func(code string) error, reject func(Reject) error) (Report, error) {
	var report Report
	in := bufio.NewReaderSize(r, 1<<16)
	if bom, err := in.Peek(3); err == nil && bytes.Equal(bom, []byte("\ufeff")) {
		_, _ = in.Discard(3)
	}
	if start, _ := in.Peek(2); len(start) == 2 && (start[0] == 0xff && start[1] == 0xfe || start[0] == 0xfe && start[1] == 0xff) {
		return report, errors.New("the file is UTF-16; save it as CSV UTF-8")
	}
	rows := csv.NewReader(in)
	rows.Comma = delimiter(in)
	rows.FieldsPerRecord, rows.LazyQuotes, rows.ReuseRecord = -1, true, true

	seen := newSet()
	column, first := 0, true
	for {
		record, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return report, nil
		}
		if err != nil {
			return report, fmt.Errorf("reading the CSV file: %w", err)
		}
		line, _ := rows.FieldPos(0)
		if first {
			first = false
			if i := header(record); i >= 0 {
				column = i
				continue
			}
		}
		if empty(record) {
			continue
		}
		report.Rows++
		text := ""
		if column < len(record) {
			text = replay.Plain(record[column])
		}
		normal, err := code.NormalizeImported(text)
		if err == nil && !weak {
			err = code.CheckStrong(normal)
		}
		if err != nil {
			report.Rejected++
			reason := err.Error()
			if strings.Contains(text, "\n") {
				reason = "a quote that opens here includes the rows after it, none of which were read: close or remove it"
			}
			if err := reject(Reject{Row: line, Text: strings.Clone(wire.Shorten(text, 80)), Reason: reason}); err != nil {
				return report, err
			}
			continue
		}
		if !seen.add(code.FoldImported(normal)) {
			report.Duplicates++
			continue
		}
		report.Codes++
		if err := yield(strings.Clone(normal)); err != nil {
			return report, err
		}
	}
}

// delimiter guesses from the first line; none of the three can be part of a code.
func delimiter(in *bufio.Reader) rune {
	line, _ := in.Peek(4096)
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i]
	}
	for _, c := range []byte{',', ';', '\t'} {
		if bytes.IndexByte(line, c) >= 0 {
			return rune(c)
		}
	}
	return ','
}

// header returns the column of the codes in a header row, -1 for any other row.
func header(record []string) int {
	for i, name := range record {
		if strings.EqualFold(strings.TrimSpace(name), Column) {
			return i
		}
	}
	return -1
}

func empty(record []string) bool {
	for _, field := range record {
		if strings.TrimSpace(field) != "" {
			return false
		}
	}
	return true
}

// set stores 128 bits of keyed hash per text: a million of them take about 40 MB, and a collision is practically
// impossible.
type set struct {
	a, b  maphash.Seed
	known map[[2]uint64]struct{}
}

func newSet() *set {
	return &set{a: maphash.MakeSeed(), b: maphash.MakeSeed(), known: make(map[[2]uint64]struct{})}
}

// add returns false if the set has text already.
func (s *set) add(text string) bool {
	k := [2]uint64{maphash.String(s.a, text), maphash.String(s.b, text)}
	if _, there := s.known[k]; there {
		return false
	}
	s.known[k] = struct{}{}
	return true
}
