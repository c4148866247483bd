package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

const (
	// fullStop and pendingStart bound how long a full server takes to stop and to start.
	fullStop, pendingStart = 5 * time.Minute, 30 * time.Minute
	// growthRoom is how many coupons one campaign has: more than are ever claimed.
	growthRoom = 1_000_000_000
	// fewCoupons each campaign has when there are many.
	fewCoupons = 10
	// openLoopShare is the rate at which latency is measured, as a part of the rate of filling.
	openLoopShare = 0.3
)

// growing are claims of one campaign.
var growing = workload{name: "growth", unit: "claims", style: bulk, campaigns: 1}

// content is what scrip holds in a cycle.
//
//	start empty ── fill ── beside ── SIGTERM, start ── known? ── more ── SIGKILL, start ── known?
//	  memory        memory             how long          memory            how long
type content struct {
	name string
	// fill returns how many a second were filled. beside measures the full server, more adds some between a start and the
	// kill.
	fill         func() (rate float64, err error)
	beside, more func() error
	// stopped, which may be nil, is called while the server is stopped.
	stopped func() error
	// known returns when all is there after a start; kill reports whether it was killed.
	known func(kill bool) error
}

// cycle fills scrip, stops it and kills it.
func (o options) cycle(ctx context.Context, b *bench, c *report.Cycle, k content) (err error) {
	s := b.scrip
	if c.Empty, err = s.resident(ctx); err != nil {
		return err
	}
	if c.FillRate, err = k.fill(); err != nil {
		return fmt.Errorf("filling: %w", err)
	}
	if c.Filled, err = s.resident(ctx); err != nil {
		return err
	}
	o.printf("%s: filled, %s a second", k.name, report.Thousands(c.FillRate))
	if err := k.beside(); err != nil {
		return err
	}
	again := func(within time.Duration, between func() error) (stopping, ready, known float64, err error) {
		stopping, began, ready, err := restart(ctx, s, within, between)
		if err == nil {
			err = k.known(within == 0)
		}
		return stopping, ready, time.Since(began).Seconds(), err
	}
	if c.Stop, c.ReadyAfterStop, c.KnownAfterStop, err = again(fullStop, k.stopped); err != nil {
		return fmt.Errorf("after a clean stop: %w", err)
	}
	o.printf("%s: stopped in %.1f s, ready after it in %.1f s, all known in %.1f s", k.name, c.Stop, c.ReadyAfterStop, c.KnownAfterStop)
	if c.Again, err = s.resident(ctx); err != nil {
		return err
	}
	if err := k.more(); err != nil {
		return err
	}
	if _, c.ReadyAfterKill, c.KnownAfterKill, err = again(0, nil); err != nil {
		return fmt.Errorf("after kill -9: %w", err)
	}
	o.printf("%s: ready after kill -9 in %.1f s, all known in %.1f s", k.name, c.ReadyAfterKill, c.KnownAfterKill)
	return nil
}

// heldSize is campaigns, and coupons claimed of each.
type heldSize struct{ campaigns, coupons int }

func parseHeld(text string) (size heldSize, err error) {
	_, err = fmt.Sscanf(text, "%dx%d", &size.campaigns, &size.coupons)
	if err != nil || size.campaigns < 1 || size.coupons < 1 {
		return size, cli.Usagef("--held %q must be campaigns x coupons claimed of each, such as 1x1000000", text)
	}
	return size, nil
}

func restartCommand() *cobra.Command {
	var f flags
	var held []string
	cmd := &cobra.Command{
		Use: "restart", Short: "Measure memory, snapshots and restarts with many coupons",
		Long: `Fill scrip and measure its memory, how long claims wait while a snapshot is written, and how long a start takes: after a
clean stop, and after kill -9 with claims since the last snapshot. Claims are repeated after each start and must get the
same codes. Only scrip is started.`,
	}
	cmd.Flags().StringSliceVar(&held, "held", []string{"1x1000000", "100000x10"}, "campaigns `x` coupons claimed of each, separated by commas")
	cmd.Flags().DurationVar(&f.beside, "beside", 30*time.Second, "how long the latency of claims is measured; within that time a snapshot becomes due")
	return f.command(cmd, "claims between a start and the kill", 300_000, func(ctx context.Context, d report.Durability) (report.Result, error) {
		var sizes []heldSize
		for _, text := range held {
			size, err := parseHeld(text)
			if err != nil {
				return nil, err
			}
			sizes = append(sizes, size)
		}
		return f.restart(ctx, d, sizes)
	})
}

func (o options) restart(ctx context.Context, d report.Durability, sizes []heldSize) (*report.Restart, error) {
	r := &report.Restart{Durability: d, Load: process.Load()}
	for _, size := range sizes {
		h := report.Held{Campaigns: size.campaigns, Claims: size.campaigns * size.coupons, Since: o.n}
		err := o.alone(ctx, d, func(b *bench) error {
			r.Settings = b.scrip.settings()
			return o.hold(ctx, b, size, &h)
		})
		if err != nil {
			return nil, fmt.Errorf("with %s campaigns of %s coupons: %w", report.Num(size.campaigns), report.Num(size.coupons), err)
		}
		h.KnownAfterStop, h.KnownAfterKill = 0, 0 // a lane is ready when it has all; codes are only checked
		r.Rows = append(r.Rows, h)
	}
	return r, nil
}

// hold measures one row on a server of its own.
func (o options) hold(ctx context.Context, b *bench, size heldSize, h *report.Held) error {
	w := growing
	w.campaigns = size.campaigns
	p := emptyPlan(w, "held", h.Claims, size.coupons).spread(func(i int) int { return i / size.coupons })
	if size.campaigns == 1 {
		p.codes[0] = growthRoom
	}
	var late, more *plan
	return o.cycle(ctx, b, &h.Cycle, content{
		name: "restart",
		fill: func() (float64, error) {
			began := time.Now()
			if err := b.scrip.create(ctx, p); err != nil {
				return 0, err
			}
			h.Created = time.Since(began).Seconds()
			m, err := o.window(ctx, b, p)
			return m.Rate, err
		},
		beside: func() error {
			h.Rate = openLoopShare * h.FillRate
			late = afterwards(p, "late", h.Claims, int(h.Rate*o.beside.Seconds()))
			return o.besideSnapshots(ctx, b, late, h)
		},
		known: func(kill bool) error {
			for _, claimed := range []*plan{p, late, more} {
				if claimed != p && !kill {
					break
				}
				if err := b.scrip.sameCodes(ctx, claimed); err != nil {
					return err
				}
			}
			return nil
		},
		more: func() error {
			more = afterwards(p, "more", h.Claims+late.n, o.n)
			_, err := o.window(ctx, b, more)
			return err
		},
	})
}

// afterwards claims more of the one campaign, whose lane holds all; where there are many, of a new one.
func afterwards(p *plan, id string, first, n int) *plan {
	next := emptyPlan(growing, id, n, n)
	if len(p.names) == 1 {
		next.names, next.id, next.first, next.created, next.codes = p.names, p.id, first, true, p.codes
	}
	return next
}

// besideSnapshots claims at an even pace and keeps latencies apart by whether a snapshot was being written.
func (o options) besideSnapshots(ctx context.Context, b *bench, p *plan, h *report.Held) error {
	var writing atomic.Bool
	var during atomic.Int64
	watched, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		_ = process.Poll(watched, nil, pollEvery, func() error {
			if n, err := b.scrip.metric(watched, "scrip_lane_snapshot_writing"); err == nil {
				writing.Store(n > 0)
			}
			return process.ErrWaiting
		})
	})
	with, without := report.NewLatencies(), report.NewLatencies()
	sent := func(int, time.Time) func(time.Duration) {
		before := writing.Load()
		return func(took time.Duration) {
			if before || writing.Load() {
				during.Add(1)
				with.Record(took, 1)
			} else {
				without.Record(took, 1)
			}
		}
	}
	_, _, err := o.claimAt(ctx, b, p, pace{n: p.n, limit: 2 * o.beside, rate: h.Rate, sent: sent})
	stop()
	watch.Wait()
	h.With, h.Without, h.During = with.Result(), without.Result(), int(during.Load())
	o.printf("restart: p99 %s while a snapshot is written, %s otherwise", report.Micro(h.With.P99), report.Micro(h.Without.P99))
	return err
}

func growthCommand() *cobra.Command {
	var f flags
	var full bool
	cmd := &cobra.Command{
		Use: "growth", Short: "Measure claims a second against what is held",
		Long: `Measure how fast scrip claims when many coupons of one campaign have been claimed, and when there are many campaigns.
Only scrip is started.`,
	}
	cmd.Flags().BoolVar(&full, "full", false, "go up to 10,000,000 claimed and 1,000,000 campaigns")
	return f.command(cmd, "claims in each of the windows measured at a level", 300_000, func(ctx context.Context, d report.Durability) (report.Result, error) {
		claimed, campaigns := []int{10_000, 1_000_000}, []int{1, 100, 10_000}
		if full {
			claimed, campaigns = append(claimed, 10_000_000), append(campaigns, 1_000_000)
		}
		return f.growth(ctx, d, claimed, campaigns)
	})
}

func (o options) growth(ctx context.Context, d report.Durability, claimed, campaigns []int) (g *report.Growth, err error) {
	g = &report.Growth{Durability: d, Load: process.Load(), Window: o.n}
	if g.Claimed, err = o.levels(ctx, g, claimed, o.grow); err != nil {
		return nil, err
	}
	g.Campaigns, err = o.levels(ctx, g, campaigns, o.widen)
	return g, err
}

// levels measures windows at each size, on a server of its own. plans are claimed one after the other when held are claimed
// already; the last are the windows.
func (o options) levels(ctx context.Context, g *report.Growth, sizes []int, plans func(held, size int) []*plan) (levels []report.Level, err error) {
	err = o.alone(ctx, g.Durability, func(b *bench) error {
		g.Settings = b.scrip.settings()
		held := 0
		for _, size := range sizes {
			var runs []report.Measure
			for _, p := range plans(held, size) {
				m, err := o.window(ctx, b, p)
				if err != nil {
					return fmt.Errorf("at %s: %w", report.Num(size), err)
				}
				runs = append(runs, m)
			}
			if runs == nil {
				return fmt.Errorf("%s are claimed already; give levels further apart than %d windows", report.Num(held), report.GrowthRuns)
			}
			held = size + report.GrowthRuns*o.n
			l := report.Level{Size: size, Rates: report.Median(runs[len(runs)-report.GrowthRuns:]), OfFirst: 1}
			if levels != nil {
				l.OfFirst = l.Rates.Rate / levels[0].Rates.Rate
			}
			levels = append(levels, l)
			o.printf("growth %s, at %s: %s claims a second", g.Durability, report.Num(size), report.Thousands(l.Rates.Rate))
		}
		return nil
	})
	return levels, err
}

// grow fills one campaign, which has room for all, up to size. Each plan continues where the one before ended.
func (o options) grow(held, size int) (list []*plan) {
	if size < held {
		return nil
	}
	for first, n := held, size-held; len(list) <= report.GrowthRuns; first, n = first+n, o.n {
		p := emptyPlan(growing, "growth", n, growthRoom)
		p.first, p.created = first, first > 0
		list = append(list, p)
	}
	if size == held {
		return list[1:]
	}
	return list
}

// widen has size campaigns and claims spread evenly over them.
func (o options) widen(_, size int) (list []*plan) {
	w := growing
	w.campaigns = size
	for run := range report.GrowthRuns {
		p := evenPlan(w, fmt.Sprint("wide", size), o.n, max(fewCoupons, report.GrowthRuns*4*o.n/size), o.seed+uint64(run))
		p.first, p.created = run*o.n, run > 0
		list = append(list, p)
	}
	return list
}
