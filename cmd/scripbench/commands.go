package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func runCommand() *cobra.Command {
	var f flags
	var names []string
	for _, w := range workloads {
		names = append(names, fmt.Sprintf("  %-14s %s (%s)", w.name, w.says, thousands(float64(w.n))))
	}
	var systems []string
	for _, r := range recipes {
		systems = append(systems, fmt.Sprintf("  %-14s %s", r.name, r.says))
	}
	cmd := &cobra.Command{
		Use: "run [WORKLOAD...]", Short: "Measure workloads, all if none is named",
		Long: `Measure workloads beside the peers, all workloads if none is named:

` + strings.Join(names, "\n") + `

Systems, each started on a free port and stopped at the end:

` + strings.Join(systems, "\n") + `

They take turns; each is asked for --n operations or as many as it does in the time of --for. The codes that were
answered must be distinct, and the server must hold what was answered, or there is no number. Medians of --runs are
compared, at equal durability only.

Without --rate the loop is closed: callers ask when they were answered. With it, it is open: operations have an instant
at which they are to be sent and their latency counts from there, so that a stall is seen by all who came meanwhile.`,
		Example: `  scripbench run claim-hot
  scripbench run claim-hot --durability interval --systems scrip,redis-x16 --n 100000
  scripbench run claim-request --rate 50% --systems scrip`,
		ValidArgs: workloadNames(),
	}
	f.add(cmd.Flags(), string(always))
	cmd.Flags().StringSliceVar(&f.systems, "systems", nil, "some of the systems, with commas between; absent = all")
	cmd.Flags().IntVar(&f.callers, "callers", 256, "how many ask at once, where a system's recipe says nothing better")
	cmd.Flags().IntVar(&f.runs, "runs", 3, "runs of each system")
	cmd.Flags().IntVar(&f.warmup, "warmup", 20_000, "operations of each system that are not measured, before its first run")
	cmd.Flags().DurationVar(&f.limit, "for", 8*time.Second, "how long a run is at most")
	cmd.Flags().StringVar(&f.rateText, "rate", "", "open loop: operations a second, or a part such as 50% of what the system's closed loop did")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := workloadsNamed(args)
		if err != nil {
			return err
		}
		durabilities, err := f.ready(cmd)
		if err != nil {
			return err
		}
		report := newReport(f.base)
		out := cmd.OutOrStdout()
		if f.output == "table" {
			headText(out, report)
		}
		for _, d := range durabilities {
			err := bench(cmd.Context(), f.options, d, list, func(t Table) error {
				report.Tables = append(report.Tables, t)
				if f.output == "table" {
					fmt.Fprintln(out)
					if err := tableText(out, t); err != nil {
						return err
					}
				}
				return f.keep(report, t.name(), func(w *os.File) error { return tableText(w, t) })
			})
			if err != nil {
				return err
			}
		}
		return f.finish(cmd, report)
	}
	return cmd
}

func growthCommand() *cobra.Command {
	var f flags
	var full bool
	cmd := &cobra.Command{
		Use: "growth", Short: "Measure claims a second against what is held", Args: cobra.NoArgs,
		Long: `Measure how fast scrip claims when much has been claimed already in one campaign, and when there are many campaigns.
Nothing else is measured: only scrip is started.`,
	}
	f.add(cmd.Flags(), string(always))
	f.callers, f.runs, f.limit = 1, growthRuns, settleWithin
	cmd.Flags().Lookup("n").Usage = "claims in each of the windows measured at a level; 0 = 300,000"
	cmd.Flags().BoolVar(&full, "full", false, "go up to 10,000,000 claimed and 1,000,000 campaigns")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := f.readyForOne(cmd, "growth is")
		if err != nil {
			return err
		}
		if f.n == 0 {
			f.n = 300_000
		}
		claimed, campaigns := growthLevels(full)
		report := newReport(f.base)
		g, err := growth(cmd.Context(), f.options, d, claimed, campaigns)
		if err != nil {
			return err
		}
		report.Growth = &g
		return f.show(cmd, report, func(w io.Writer) error { return growthText(w, g) })
	}
	return cmd
}

// growthLevels are coupons claimed and campaigns at which is measured.
func growthLevels(full bool) (claimed, campaigns []int) {
	claimed, campaigns = []int{10_000, 1_000_000}, []int{1, 100, 10_000}
	if full {
		claimed, campaigns = append(claimed, 10_000_000), append(campaigns, 1_000_000)
	}
	return claimed, campaigns
}

func plotCommand() *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use: "plot FILE.svg REPORT.json...", Short: "Draw what -o json or --results has written", Args: cobra.MinimumNArgs(2),
	}
	cmd.Flags().StringSliceVar(&only, "workload", nil, "some of the workloads, with commas between; absent = all that were measured")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if _, err := workloadsNamed(only); err != nil {
			return err
		}
		var all Report
		for _, path := range args[1:] {
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var r Report
			if err := json.Unmarshal(raw, &r); err != nil {
				return fmt.Errorf("%s is not what scripbench writes: %w", path, err)
			}
			for _, t := range r.Tables {
				if len(only) == 0 || slices.Contains(only, t.Workload) {
					all.Tables = append(all.Tables, t)
				}
			}
			if r.Growth != nil {
				all.Growth = r.Growth
			}
		}
		return drawFile(args[0], all)
	}
	return cmd
}
