package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"
)

// IsTerminal distinguishes terminals from pipes and files: every terminal is a character device.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}

// Line makes an untrusted text (a reply of a server, a quote in a dead letter, a header) safe to print on one line: white
// space becomes a space, anything that a terminal could execute (escapes, direction marks, invalid UTF-8) a question mark.
func Line(s string) string { return printable(s, ' ') }

// Text is Line, but keeps line breaks.
func Text(s string) string { return printable(s, '\n') }

func printable(s string, newline rune) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return newline
		case r == '\t', r == '\r':
			return ' '
		case !unicode.IsPrint(r) || r == unicode.ReplacementChar:
			return '?'
		}
		return r
	}, s)
}

// Fields writes names and values in two columns. A name without value is a heading. Values are not trusted.
func Fields(to io.Writer, rows [][2]string) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		if r[1] == "" {
			fmt.Fprintf(w, "%s\n", Line(r[0]))
			continue
		}
		fmt.Fprintf(w, "  %s\t%s\n", Line(r[0]), Line(r[1]))
	}
	return w.Flush()
}

// Table writes rows under headings, which are separated by spaces. Cells are not trusted.
func Table(to io.Writer, headings string, rows [][]string) error {
	var buf bytes.Buffer
	w := tabwriter.NewWriter(&buf, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(headings, " ", "\t"))
	for _, r := range rows {
		for i, cell := range r {
			if i > 0 {
				_, _ = io.WriteString(w, "\t")
			}
			_, _ = io.WriteString(w, Line(cell)) // into memory
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(buf.String()) {
		if _, err := io.WriteString(to, strings.TrimRight(line, " \n")+"\n"); err != nil { // an empty last column is padded
			return err
		}
	}
	return nil
}

// JSON writes one compact line.
func JSON(to io.Writer, v any) error {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := to.Write(buf.Bytes())
	return err
}
