package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Restart is the cost of many coupons: memory, the pauses of snapshots, and restarts.
//
//	start empty ── fill ── open loop, snapshots written meanwhile ── SIGTERM, start ── claims ── SIGKILL, start
//	  memory        memory        p99 with and without                 how long, same codes?      how long, same codes?
type Restart struct {
	Durability durability `json:"durability"`
	Settings   string     `json:"settings"`
	Load       string     `json:"load"`
	Rows       []Held     `json:"rows"`
}

// Held is one number of coupons.
type Held struct {
	Campaigns int `json:"campaigns"`
	Claims    int `json:"claims"`
	// FillRate is claims a second while filling; Created is how many seconds it took to create the campaigns.
	FillRate float64 `json:"fill_rate"`
	Created  float64 `json:"created_s"`
	// Private memory in bytes (no file cache, no PostgreSQL) after garbage collection: started empty, filled, and started
	// again with all of it.
	Empty  int64 `json:"empty_bytes"`
	Filled int64 `json:"filled_bytes"`
	Again  int64 `json:"again_bytes"`
	// Rate of the open loop; With and Without are latencies while a snapshot was being written and while none was.
	Rate    float64 `json:"rate"`
	With    Latency `json:"with_snapshot"`
	Without Latency `json:"without_snapshot"`
	During  int     `json:"claims_during_snapshots"`
	// Stopping, ready again after it, and ready again after a kill, in seconds; Since is claims between start and kill.
	Stop      float64 `json:"stop_s"`
	AfterStop float64 `json:"ready_after_stop_s"`
	AfterKill float64 `json:"ready_after_kill_s"`
	Since     int     `json:"claims_before_kill"`
}

// heldSize is campaigns, and coupons claimed of each.
type heldSize struct{ campaigns, coupons int }

func parseHeld(text string) (size heldSize, err error) {
	campaigns, coupons, _ := strings.Cut(text, "x")
	size.campaigns, err = strconv.Atoi(campaigns)
	if err == nil {
		size.coupons, err = strconv.Atoi(coupons)
	}
	if err != nil || size.campaigns < 1 || size.coupons < 1 {
		return size, usageError{fmt.Errorf("--held %q must be campaigns x coupons claimed of each, such as 1x1000000", text)}
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
	return f.command(cmd, "claims between a start and the kill", 300_000, func(ctx context.Context, d durability, r *Report) (func(io.Writer) error, error) {
		var sizes []heldSize
		for _, text := range held {
			size, err := parseHeld(text)
			if err != nil {
				return nil, err
			}
			sizes = append(sizes, size)
		}
		var err error
		r.Restart, err = restart(ctx, f.options, d, sizes)
		return func(w io.Writer) error { return restartText(w, *r.Restart) }, err
	})
}

func restart(ctx context.Context, o options, d durability, sizes []heldSize) (*Restart, error) {
	r := &Restart{Durability: d, Load: loadAverage()}
	for _, size := range sizes {
		err := o.alone(ctx, d, func(b *bench) error {
			r.Settings = b.scrip.settings()
			held, err := o.hold(ctx, b, size)
			r.Rows = append(r.Rows, held)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("with %s campaigns of %s coupons: %w", num(size.campaigns), num(size.coupons), err)
		}
	}
	return r, nil
}

// openLoopShare is the rate at which latency is measured, as a part of the rate of filling.
const openLoopShare = 0.3

// hold measures one row on a server of its own.
func (o options) hold(ctx context.Context, b *bench, size heldSize) (h Held, err error) {
	s := b.scrip
	h = Held{Campaigns: size.campaigns, Claims: size.campaigns * size.coupons, Since: o.n}
	if h.Empty, err = s.resident(ctx); err != nil {
		return h, err
	}
	p := rowPlan(size, h.Claims, o.seed)
	began := time.Now()
	if err := s.create(ctx, p); err != nil {
		return h, err
	}
	h.Created, p.created = time.Since(began).Seconds(), true
	o.printf("restart: %s campaigns created in %.1f s", num(size.campaigns), h.Created)
	filled, err := o.window(ctx, b, p)
	if err != nil {
		return h, fmt.Errorf("filling: %w", err)
	}
	h.FillRate = filled.Rate
	o.printf("restart: %s coupons claimed, %s a second", num(h.Claims), thousands(h.FillRate))
	if h.Filled, err = s.resident(ctx); err != nil {
		return h, err
	}

	h.Rate = openLoopShare * h.FillRate
	late := afterwards(p, "late", h.Claims, int(h.Rate*o.beside.Seconds()), o.seed)
	if err := o.besides(ctx, b, late, &h); err != nil {
		return h, fmt.Errorf("claims beside snapshots: %w", err)
	}
	o.printf("restart: p99 %s while a snapshot is written, %s otherwise", microText(h.With.P99), microText(h.Without.P99))

	if h.Stop, _, h.AfterStop, err = s.restart(ctx, b.durability, time.Minute, nil); err != nil {
		return h, err
	}
	o.printf("restart: stopped in %.1f s, ready after it in %.1f s", h.Stop, h.AfterStop)
	if h.Again, err = s.resident(ctx); err != nil {
		return h, err
	}
	if err := s.sameCodes(ctx, p); err != nil {
		return h, fmt.Errorf("after a clean stop: %w", err)
	}
	more := afterwards(p, "more", h.Claims+late.n, o.n, o.seed)
	if _, err := o.window(ctx, b, more); err != nil {
		return h, err
	}
	if _, _, h.AfterKill, err = s.restart(ctx, b.durability, 0, nil); err != nil {
		return h, err
	}
	o.printf("restart: ready after kill -9 in %.1f s", h.AfterKill)
	for _, claimed := range []*plan{p, late, more} {
		if err := s.sameCodes(ctx, claimed); err != nil {
			return h, fmt.Errorf("after kill -9: %w", err)
		}
	}
	return h, nil
}

// rowPlan claims every coupon of every campaign, one campaign after the other.
func rowPlan(size heldSize, claims int, seed uint64) *plan {
	w := growing
	w.campaigns = size.campaigns
	p := spread(w, "held", claims, size.coupons, seed)
	for i := range p.of {
		p.of[i] = uint32(i / size.coupons)
	}
	if size.campaigns == 1 {
		p.codes[0] = growthRoom
	}
	return p
}

// afterwards claims more of the one campaign, whose lane holds all; where there are many, of a new one.
func afterwards(p *plan, id string, first, n int, seed uint64) *plan {
	next := newPlan(growing, id, n, seed)
	if len(p.names) == 1 {
		next.names, next.id, next.first, next.created = p.names, p.id, first, true
	}
	return next
}

// besides claims at an even pace and keeps latencies apart by whether a snapshot was being written.
func (o options) besides(ctx context.Context, b *bench, p *plan, h *Held) error {
	var writing atomic.Bool
	watched, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		_ = poll(watched, nil, readyEvery, func() error {
			if n, err := b.scrip.metric(watched, "scrip_lane_snapshot_writing"); err == nil {
				writing.Store(n > 0)
			}
			return errWaiting
		})
	})
	with, without := newLatencies(), newLatencies()
	var during atomic.Int64
	before := make([]bool, p.n)
	_, err := o.claimAt(ctx, b, p, pace{n: p.n, limit: 2 * o.beside, rate: h.Rate}, func(i int) { before[i] = writing.Load() }, func(i int, took time.Duration) {
		into := without
		if before[i] || writing.Load() {
			into = with
			during.Add(1)
		}
		into.record(i, took)
	})
	stop()
	watch.Wait()
	p.created = true
	h.With, h.Without, h.During = with.result(), without.result(), int(during.Load())
	return err
}

// claimAt has scrip claim a plan, at a pace, and checks the answers. sent is called before each claim, and answered after
// it with the time since it was to be sent; both may be nil.
func (o options) claimAt(ctx context.Context, b *bench, p *plan, at pace, sent func(i int), answered func(i int, took time.Duration)) (driven, error) {
	j, err := recipes[0].open(ctx, b, p, 1)
	if err != nil {
		return driven{}, err
	}
	defer j.close()
	stream := j.stream
	var began time.Time
	j.stream = func(ctx context.Context, i int, done func(answer)) error {
		if i == 0 {
			began = time.Now()
		}
		if sent != nil {
			sent(i)
		}
		return stream(ctx, i, func(a answer) {
			if answered != nil {
				answered(i, time.Since(began.Add(at.meant(i))))
			}
			done(a)
		})
	}
	d, err := drive(ctx, j, at)
	if err != nil {
		return d, err
	}
	_, err = tallyOf(p, d.answers)
	return d, err
}

// repeats is how many claims of a plan are repeated after a start.
const repeats = 1000

// sameCodes repeats claims of a plan. Each must be answered as a repeat.
func (s *scripServer) sameCodes(ctx context.Context, p *plan) error {
	for i := 0; i < p.n; i += max(1, p.n/repeats) {
		if _, err := s.repeat(ctx, p, i); err != nil {
			return err
		}
	}
	return nil
}

// repeat repeats a claim, which must be answered as a repeat with its code.
func (s *scripServer) repeat(ctx context.Context, p *plan, i int) (wire.Outcome, error) {
	o, err := s.sdk.Claim(ctx, p.campaign(i), p.customer(i))
	if err == nil && (!o.Repeat || o.Code == "") {
		err = fmt.Errorf("%s had a coupon of %s, and the answer is %+v", p.customer(i), p.campaign(i), o)
	}
	return o, err
}
