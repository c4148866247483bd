package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/rebuild"
)

func (m *Main) verifyCommand() *cobra.Command {
	var opts rebuild.VerifyOptions
	var limit uint32
	var postgres string
	cmd := &cobra.Command{
		Use: "verify", Short: "Compare the read tables with the log", Args: cli.NoArgs,
		Long: `Compare the read tables with the log: fold the log up to the tables' checkpoint into a separate schema (scrip_scratch,
dropped at the end), compare digests per table and campaign in one database snapshot, then the rows of digests that differ.
It finds any changed, missing or extra row in any table, a checkpoint ahead of the log, and a log that lost its end.
Without --campaign it also compares the definitions of indexes, constraints, the view and functions.
A changed row is listed with a line per changed column, and counted once; a missing table or column, or a damaged
checkpoint, counts as one row.

The tables in use are only read; while it runs, PostgreSQL keeps old versions of their rows. With --repair, the rows of
campaigns that differ are replaced by those folded from the log, in one transaction, and nothing else is changed. A damaged
checkpoint, or a missing table or column, needs ` + "`scrip rebuild`" + `.

It needs the rights of the owner of schema scrip, and space for a second set of tables; with --campaign, for that campaign.
` + needsServers + `

Exit codes: 0 nothing differs, or all of it was repaired; 4 differences found; 1 failed, 2 wrong usage, 3 refused.
Refused with -o json, it prints {"status":"refused","refusal":"not_begun","message":…}.`,
	}
	unusedIDFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&opts.Campaign, "campaign", "", "compare only the campaign of this `NAME`")
	f.BoolVar(&opts.Repair, "repair", false, "replace the rows that differ")
	f.Var(cli.Number(&limit, 100, 1, 1_000_000), "limit", "how many rows that differ to list, each with all of its changed columns; all are counted")
	postgresFlag(cmd, &postgres)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("campaign") && opts.Campaign == "" {
			return cli.Usagef("--campaign needs a name")
		}
		opts.Limit = int(limit)
		return m.onTables(cmd.Context(), rebuild.Options{Who: "scrip verify"}, postgres, func(ctx context.Context, s *rebuild.Session) error {
			report, err := s.Verify(ctx, opts)
			if report != nil && (err == nil || !report.Equal()) {
				if printing := m.printVerified(report); printing != nil {
					return printing
				}
			}
			switch {
			case err != nil:
				return err
			case !report.Equal() && !opts.Repair:
				return cli.ErrDiffered
			}
			return nil
		})
	}
	return cmd
}

// printVerified prints the report.
func (m *Main) printVerified(r *rebuild.Report) error {
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, r)
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
	if err := cli.Table(m.Out, "TABLE ROWS EXPECTED CHANGED MISSING TOO-MANY DIGEST", rows); err != nil {
		return err
	}
	if len(r.Differences) > 0 {
		rows = rows[:0]
		for _, d := range r.Differences {
			rows = append(rows, []string{d.Table, orText(d.Key, "-"), orText(d.Column, "-"), d.Problem, shown(d.Expected), shown(d.Found)})
		}
		fmt.Fprintln(m.Out)
		if err := cli.Table(m.Out, "TABLE KEY COLUMN PROBLEM EXPECTED FOUND", rows); err != nil {
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

// shown is a value of a row: quoted if it has white space, cut if it is long.
func shown(v *string) string {
	if v == nil {
		return "-"
	}
	s := wire.Shorten(*v, 60)
	if s == "" || strings.ContainsAny(s, "\n\t\r ") {
		return fmt.Sprintf("%q", s)
	}
	return s
}
