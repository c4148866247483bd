package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// options of a benchmark.
type options struct {
	recipes []recipe
	scrip   string // path of the program, "" = look for it
	base    string // where the servers' directories are made, "" = the one for temporary files
	callers int
	n       int // 0 = the workload's own
	runs    int
	warmup  int
	limit   time.Duration
	beside  time.Duration // of restart: how long claims are watched beside snapshots
	rate    rate
	seed    uint64
	// progress is told what is going on.
	progress io.Writer
}

// rate of an open loop.
type rate struct {
	// perSecond is absolute; share is of the median of closed-loop runs made before, for each system its own. Both 0 =
	// closed loop.
	perSecond, share float64
}

func parseRate(text string) (rate, error) {
	if text == "" {
		return rate{}, nil
	}
	digits, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || v <= 0 || percent && v > 100 {
		return rate{}, usageError{fmt.Errorf("--rate %q must be operations a second such as 20000, or a part of what the closed loop did, such as 50%%", text)}
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

// bench measures the workloads at one durability. Tables are handed out as they are ready.
func bench(ctx context.Context, o options, d durability, list []workload, each func(Table) error) (err error) {
	st := newStand(d, o.scrip)
	if err := st.missing(o.recipes); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.down()) }()
	for i, w := range list {
		// Servers are made anew for each workload, so that one does not pay for what the one before left behind.
		if i > 0 {
			if err := st.down(); err != nil {
				return err
			}
			scrip := st.scrip.binary
			st = newStand(d, scrip)
			if err := st.missing(o.recipes); err != nil {
				return err
			}
		}
		t, err := o.table(ctx, st, w)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", w.name, d, err)
		}
		if err := each(t); err != nil {
			return err
		}
	}
	return nil
}

// fitting are the recipes that can do a workload.
func (o options) fitting(w workload) (list []recipe) {
	for _, r := range o.recipes {
		if r.fits(w) {
			list = append(list, r)
		}
	}
	return list
}

func (o options) table(ctx context.Context, st *stand, w workload) (Table, error) {
	list := o.fitting(w)
	t := Table{Workload: w.name, Says: w.says, Unit: w.unit, Durability: st.durability, OpenLoop: o.rate.String(), N: w.n, Load: loadAverage()}
	if o.n > 0 {
		t.N = o.n
	}
	if err := st.up(ctx, o.base, list); err != nil {
		return t, err
	}
	for _, r := range list {
		t.Systems = append(t.Systems, System{Name: r.name, Recipe: r.says})
		if said := r.name + ": " + r.server(st).settings(); r.name == subject || r.name == "limit" || r.name == "redis" || r.name == "pg-skip-locked" {
			t.Settings = append(t.Settings, said)
		}
	}
	closed := make([]float64, len(list))
	for i, r := range list {
		// What is not measured brings pages, connections and compiled plans in. An open loop of a share needs to know
		// the whole.
		n, limit := min(o.warmup, t.N), o.limit
		if o.rate.share > 0 {
			n = t.N
		}
		if n == 0 {
			continue
		}
		m, _, err := o.once(ctx, st, r, newPlan(w, fmt.Sprint("warm", i), n, o.seed), pace{n: n, limit: limit})
		if err != nil {
			return t, fmt.Errorf("%s: warming up: %w", r.name, err)
		}
		closed[i] = m.Rate
	}
	for run := range o.runs {
		// Systems take turns: what changes on the machine meanwhile meets all of them.
		for i, r := range list {
			p := pace{n: t.N, limit: o.limit, rate: o.rate.perSecond}
			if o.rate.share > 0 {
				p.rate = o.rate.share * closed[i]
			}
			m, inFlight, err := o.once(ctx, st, r, newPlan(w, fmt.Sprint("run", run), t.N, o.seed+uint64(run)), p)
			if err != nil {
				return t, fmt.Errorf("%s: %w", r.name, err)
			}
			fmt.Fprintf(o.progress, "%s %s %s, run %d of %d: %s %s a second\n", w.name, st.durability, r.name, run+1, o.runs, thousands(m.Rate), w.unit)
			t.Systems[i].InFlight = inFlight
			t.Systems[i].Runs = append(t.Systems[i].Runs, m)
		}
	}
	for i := range t.Systems {
		t.Systems[i].Median = median(t.Systems[i].Runs)
	}
	t.compare()
	return t, nil
}

// once prepares, drives and checks one run.
func (o options) once(ctx context.Context, st *stand, r recipe, p *plan, at pace) (m Measure, inFlight int, err error) {
	j, err := r.open(ctx, st, p, o.callers)
	if err != nil {
		return m, 0, err
	}
	defer j.close()
	sv := r.server(st)
	if err := sv.settle(ctx); err != nil {
		return m, 0, err
	}
	watch := startMeter(sv.pid())
	d, err := drive(ctx, j, at)
	server, own, others, memory := watch.stop()
	if err != nil {
		return m, 0, err
	}
	t, err := count(p, d.answers)
	if err != nil {
		return m, 0, fmt.Errorf("a wrong answer: %w", err)
	}
	if j.check != nil {
		if err := j.check(ctx, t); err != nil {
			return m, 0, fmt.Errorf("the server disagrees with its answers: %w", err)
		}
	}
	if err := sv.settle(ctx); err != nil { // the next system's run is not to pay for it
		return m, 0, err
	}
	return Measure{
		Done: t.done, Refused: t.refused, Seconds: d.took.Seconds(), Rate: float64(t.done) / d.took.Seconds(), Latency: d.latency,
		ServerCPU: server.Seconds(), ClientCPU: own.Seconds(), OthersCPU: others.Seconds(), Memory: memory,
	}, j.inFlight, nil
}
