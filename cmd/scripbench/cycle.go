package main

import (
	"context"
	"fmt"
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
)

// growing are claims of one campaign.
var growing = workload{name: "growing", unit: "claims", style: bulk, campaigns: 1}

// content is what scrip holds in a cycle.
//
//	start empty ── fill ── SIGTERM, start ── known? ── more ── SIGKILL, start ── known?
//	  memory       memory    how long        memory              how long
type content struct {
	name string
	// fill returns how many a second were filled. more adds some between a start and the kill.
	fill func() (rate float64, err error)
	more func() error
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
	again := func(within time.Duration, between func() error) (stopping, ready, known float64, err error) {
		stopping, started, ready, err := restart(ctx, s, within, between)
		if err == nil {
			err = k.known(within == 0)
		}
		return stopping, ready, time.Since(started).Seconds(), err
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

func restartCommand() *cobra.Command {
	var f flags
	var campaigns int
	cmd := &cobra.Command{
		Use: "restart", Short: "Measure memory and restarts with many coupons",
		Long: `Fill scrip and measure its memory, and how long a start takes: after a clean stop, and after kill -9 with claims since the
last snapshot. Claims are repeated after each start and must get the same codes. Only scrip is started.`,
	}
	cmd.Flags().IntVar(&campaigns, "campaigns", 1, "campaigns that the coupons are spread over")
	return f.command(cmd, "coupons claimed", 1_000_000, func(ctx context.Context, d report.Durability) (report.Result, error) {
		if campaigns < 1 || campaigns > f.n {
			return nil, cli.Usagef("--campaigns must be at least 1 and at most --n (%d)", f.n)
		}
		r := &report.Restart{Durability: d, Load: process.Load(), Rows: []report.Held{{Campaigns: campaigns, Claims: f.n, Since: max(1, f.n/10)}}}
		return r, f.alone(ctx, d, func(b *bench) error {
			r.Settings = b.scrip.settings()
			return f.hold(ctx, b, &r.Rows[0])
		})
	})
}

// hold measures one row on a server of its own.
func (o options) hold(ctx context.Context, b *bench, h *report.Held) error {
	w := growing
	w.campaigns = h.Campaigns
	p := emptyPlan(w, "held", h.Claims, (h.Claims+h.Campaigns-1)/h.Campaigns).spread(func(i int) int { return i % h.Campaigns })
	if h.Campaigns == 1 {
		p.codes[0] = growthRoom
	}
	var more *plan
	err := o.cycle(ctx, b, &h.Cycle, content{
		name: "restart",
		fill: func() (float64, error) {
			started := time.Now()
			if err := b.scrip.create(ctx, p); err != nil {
				return 0, err
			}
			h.Created = time.Since(started).Seconds()
			m, err := o.window(ctx, b, p)
			return m.Rate, err
		},
		known: func(kill bool) error {
			err := b.scrip.sameCodes(ctx, p)
			if err == nil && kill {
				err = b.scrip.sameCodes(ctx, more)
			}
			return err
		},
		more: func() error {
			more = emptyPlan(growing, "more", h.Since, h.Since)
			if h.Campaigns == 1 { // of the same campaign, whose lane holds all
				more.names, more.id, more.first, more.created, more.codes = p.names, p.id, h.Claims, true, p.codes
			}
			_, err := o.window(ctx, b, more)
			return err
		},
	})
	h.KnownAfterStop, h.KnownAfterKill = 0, 0 // a lane is ready when it has all; codes are only checked
	return err
}
