package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/projections/rebuild"
	"github.com/seed-4a2410e3/scrip/projections/verify"
)

func (m *Main) verifyCommand() *cobra.Command {
	var opts verify.Options
	var limit uint32
	var postgres string
	cmd := &cobra.Command{
		Use: "verify", Short: "Compare the read tables with the log", Args: noArgs,
		Long: `Compare the read tables with the log: fold the log up to the tables' checkpoint into a schema of its own (scrip_scratch,
removed at the end), compare digests per table and campaign in one snapshot, then the rows of what differs. It finds any
row changed, missing or too many in any table, a checkpoint ahead of the log, and a log that lost its tail under one. Without
--campaign it also compares how indexes, constraints, the view and functions are made.
A changed row is listed with a line per changed column, and counted once; a table or column that is gone, or a damaged
checkpoint, counts as one row.

The tables in use are only read; while it runs, PostgreSQL keeps old versions of their rows. With --repair, the rows of
campaigns that differ are replaced by what the log says, in one transaction, and everything else is left alone. A damaged
checkpoint, or a table or column that is gone, needs ` + "`scrip rebuild`" + `.

It needs the rights of the owner of schema scrip, and room for a second set of tables; with --campaign, for that campaign.

Exit codes: 0 nothing differs, or all of it was repaired; 4 differences found; 1 failed, 2 wrong usage, 3 refused.
Refused with -o json, it prints {"status":"refused","refusal":"not_begun","message":…}.`,
	}
	unusedIDFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&opts.Campaign, "campaign", "", "look at the campaign of this `NAME` only")
	f.BoolVar(&opts.Repair, "repair", false, "put right what differs")
	f.Var(number(&limit, 100, 1, 1_000_000), "limit", "how many rows that differ to list, each with all of its changed columns; all are counted")
	postgresFlag(cmd, &postgres)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("campaign") && opts.Campaign == "" {
			return usagef("--campaign needs a name")
		}
		opts.Limit = int(limit)
		return m.onTables(cmd.Context(), rebuild.Options{Who: "scrip verify"}, postgres, func(ctx context.Context, s *rebuild.Session, js jetstream.JetStream) error {
			report, err := verify.Run(ctx, s, js, opts)
			if report != nil && (err == nil || !report.Equal()) {
				if printing := m.printVerified(report); printing != nil {
					return printing
				}
			}
			switch {
			case err != nil:
				return err
			case !report.Equal() && !opts.Repair:
				return errDiffered
			}
			return nil
		})
	}
	return cmd
}

// printVerified says what was found.
func (m *Main) printVerified(r *verify.Report) error {
	if m.global.output == outputJSON {
		return m.printJSON(r)
	}
	var rows [][]string
	for _, t := range r.Tables {
		verdict := "equal"
		if len(t.Groups) > 0 {
			verdict = "DIFFERS"
		}
		rows = append(rows, []string{t.Table, grouped(uint64(t.Rows)), grouped(uint64(t.Expected)), fmt.Sprint(t.Changed), fmt.Sprint(t.Missing),
			fmt.Sprint(t.TooMany), verdict})
	}
	if err := m.printTable("TABLE ROWS EXPECTED CHANGED MISSING TOO-MANY DIGEST", rows); err != nil {
		return err
	}
	if len(r.Differences) > 0 {
		rows = rows[:0]
		for _, d := range r.Differences {
			rows = append(rows, []string{d.Table, orText(d.Key, "-"), orText(d.Column, "-"), d.Problem, shown(d.Expected), shown(d.Found)})
		}
		fmt.Fprintln(m.Out)
		if err := m.printTable("TABLE KEY COLUMN PROBLEM EXPECTED FOUND", rows); err != nil {
			return err
		}
		fmt.Fprintf(m.Out, "\nrows that differ: %d, listed: %d\n", r.Total, r.Listed)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(m.Out, note)
	}
	if len(r.Repaired) > 0 {
		fmt.Fprintf(m.Out, "repaired: %s\n", strings.Join(r.Repaired, ", "))
	}
	fmt.Fprintf(m.Out, "%s events folded and compared in %s\n", grouped(r.Events), r.Took.Round(time.Millisecond))
	return nil
}

// shown is a value of a row; what is long or has line breaks is quoted or cut.
func shown(v *string) string {
	if v == nil {
		return "-"
	}
	const most = 60
	s := *v
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	if s == "" || strings.ContainsAny(s, "\n\t\r ") {
		return fmt.Sprintf("%q", s)
	}
	return s
}
