package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

func runCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: "run [WORKLOAD...]", Short: "Measure workloads, all if none is named",
		Long: `Measure workloads beside the peers, all workloads if none is named:

` + lines(workloads, func(w workload) string { return fmt.Sprintf("  %-14s %s (%s)", w.name, w.about, report.Num(w.n)) }) + `

Systems, each started on a free port and stopped at the end:

` + lines(recipes, recipe.String) + `

They take turns; a run has --n operations or as many as the system does in the time of --for. The codes that were
answered must be distinct, and the server must hold what was answered, or there is no number. Medians of --runs are
compared, at equal durability only.

Without --rate the loop is closed: a caller sends after it was answered. With it, it is open: each operation has an instant
at which it is to be sent, and its latency counts from there, so that a stall counts for all that were due in it.`,
		Example: `  scripbench run claim-hot
  scripbench run claim-hot --durability interval --systems scrip,redis-x16 --n 100000
  scripbench run claim-request --rate 20000 --systems scrip`,
		ValidArgs: report.Each(workloads, workloadName),
	}
	fs := cmd.Flags()
	f.add(fs)
	f.addSystems(fs)
	f.addRuns(fs)
	fs.IntVar(&f.callers, "callers", 256, "concurrent callers, unless a system's recipe has a better number")
	fs.IntVar(&f.warmup, "warmup", 20_000, "operations of each system that are not measured, before its first run")
	fs.DurationVar(&f.limit, "for", 8*time.Second, "how long a run is at most")
	fs.Float64Var(&f.rate, "rate", 0, "open loop: operations a second; 0 = a closed loop")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		list, err := named(workloads, workloadName, args, "%q is no workload; there are %s")
		if err != nil {
			return err
		}
		slices.SortStableFunc(list, func(a, b workload) int { return slices.Index(args, a.name) - slices.Index(args, b.name) })
		if f.rate < 0 {
			return cli.Usagef("--rate must be at least 0, operations a second")
		}
		if f.limit < 10*time.Millisecond {
			return cli.Usagef("--for must be at least 10ms")
		}
		if err := f.ready(cmd); err != nil {
			return err
		}
		if f.recipes, err = named(recipes, recipeName, f.systems, systemsFlag); err != nil {
			return err
		}
		return f.measure(cmd, func(ctx context.Context, d report.Durability, done func(report.Result) error) error {
			return f.workloads(ctx, d, list, done)
		})
	}
	return cmd
}

// workloads measures some at one durability. Servers are new for each, so that one does not pay for the data of the one
// before.
func (o options) workloads(ctx context.Context, d report.Durability, list []workload, done func(report.Result) error) error {
	if err := o.newBench(d).missing(o.recipes); err != nil {
		return err
	}
	for _, w := range list {
		var t *report.Table
		fitting := o.fitting(w)
		err := o.with(ctx, d, fitting, func(b *bench) (err error) {
			t, err = o.table(ctx, b, d, w, fitting)
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

func (o options) table(ctx context.Context, b *bench, d report.Durability, w workload, list []recipe) (*report.Table, error) {
	t := &report.Table{Workload: w.name, About: w.about, Unit: w.unit, Durability: d, N: w.n, Load: process.Load()}
	if o.n > 0 {
		t.N = o.n
	}
	if o.rate > 0 {
		t.OpenLoop = report.Thousands(o.rate) + " a second"
	}
	var described []server
	for _, r := range list {
		t.Systems = append(t.Systems, report.System[report.Measure]{Name: r.name, Recipe: r.about})
		if sv := r.server(b); !slices.Contains(described, sv) {
			described = append(described, sv)
			t.Settings = append(t.Settings, r.name+": "+sv.settings())
		}
	}
	// Warming up loads pages, connections and compiled plans.
	if warmup := min(o.warmup, t.N); warmup > 0 {
		for i, r := range list {
			_, _, err := o.once(ctx, b, r, newPlan(w, fmt.Sprint("warm", i), warmup, o.seed), pace{n: warmup, limit: o.limit})
			if err != nil {
				return t, fmt.Errorf("%s: warming up: %w", r.name, err)
			}
		}
	}
	for run := range o.runs {
		// Systems take turns, so that a change on the machine affects all of them.
		for i, r := range list {
			p := pace{n: t.N, limit: o.limit, rate: o.rate}
			m, inFlight, err := o.once(ctx, b, r, newPlan(w, fmt.Sprintf("run%d-%d", run, i), t.N, o.seed+uint64(run)), p)
			if err != nil {
				return t, fmt.Errorf("%s: %w", r.name, err)
			}
			o.printf("%s %s %s, run %d of %d: %s %s a second", w.name, d, r.name, run+1, o.runs, report.Thousands(m.Rate), w.unit)
			t.Systems[i].InFlight = inFlight
			t.Systems[i].Runs = append(t.Systems[i].Runs, m)
		}
	}
	report.Compare(t.Systems, t.OpenLoop == "") // in an open loop all systems have the rate that --rate sets
	if w.style == overHTTP && t.OpenLoop == "" {
		t.Goals = httpGoals(t.Systems)
	}
	return t, nil
}

// once prepares, drives and checks one run.
func (o options) once(ctx context.Context, b *bench, r recipe, p *plan, at pace) (m report.Measure, inFlight int, err error) {
	j, err := r.open(ctx, b, p, o.callers)
	if err != nil {
		return m, 0, err
	}
	defer j.close()
	sv := r.server(b)
	if err := sv.settle(ctx); err != nil {
		return m, 0, err
	}
	before := process.CPU(sv.pids()[0])
	watch := process.StartMeter(sv.pids()...)
	d, err := drive(ctx, j, at)
	m.Spent = watch.Stop()
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
	m.Done, m.Refused, m.Seconds, m.Latency = t.done, t.refused, d.took.Seconds(), d.latency
	m.Rate = float64(t.done) / m.Seconds
	err = sv.settle(ctx) // the next system's run must not pay for it
	m.ProcessCPU = (process.CPU(sv.pids()[0]) - before).Seconds()
	return m, j.inFlight, err
}

// window runs a whole plan on scrip.
func (o options) window(ctx context.Context, b *bench, p *plan) (report.Measure, error) {
	m, _, err := o.once(ctx, b, recipes[0], p, pace{n: p.n, limit: settleWithin})
	if err == nil && m.Done != p.n {
		err = fmt.Errorf("%d of %d claims were answered", m.Done, p.n)
	}
	return m, err
}
