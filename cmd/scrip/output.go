package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/replay"
)

// printOutcome writes the outcome of a command: one JSON line, or text in columns.
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
	if o.CouponStatus != "" {
		head += "; the coupon is " + o.CouponStatus + " by now"
	}
	rows := [][2]string{{head, ""}}
	add := func(name, value string) { rows = append(rows, [2]string{name, value}) }
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
		add("reminder", wire.Period(o.Before).String()+" before it "+o.Kind)
	}
	if o.DueAt != 0 {
		add("due", o.DueAt.String())
	}
	if o.Count != 0 {
		add("count", strconv.FormatUint(o.Count, 10))
	}
	add("id", o.ID)
	return cli.Fields(m.Out, filled(rows))
}

// table prints a page of a list, and the flag for the next one.
func (m *Main) table(next, header string, rows [][]string) error {
	m.more(next)
	return cli.Table(m.Out, header, rows)
}

func (m *Main) more(next string) {
	if next != "" {
		fmt.Fprintf(m.Err, "scrip: there is more: %s--after %s\n", m.instants, next)
	}
}

// filled are the rows with a value; the first one is the heading.
func filled(rows [][2]string) [][2]string {
	return append(rows[:1:1], slices.DeleteFunc(rows[1:], func(r [2]string) bool { return r[1] == "" })...)
}

// refuse reports a refusal of the command line itself: with -o json in the form of an outcome, else on standard error.
func (m *Main) refuse(refusal wire.Refusal, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	if m.global.output != outputJSON {
		fmt.Fprintf(m.Err, "scrip: %s\n", message)
		return cli.ErrRefused
	}
	return m.answer(wire.Outcome{Status: wire.StatusRefused, Refusal: refusal, Message: strings.TrimPrefix(message, "refused: ")})
}

// orText is s, or another text for "".
func orText(s, otherwise string) string { return cmp.Or(s, otherwise) }

// orZero is a time, "-" for none.
func orZero(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// orDash is orZero of an optional time.
func orDash(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return orZero(*t)
}

// plain makes an untrusted text printable: without terminal control sequences, cut for a column.
func plain(s string, most int) string { return wire.Shorten(cli.Line(s), most) }

// grouped formats a number as 1,234,567.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// times formats a count of redemptions.
func times(n uint32) string {
	if n == 1 {
		return "once"
	}
	return strconv.FormatUint(uint64(n), 10) + " times"
}

const maskHelp = `Who has a code can redeem it. With --mask-codes FILE each code is replaced by a hash under the key in FILE, which is created
if it does not exist. With one key a code always has the same hash, so that exports can be joined by it.
Free text, such as the reason of a void, is not changed.`

func maskFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "mask-codes", "", "replace codes by a hash under the key in this `FILE`")
}

// openMask returns nil where no file is given.
func openMask(file string) (*replay.Mask, error) {
	if file == "" {
		return nil, nil
	}
	mask, err := replay.OpenMask(file)
	if path := new(os.PathError); errors.As(err, &path) {
		return nil, cli.Usagef("--mask-codes: %w", err)
	}
	return mask, asUsage(err)
}

// warnings is the log of a command that does not serve.
func (m *Main) warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(m.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
