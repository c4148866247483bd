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
	cmd := &cobra.Command{
		Use: "run [WORKLOAD...]", Short: "Measure workloads, all if none is named",
		Long: `Measure workloads beside the peers, all workloads if none is named:

` + lines(workloads, func(w workload) string { return fmt.Sprintf("  %-14s %s (%s)", w.name, w.about, report.Num(w.n)) }) + `

Systems, each started on a free port and stopped at the end:

` + lines(recipes, recipe.String) + `

They take turns; a run has --n operations or as many as the system does in the time of --for. The codes that were
answered must be distinct, and the server must hold what was answered, or there is no number. Medians of --runs are
compared, at equal durability only. A caller sends after it was answered.`,
		Example: `  scripbench run claim-hot
  scripbench run claim-hot --durability interval --systems scrip,redis-x16 --n 100000`,
		ValidArgs: report.Each(workloads, workloadName),
	}
	limit := cmd.Flags().Duration("for", 8*time.Second, "how long a run is at most")
	var list []workload
	cmd.Args = func(_ *cobra.Command, args []string) (err error) {
		if list, err = named(workloads, workloadName, args, "%q is no workload; there are %s"); err != nil {
			return err
		}
		slices.SortStableFunc(list, func(a, b workload) int { return slices.Index(args, a.name) - slices.Index(args, b.name) })
		if *limit < 10*time.Millisecond {
			return cli.Usagef("--for must be at least 10ms")
		}
		return nil
	}
	return measurement(cmd, 0, recipes, func(ctx context.Context, o options, done func(report.Result) error) error {
		o.limit = *limit
		for _, w := range list {
			t, err := o.table(ctx, w)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", w.name, o.durability, err)
			}
			if err := done(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// fitting are the recipes that can do a workload.
func (o options) fitting(w workload) (list []recipe) {
	return slices.DeleteFunc(slices.Clone(o.recipes), func(r recipe) bool { return !r.fits(w) })
}

// warmup is how many operations each system has before its first run. They load pages, connections and compiled plans.
const warmup = 20_000

// table measures a workload. Its servers are new, so that it does not pay for the data of the one before.
func (o options) table(ctx context.Context, w workload) (*report.Table, error) {
	if o.n == 0 {
		o.n = w.n
	}
	t := &report.Table{Head: o.head(w.name, o.n), About: w.about, Unit: w.unit}
	list := o.fitting(w)
	return t, o.with(ctx, list, func(b *bench) error {
		for i, r := range list {
			t.Systems = append(t.Systems, report.System{Name: r.name, Recipe: r.about})
			described := func(before recipe) bool { return before.server(b) == r.server(b) }
			if !slices.ContainsFunc(list[:i], described) {
				t.Settings = append(t.Settings, r.name+": "+r.server(b).settings())
			}
			if _, err := o.once(ctx, b, r, newPlan(w, fmt.Sprint("warm", i), min(warmup, o.n), 0)); err != nil {
				return fmt.Errorf("%s: warming up: %w", r.name, err)
			}
		}
		for run := range o.runs {
			// Systems take turns, so that a change on the machine affects all of them.
			for i, r := range list {
				m, err := o.once(ctx, b, r, newPlan(w, fmt.Sprintf("run%d-%d", run, i), o.n, uint64(run)))
				if err != nil {
					return fmt.Errorf("%s: %w", r.name, err)
				}
				o.printf("%s %s %s, run %d of %d: %s %s a second", w.name, o.durability, r.name, run+1, o.runs, report.Thousands(m.Rate), w.unit)
				t.Systems[i].Runs = append(t.Systems[i].Runs, m)
			}
		}
		report.Compare(t.Systems)
		if w.style == overHTTP {
			t.Goals = httpGoals(t.Systems)
		}
		return nil
	})
}

// once prepares, drives and checks one run.
func (o options) once(ctx context.Context, b *bench, r recipe, p *plan) (m report.Run, err error) {
	j, err := r.open(ctx, b, p)
	if err != nil {
		return m, err
	}
	defer j.close()
	sv := r.server(b)
	if err := sv.settle(ctx); err != nil {
		return m, err
	}
	before := process.CPU(sv.pids()[0])
	watch := process.StartMeter(sv.pids()...)
	d, err := drive(ctx, j, p.n, o.limit)
	m.Spent = watch.Stop()
	if err != nil {
		return m, err
	}
	t, err := tallyOf(p, d.answers)
	if err != nil {
		return m, err
	}
	if j.check != nil {
		if err := j.check(ctx, t); err != nil {
			return m, fmt.Errorf("the server's state differs from its answers: %w", err)
		}
	}
	m.Done, m.Refused, m.Seconds, m.Latency, m.InFlight = t.done, t.refused, d.took.Seconds(), d.latency, j.inFlight
	m.Rate = float64(t.done) / m.Seconds
	err = sv.settle(ctx) // the next system's run must not pay for it
	m.ProcessCPU = (process.CPU(sv.pids()[0]) - before).Seconds()
	return m, err
}

// claim has scrip claim a whole plan and returns how many claims a second were answered.
func (o options) claim(ctx context.Context, b *bench, p *plan) (rate float64, err error) {
	o.limit = settleWithin
	m, err := o.once(ctx, b, recipes[0], p)
	if err == nil && m.Done != p.n {
		err = fmt.Errorf("%d of %d claims were answered", m.Done, p.n)
	}
	return m.Rate, err
}
