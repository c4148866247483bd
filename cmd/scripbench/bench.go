package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// options of a benchmark.
type options struct {
	recipes []recipe
	scrip   string // path of the program, "" = search for it
	base    string // where the servers' directories are made, "" = the directory for temporary files
	roles   string // of scrip where it is measured alone, "" = all
	within  time.Duration
	callers int
	n       int // 0 = the workload's own
	runs    int
	warmup  int
	limit   time.Duration
	beside  time.Duration // of restart and tables: how long the latency of claims is measured
	// besideRate is how many claims a second are sent while tables are rebuilt.
	besideRate float64
	rate       rate
	seed       uint64
	// progress is for people who wait.
	progress io.Writer
}

// printf writes a line of progress.
func (o options) printf(format string, args ...any) {
	fmt.Fprintf(o.progress, format+"\n", args...)
}

// rate of an open loop.
type rate struct {
	// perSecond is absolute; share is of the rate of each system's closed-loop run before. Both 0 = closed loop.
	perSecond, share float64
}

func parseRate(text string) (rate, error) {
	if text == "" {
		return rate{}, nil
	}
	digits, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || v <= 0 || percent && v > 100 {
		return rate{}, usageError{fmt.Errorf("--rate %q must be operations a second such as 20000, or a part of the closed loop's rate, such as 50%%", text)}
	}
	if percent {
		return rate{share: v / 100}, nil
	}
	return rate{perSecond: v}, nil
}

func (r rate) String() string {
	switch {
	case r.share > 0:
		return fmt.Sprintf("%g%% of each system's closed loop", r.share*100)
	case r.perSecond > 0:
		return fmt.Sprintf("%g a second", r.perSecond)
	}
	return ""
}

func runCommand() *cobra.Command {
	var f flags
	var systems []string
	for _, r := range recipes {
		systems = append(systems, fmt.Sprintf("  %-14s %s", r.name, r.about))
	}
	cmd := &cobra.Command{
		Use: "run [WORKLOAD...]", Short: "Measure workloads, all if none is named",
		Long: `Measure workloads beside the peers, all workloads if none is named:

` + strings.Join(each(workloads, func(w workload) string { return fmt.Sprintf("  %-14s %s (%s)", w.name, w.about, num(w.n)) }), "\n") + `

Systems, each started on a free port and stopped at the end:

` + strings.Join(systems, "\n") + `

They take turns; a run has --n operations or as many as the system does in the time of --for. The codes that were
answered must be distinct, and the server must hold what was answered, or there is no number. Medians of --runs are
compared, at equal durability only.

Without --rate the loop is closed: a caller sends after it was answered. With it, it is open: each operation has an instant
at which it is to be sent, and its latency counts from there, so that a stall counts for all that were due meanwhile.`,
		Example: `  scripbench run claim-hot
  scripbench run claim-hot --durability interval --systems scrip,redis-x16 --n 100000
  scripbench run claim-request --rate 50% --systems scrip`,
		ValidArgs: each(workloads, workloadName),
	}
	f.add(cmd.Flags())
	f.addSystems(cmd)
	f.addRuns(cmd)
	cmd.Flags().IntVar(&f.callers, "callers", 256, "concurrent callers, unless a system's recipe has a better number")
	cmd.Flags().IntVar(&f.warmup, "warmup", 20_000, "operations of each system that are not measured, before its first run")
	cmd.Flags().DurationVar(&f.limit, "for", 8*time.Second, "how long a run is at most")
	cmd.Flags().StringVar(&f.rateText, "rate", "", "open loop: operations a second, or a part such as 50% of the rate of the system's closed loop")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := workloadsNamed(args)
		if err != nil {
			return err
		}
		durabilities, err := f.ready(cmd)
		if err != nil {
			return err
		}
		if f.recipes, err = named(recipes, func(r recipe) string { return r.name }, f.systems, systemsFlag); err != nil {
			return err
		}
		report := newReport(f.base)
		p := page{w: io.Discard}
		if f.output == "table" {
			p.w = cmd.OutOrStdout()
		}
		p.head(report)
		for _, d := range durabilities {
			err := measure(cmd.Context(), f.options, d, list, func(t Table) error {
				report.Tables = append(report.Tables, t)
				p.printf("")
				if err := tableText(p.w, t); err != nil {
					return err
				}
				return f.keep(report, t.name(), func(w io.Writer) error { return tableText(w, t) })
			})
			if err != nil {
				return err
			}
		}
		return f.finish(cmd, report)
	}
	return cmd
}

// measure measures the workloads at one durability, and calls done with each table as soon as it is complete. Servers are
// new for each workload, so that one does not pay for the data of the one before.
func measure(ctx context.Context, o options, d durability, list []workload, done func(Table) error) error {
	if err := newBench(d, o.scrip).missing(o.recipes); err != nil {
		return err
	}
	for _, w := range list {
		var t Table
		fitting := o.fitting(w)
		err := o.with(ctx, d, fitting, func(b *bench) (err error) {
			t, err = o.table(ctx, b, w, fitting)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s, %s: %w", w.name, d, err)
		}
		if err := done(t); err != nil {
			return err
		}
	}
	return nil
}

// fitting are the recipes that can do a workload.
func (o options) fitting(w workload) (list []recipe) {
	return slices.DeleteFunc(slices.Clone(o.recipes), func(r recipe) bool { return !r.fits(w) })
}

func (o options) table(ctx context.Context, b *bench, w workload, list []recipe) (Table, error) {
	t := Table{Workload: w.name, About: w.about, Unit: w.unit, Durability: b.durability, OpenLoop: o.rate.String(), N: w.n, Load: loadAverage()}
	if o.n > 0 {
		t.N = o.n
	}
	var described []server
	for _, r := range list {
		t.Systems = append(t.Systems, System{Name: r.name, Recipe: r.about})
		if sv := r.server(b); !slices.Contains(described, sv) {
			described = append(described, sv)
			t.Settings = append(t.Settings, r.name+": "+sv.settings())
		}
	}
	closed := make([]float64, len(list))
	for i, r := range list {
		// Warming up loads pages, connections and compiled plans. For an open loop at a share it is a whole run.
		n := min(o.warmup, t.N)
		if o.rate.share > 0 {
			n = t.N
		}
		if n == 0 {
			continue
		}
		m, _, err := o.once(ctx, b, r, newPlan(w, fmt.Sprint("warm", i), n, o.seed), pace{n: n, limit: o.limit})
		if err != nil {
			return t, fmt.Errorf("%s: warming up: %w", r.name, err)
		}
		closed[i] = m.Rate
	}
	for run := range o.runs {
		// Systems take turns, so that a change on the machine affects all of them.
		for i, r := range list {
			p := pace{n: t.N, limit: o.limit, rate: o.rate.perSecond}
			if o.rate.share > 0 {
				p.rate = o.rate.share * closed[i]
			}
			m, inFlight, err := o.once(ctx, b, r, newPlan(w, fmt.Sprint("run", run), t.N, o.seed+uint64(run)), p)
			if err != nil {
				return t, fmt.Errorf("%s: %w", r.name, err)
			}
			o.printf("%s %s %s, run %d of %d: %s %s a second", w.name, b.durability, r.name, run+1, o.runs, thousands(m.Rate), w.unit)
			t.Systems[i].InFlight = inFlight
			t.Systems[i].Runs = append(t.Systems[i].Runs, m)
		}
	}
	t.compare()
	return t, nil
}

// once prepares, drives and checks one run.
func (o options) once(ctx context.Context, b *bench, r recipe, p *plan, at pace) (m Measure, inFlight int, err error) {
	j, err := r.open(ctx, b, p, o.callers)
	if err != nil {
		return m, 0, err
	}
	defer j.close()
	sv := r.server(b)
	if err := sv.settle(ctx); err != nil {
		return m, 0, err
	}
	watch := startMeter(sv.pids()...)
	d, err := drive(ctx, j, at)
	used := watch.stop()
	if err != nil {
		return m, 0, err
	}
	t, err := tallyOf(p, d.answers)
	if err != nil {
		return m, 0, err
	}
	if j.check != nil {
		if err := j.check(ctx, t); err != nil {
			return m, 0, fmt.Errorf("the server's state differs from its answers: %w", err)
		}
	}
	if err := sv.settle(ctx); err != nil { // the next system's run must not pay for it
		return m, 0, err
	}
	seconds := d.took.Seconds()
	return Measure{Done: t.done, Refused: t.refused, Seconds: seconds, Rate: float64(t.done) / seconds, Latency: d.latency, spent: used}, j.inFlight, nil
}

func plotCommand() *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use: "plot FILE.svg REPORT.json...", Short: "Draw reports that -o json or --results wrote", Args: cobra.MinimumNArgs(2),
	}
	cmd.Flags().StringSliceVar(&only, "workload", nil, "some of the workloads, separated by commas; absent = all that were measured")
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
				return fmt.Errorf("%s is no report of scripbench: %w", path, err)
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
