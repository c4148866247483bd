package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
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

// Level is one point of the curve.
type Level struct {
	// Size is coupons claimed, or campaigns.
	Size    int     `json:"size"`
	Rates   Measure `json:"median"`
	OfFirst float64 `json:"of_the_first"` // part of the first level's rate
}

const (
	// growthRuns windows are measured at each level, one after the other.
	growthRuns = 3
	// fewCoupons each campaign has when there are many.
	fewCoupons = 10
	// growthRoom is how many coupons one campaign has: more than are ever claimed.
	growthRoom = 1_000_000_000
)

func growthCommand() *cobra.Command {
	var f flags
	var full bool
	cmd := &cobra.Command{
		Use: "growth", Short: "Measure claims a second against what is held",
		Long: `Measure how fast scrip claims when many coupons of one campaign have been claimed, and when there are many campaigns.
Only scrip is started.`,
	}
	cmd.Flags().BoolVar(&full, "full", false, "go up to 10,000,000 claimed and 1,000,000 campaigns")
	return f.command(cmd, "claims in each of the windows measured at a level", 300_000, func(ctx context.Context, d durability, r *Report) (func(io.Writer) error, error) {
		claimed, campaigns := []int{10_000, 1_000_000}, []int{1, 100, 10_000}
		if full {
			claimed, campaigns = append(claimed, 10_000_000), append(campaigns, 1_000_000)
		}
		g, err := growth(ctx, f.options, d, claimed, campaigns)
		r.Growth = &g
		return func(w io.Writer) error { return growthText(w, g) }, err
	})
}

func growth(ctx context.Context, o options, d durability, claimed, campaigns []int) (g Growth, err error) {
	g = Growth{Durability: d, Load: loadAverage(), Window: o.n}
	if g.Claimed, err = o.levels(ctx, &g, d, claimed, o.grow); err != nil {
		return g, err
	}
	g.Campaigns, err = o.levels(ctx, &g, d, campaigns, o.widen)
	return g, err
}

// levels measures on a server of its own.
func (o options) levels(ctx context.Context, g *Growth, d durability, sizes []int, measure func(context.Context, *bench, int, int) (Measure, error)) (levels []Level, err error) {
	err = o.alone(ctx, d, func(b *bench) error {
		g.Settings = b.scrip.settings()
		held := 0
		for _, size := range sizes {
			m, err := measure(ctx, b, held, size)
			if err != nil {
				return fmt.Errorf("at %s: %w", num(size), err)
			}
			held = size + growthRuns*o.n
			levels = append(levels, Level{Size: size, Rates: m})
			l := &levels[len(levels)-1]
			l.OfFirst = m.Rate / levels[0].Rates.Rate
			o.printf("growth %s, at %s: %s claims a second", d, num(size), thousands(m.Rate))
		}
		return nil
	})
	return levels, err
}

var growing = workload{name: "growth", unit: "claims", style: bulk, campaigns: 1}

// grow fills one campaign up to size, where held are claimed already, and measures the next windows.
func (o options) grow(ctx context.Context, b *bench, held, size int) (Measure, error) {
	// All plans are for one campaign with room for all; each continues where the one before ended.
	part := func(first, n int) *plan {
		p := newPlan(growing, "growth", n, o.seed)
		p.first, p.created, p.codes[0] = first, first > 0, growthRoom
		return p
	}
	if size < held {
		return Measure{}, fmt.Errorf("%s are claimed already; give levels further apart than %d windows", num(held), growthRuns)
	}
	if size > held {
		if _, err := o.window(ctx, b, part(held, size-held)); err != nil {
			return Measure{}, fmt.Errorf("filling: %w", err)
		}
	}
	return o.windows(ctx, b, func(run int) *plan { return part(size+run*o.n, o.n) })
}

// widen creates size campaigns and measures claims spread evenly over them.
func (o options) widen(ctx context.Context, b *bench, _, size int) (Measure, error) {
	w := growing
	w.campaigns = size
	coupons := max(fewCoupons, growthRuns*4*o.n/size)
	return o.windows(ctx, b, func(run int) *plan {
		p := spread(w, fmt.Sprint("wide", size), o.n, coupons, o.seed+uint64(run))
		p.first, p.created = run*o.n, run > 0
		return p
	})
}

func (o options) windows(ctx context.Context, b *bench, plan func(run int) *plan) (Measure, error) {
	var runs []Measure
	for run := range growthRuns {
		m, err := o.window(ctx, b, plan(run))
		if err != nil {
			return m, err
		}
		runs = append(runs, m)
	}
	return median(runs), nil
}

// window runs a whole plan.
func (o options) window(ctx context.Context, b *bench, p *plan) (Measure, error) {
	m, _, err := o.once(ctx, b, recipes[0], p, pace{n: p.n, limit: settleWithin})
	if err == nil && m.Done != p.n {
		err = fmt.Errorf("%d of %d claims were answered", m.Done, p.n)
	}
	return m, err
}
