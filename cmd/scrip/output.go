package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/seed-4a2410e3/scrip/cmd/internal/terminal"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// printOutcome writes the answer to a command: one JSON line, or words in columns.
func (m *Main) printOutcome(o wire.Outcome) error {
	if m.global.output == outputJSON {
		_, err := m.Out.Write(append(o.AppendJSON(nil), '\n'))
		return err
	}
	head := o.Status
	if o.Refused() {
		head += ": " + string(o.Refusal)
	}
	if o.Repeat {
		head += " (a repeat: answered before, nothing changed)"
	}
	rows := [][2]string{{head, ""}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, [2]string{name, value})
		}
	}
	add("message", o.Message)
	add("code", o.Code)
	add("campaign", o.Campaign)
	if o.N != 0 {
		add("n", strconv.FormatUint(uint64(o.N), 10))
	}
	add("customer", o.CustomerID)
	add("order", o.OrderID)
	if o.ExpiresAt != 0 {
		add("expires", o.ExpiresAt.String())
	}
	if o.RedeemedCount != 0 {
		add("redeemed", times(o.RedeemedCount))
	}
	add("benefit", string(o.Benefit))
	if o.Kind != "" {
		add("reminder", o.Before.String()+" before it "+o.Kind)
	}
	if o.DueAt != 0 {
		add("due", o.DueAt.String())
	}
	if o.Count != 0 {
		add("count", strconv.FormatUint(o.Count, 10))
	}
	add("id", o.ID)
	return m.printFields(rows)
}

// refuse says why nothing was done, where the log was not asked: to a program like a refusal of the log's, with a word of
// its own; to a person on standard error.
func (m *Main) refuse(refusal wire.Refusal, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	if m.global.output != outputJSON {
		fmt.Fprintf(m.Err, "scrip: %s\n", message)
		return errRefused
	}
	return m.answer(wire.Outcome{Status: wire.StatusRefused, Refusal: refusal, Message: strings.TrimPrefix(message, "refused: ")})
}

// printFields writes names and values in two columns. A name without value is a heading. Values may be of anybody.
func (m *Main) printFields(rows [][2]string) error {
	w := tabwriter.NewWriter(m.Out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		if r[1] == "" {
			fmt.Fprintf(w, "%s\n", terminal.Line(r[0]))
			continue
		}
		fmt.Fprintf(w, "  %s\t%s\n", terminal.Line(r[0]), terminal.Line(r[1]))
	}
	return w.Flush()
}

// printTable writes rows under headings. Cells may be of anybody.
func (m *Main) printTable(headings string, rows [][]string) error {
	return table(m.Out, headings, rows)
}

func table(to io.Writer, headings string, rows [][]string) error {
	var buf bytes.Buffer
	w := tabwriter.NewWriter(&buf, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(headings, " ", "\t"))
	for _, r := range rows {
		for i, cell := range r {
			if i > 0 {
				_, _ = io.WriteString(w, "\t")
			}
			_, _ = io.WriteString(w, terminal.Line(cell)) // into memory
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

// times counts uses.
func times(n uint32) string {
	if n == 1 {
		return "once"
	}
	return strconv.FormatUint(uint64(n), 10) + " times"
}

// printJSON writes one compact line.
func (m *Main) printJSON(v any) error {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := m.Out.Write(buf.Bytes())
	return err
}
