package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/demo"
)

func (m *Main) demoCommand() *cobra.Command {
	var codes, customers uint32
	cmd := &cobra.Command{
		Use: "demo", Short: "Run a flash sale and check three promises", Args: cli.NoArgs,
		Long: `Run a flash sale against the running server, in seconds: 30,000 customers claim 10,000 coupons, many of them twice; some
redeem, some try it twice or too late; reminders fire. Then query the tables with SQL and compare them with the answers: a code
goes to one holder only, a coupon is not redeemed too late or too often, a reminder fires once.

It can be run again: each run creates campaigns with new names. The exit code is 4 if anything differs.`,
	}
	idFlag(cmd, false)
	cmd.Flags().Var(cli.Number(&codes, 10_000, 10, 1_000_000), "codes", "coupons in the sale")
	cmd.Flags().Var(cli.Number(&customers, 30_000, 10, 3_000_000), "customers", "customers who claim one; more than coupons")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if customers <= codes {
			return cli.Usagef("--customers must be greater than --codes")
		}
		s, err := m.connect()
		if err != nil {
			return err
		}
		defer s.close()
		progress := &bar{}
		report, err := demo.Run(cmd.Context(), demo.Options{
			Do: s.Do, PostgresURL: s.server.PostgresURL, Now: m.Clock.Now,
			Suffix: strconv.FormatInt(m.Clock.Now().UnixMilli(), 36), Codes: int(codes), Customers: int(customers),
			Phase: func(name string, steps int) func() {
				progress.end()
				if !m.TerminalErr {
					fmt.Fprintln(m.Err, name)
				}
				progress = m.bar(name, int64(steps), false)
				return progress.step
			},
		})
		progress.end()
		if err != nil {
			return fmt.Errorf("the demo did not complete: %w", explain(err))
		}
		report.Sync = s.server.Sync
		if err := m.printReport(report); err != nil {
			return err
		}
		if !report.OK() {
			return cli.ErrDiffered
		}
		return nil
	}
	return cmd
}

// printReport writes the table of promises.
func (m *Main) printReport(r *demo.Report) error {
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, r)
	}
	var rows [][]string
	for _, p := range r.Promises {
		verdict := "holds"
		if !p.OK {
			verdict = "DIFFERS"
		}
		rows = append(rows, []string{p.Name, p.Expected, orText(p.Answers, "-"), orText(p.SQL, "-"), verdict})
	}
	fmt.Fprintln(m.Out)
	if err := cli.Table(m.Out, "PROMISE EXPECTED ANSWERS SQL VERDICT", rows); err != nil {
		return err
	}
	fmt.Fprintf(m.Out, "\n%d claims, %d a second (sync: %s). Campaigns: %s\n", r.Claims, r.ClaimsPerSecond, orText(r.Sync, "as the NATS server is set"),
		strings.Join(r.Campaigns, " "))
	if r.Note != "" {
		fmt.Fprintf(m.Out, "SQL was not checked: %s\n", r.Note)
	}
	for _, w := range r.Wrong {
		fmt.Fprintf(m.Out, "WRONG: %s\n", w)
	}
	return nil
}
