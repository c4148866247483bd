package main

import (
	"context"
	"fmt"
	"io"
)

// Growth is how scrip's speed changes with what it holds.
type Growth struct {
	Durability durability `json:"durability"`
	Settings   string     `json:"settings"`
	Load       string     `json:"load"`
	// Window is how many claims each rate is measured over.
	Window int `json:"window"`
	// Claimed is one campaign with so many coupons claimed before; Campaigns the same number of claims drawn evenly over
	// so many campaigns of ten coupons.
	Claimed   []Level `json:"claimed"`
	Campaigns []Level `json:"campaigns"`
}

// Level is one place on the curve.
type Level struct {
	// Size is coupons claimed, or campaigns there are.
	Size    int     `json:"size"`
	Rates   Measure `json:"median"`
	OfFirst float64 `json:"of_the_first"` // part of the first level's rate
}

// growthRuns windows are measured at each level, one behind the other.
const growthRuns = 3

// coupons of each campaign when there are many.
const fewCoupons = 10

func growth(ctx context.Context, o options, d durability, claimed, campaigns []int) (g Growth, err error) {
	g = Growth{Durability: d, Load: loadAverage(), Window: o.n}
	if g.Claimed, err = o.levels(ctx, &g, d, claimed, o.grow); err != nil {
		return g, err
	}
	g.Campaigns, err = o.levels(ctx, &g, d, campaigns, o.widen)
	return g, err
}

// levels measures on a server of its own.
func (o options) levels(ctx context.Context, g *Growth, d durability, sizes []int, measure func(context.Context, *stand, int, int) (Measure, error)) (levels []Level, err error) {
	err = o.alone(ctx, d, func(st *stand) error {
		g.Settings = st.scrip.settings()
		held := 0
		for _, size := range sizes {
			m, err := measure(ctx, st, held, size)
			if err != nil {
				return fmt.Errorf("at %s: %w", thousands(float64(size)), err)
			}
			held = size + growthRuns*o.n
			l := Level{Size: size, Rates: m, OfFirst: 1}
			if len(levels) > 0 {
				l.OfFirst = m.Rate / levels[0].Rates.Rate
			}
			levels = append(levels, l)
			fmt.Fprintf(o.progress, "growth %s, at %s: %s claims a second\n", d, thousands(float64(size)), thousands(m.Rate))
		}
		return nil
	})
	return levels, err
}

var growing = workload{name: "growth", unit: "claims", style: crowd, campaigns: 1}

// grow fills one campaign from what is claimed already up to size and measures the next windows.
func (o options) grow(ctx context.Context, st *stand, held, size int) (Measure, error) {
	// All plans speak of one campaign with room for everybody; each goes on where the one before ended.
	part := func(first, n int) *plan {
		p := newPlan(growing, "growth", n, o.seed)
		p.first, p.created, p.codes[0] = first, first > 0, growthRoom
		return p
	}
	if size < held {
		return Measure{}, fmt.Errorf("%s are claimed already; give levels further apart than %d windows", thousands(float64(held)), growthRuns)
	}
	if size > held {
		if _, err := o.window(ctx, st, part(held, size-held)); err != nil {
			return Measure{}, fmt.Errorf("filling up: %w", err)
		}
	}
	var runs []Measure
	for run := range growthRuns {
		m, err := o.window(ctx, st, part(size+run*o.n, o.n))
		if err != nil {
			return Measure{}, err
		}
		runs = append(runs, m)
	}
	return median(runs), nil
}

// growthRoom is how many coupons the campaign has: more than are ever claimed.
const growthRoom = 1_000_000_000

// widen creates size campaigns and measures claims spread evenly over them.
func (o options) widen(ctx context.Context, st *stand, _, size int) (Measure, error) {
	w := growing
	w.campaigns = size
	coupons := max(fewCoupons, growthRuns*4*o.n/size)
	var runs []Measure
	for run := range growthRuns {
		p := spread(w, fmt.Sprint("wide", size), o.n, coupons, o.seed+uint64(run))
		p.first, p.created = run*o.n, run > 0
		m, err := o.window(ctx, st, p)
		if err != nil {
			return Measure{}, err
		}
		runs = append(runs, m)
	}
	return median(runs), nil
}

// window has a plan done from its beginning to its end.
func (o options) window(ctx context.Context, st *stand, p *plan) (Measure, error) {
	m, _, err := o.once(ctx, st, recipes[0], p, pace{n: p.n, limit: settleWithin})
	if err == nil && (m.Done != p.n) {
		err = fmt.Errorf("%d of %d claims were answered", m.Done, p.n)
	}
	return m, err
}

// growthText is a growth run for people.
func growthText(w io.Writer, g Growth) error {
	fmt.Fprintf(w, "growth: claims a second against what is held\ndurability: %s\n%s\nmedians of %d windows of %s claims; load average before: %s\n",
		g.Durability.label(), g.Settings, growthRuns, thousands(float64(g.Window)), g.Load)
	for _, part := range []struct {
		name   string
		levels []Level
	}{{"CLAIMED IN ONE CAMPAIGN", g.Claimed}, {"CAMPAIGNS", g.Campaigns}} {
		if len(part.levels) == 0 {
			continue
		}
		fmt.Fprintln(w)
		rows := [][]string{{part.name, "CLAIMS/S", "OF THE FIRST", "P50", "P99", "SERVER CPU", "MEMORY", ""}}
		for _, l := range part.levels {
			m := l.Rates
			rows = append(rows, []string{thousands(float64(l.Size)), thousands(m.Rate), fmt.Sprintf("%.0f%%", l.OfFirst*100),
				microText(m.Latency.P50), microText(m.Latency.P99), perOperation(m.ServerCPU, m.Done), mebibytes(m.Memory), ""})
		}
		if err := columns(w, rows); err != nil {
			return err
		}
	}
	return nil
}
