package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// expirers are the systems that expire coupons, scrip first and the limit last.
var expirers = []dueRecipe{
	{recipe{name: report.Subject, about: "the campaign's end: one event, one row; until the read tables show it", server: onScrip}, expireScrip},
	{recipe{name: "pg-set", about: "one UPDATE of all rows", server: onPostgres}, expirePostgres},
	{recipe{name: "redis-zset", about: "sorted set of due instants; Lua takes out 2,000 and marks each, without a pause", server: onRedis}, expireRedis},
	{recipe{name: "limit", about: "bare JetStream publish of as many bytes as scrip's log grew by", server: onLimit}, publishGrown},
}

const (
	// leastExpired is how many coupons there must be: some are redeemed and some are watched.
	leastExpired = 10
	// probed coupons are redeemed around the instant, watched ones are read in the read tables.
	probed, watched = 500, 100
)

func expireCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: "expire", Short: "Measure how long it takes until readers see that coupons that expire at one instant are expired",
		Long: `Let --n claimed coupons of one campaign expire at one instant, and measure how long after it each system shows every one
of them as expired:

` + lines(expirers, dueRecipe.String) + `

Of scrip these are measured, too: when the first redeem was refused, when the event was on the log, and how much the log
grew. A redeem that was sent at or after the instant and succeeds, and a coupon that shows as expired before it, end the
program with an error. Every coupon is checked afterwards, in every system. Systems take turns, each with the machine to
itself; medians of --runs are compared, at equal durability only.`,
		Example: `  scripbench expire --n 1000000
  scripbench expire --n 100000 --runs 1 --systems scrip,pg-set,redis-zset -o json`,
	}
	return f.dueCommand(cmd, expiring, 10_000_000, expirers, func(*report.Due) (j dueJob, err error) {
		if f.n < leastExpired {
			err = cli.Usagef("--n must be at least %d", leastExpired)
		}
		return dueJob{campaigns: 1}, err
	})
}

var expiring = report.Due{Job: "expire", About: "coupons of one campaign expire at one instant; until a reader sees all of them expired", Unit: "coupons"}

// expireScrip sets the end of a campaign of claimed coupons to an instant. Its work is done when the read tables show it: the
// campaign, its expiry task, and a sample of the coupons.
func expireScrip(ctx context.Context, o options, b *bench, j dueJob) (d dueWork, err error) {
	s, p := b.scrip, newPlan(workload{name: "expire", unit: "claims", style: bulk, campaigns: 1}, "expire", j.n, o.seed)
	if _, err := o.window(ctx, b, p); err != nil {
		return d, fmt.Errorf("claiming: %w", err)
	}
	probes, err := s.coupons(ctx, p, 0, min(probed, j.n/2))
	if err != nil {
		return d, err
	}
	samples, err := s.coupons(ctx, p, j.n/2, min(watched, j.n/2))
	if err != nil {
		return d, err
	}
	ends, err := s.ends(ctx, topology.EvtStream)
	if err != nil {
		return d, err
	}
	d.at, err = aimed(time.Second, func(at time.Time, _ bool) error {
		patch := wire.Patch{Settings: wire.Settings{ExpiresAt: wire.At(at)}}
		patch.Set("expires_at")
		err := s.operate(ctx, p.names, func(int) wire.Command { return wire.Command{Type: wire.UpdateCampaign, Patch: patch} })
		if err != nil {
			return err
		}
		return s.settle(ctx)
	})
	x := expiry{s: s, campaign: p.names[0], n: j.n, at: d.at}
	d.work = func(ctx context.Context, m *report.DueRun) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return x.redeem(ctx, probes) })
		g.Go(func() (err error) {
			m.All, err = x.readTables(ctx, samples)
			return err
		})
		err := g.Wait()
		m.First = x.seen.Refused
		return err
	}
	d.judge = func(ctx context.Context, m *report.DueRun) error {
		m.Scrip = &x.seen
		if err := x.readLog(ctx, ends, j.grown); err != nil {
			return err
		}
		return x.count(ctx)
	}
	return d, err
}

// expiry observes one campaign's end.
type expiry struct {
	s        *scripServer
	campaign string
	n        int
	at       time.Time
	redeemed int // by redeem, before the end
	seen     report.ScripDue
}

// after is an instant as the number of seconds after the end.
func (x *expiry) after(t time.Time) float64 { return t.Sub(x.at).Seconds() }

// redeem redeems one coupon after the other at an even pace, half of them before the end and half after it. A redeem
// sent at or after the end must be refused; one answered before it, not.
func (x *expiry) redeem(ctx context.Context, coupons []wire.Outcome) error {
	type probe struct {
		sent, answered float64
		o              wire.Outcome
		err            error
	}
	probes := make([]probe, len(coupons))
	var inFlight sync.WaitGroup
	first, pace := x.at.Add(-shortly), 2*shortly/time.Duration(len(coupons))
	for i := range probes {
		if err := until(ctx, first.Add(time.Duration(i)*pace)); err != nil {
			return err
		}
		p := &probes[i]
		inFlight.Go(func() {
			p.sent = x.after(time.Now())
			p.o, p.err = x.s.sdk.Redeem(ctx, coupons[i].Code, fmt.Sprint("probe-", i))
			p.answered = x.after(time.Now())
		})
	}
	inFlight.Wait()
	x.seen.Accepted = -shortly.Seconds()
	refused := 0
	for _, p := range probes {
		switch {
		case p.err != nil:
			return fmt.Errorf("redeeming: %w", p.err)
		case p.o.Refused() && p.o.Refusal != wire.Expired:
			return fmt.Errorf("redeeming: refused: %s: %s", p.o.Refusal, p.o.Message)
		case p.o.Refused() && p.answered < 0:
			return fmt.Errorf("a coupon was expired %f s before its end", -p.answered)
		case p.o.Refused():
			if refused++; refused == 1 {
				x.seen.Refused = p.answered
			}
			x.seen.Refused = min(x.seen.Refused, p.answered)
		case p.sent >= 0:
			return fmt.Errorf("a redeem that was sent %f s after the end succeeded", p.sent)
		default:
			x.redeemed++
			x.seen.Accepted = max(x.seen.Accepted, p.sent)
		}
	}
	if refused == 0 {
		return errors.New("no redeem was refused")
	}
	return nil
}

// $1 = campaign   $2 = its end   $3 = numbers of coupons that are not redeemed
const readSQL = `
SELECT c.claimed, c.redeemed, c.expired, coalesce(t.state, 'missing'), coalesce(t.pending, -1), coalesce(t.redeemed, -1), coalesce(t.expired, -1),
       (SELECT count(*) FROM scrip.coupon k WHERE k.campaign = $1 AND k.n = ANY($3) AND k.status = 'expired')
FROM scrip.campaign c LEFT JOIN scrip.expiry_task t ON t.campaign = c.campaign AND t.due_at = $2
WHERE c.campaign = $1`

// readTables polls the read tables until they are right and returns when that was seen. Before the end none may show as
// expired.
func (x *expiry) readTables(ctx context.Context, sample []wire.Outcome) (right float64, err error) {
	numbers := report.Each(sample, func(o wire.Outcome) int64 { return int64(o.N) })
	ctx, cancel := context.WithDeadline(ctx, x.at.Add(settleWithin))
	defer cancel()
	err = process.Poll(ctx, nil, pollEvery, func() error {
		var claimed, redeemed, expired, taskPending, taskRedeemed, taskExpired, sampled int64
		var state string
		err := x.s.db.QueryRow(ctx, readSQL, x.campaign, x.at, numbers).Scan(&claimed, &redeemed, &expired, &state, &taskPending, &taskRedeemed, &taskExpired, &sampled)
		if err != nil {
			return fmt.Errorf("reading the read tables: %w", err)
		}
		right = x.after(time.Now())
		all := int64(x.n)
		switch {
		case right < 0 && (expired > 0 || sampled > 0 || taskExpired > 0):
			return fmt.Errorf("%d coupons show as expired %f s before their end", max(expired, sampled, taskExpired), -right)
		case claimed == all && redeemed+expired == all && expired > 0 && state == "processed" && taskPending == 0 &&
			taskRedeemed == redeemed && taskExpired == expired && sampled == int64(len(numbers)):
			return nil
		}
		return fmt.Errorf("%w: the read tables have %d claimed, %d redeemed, %d expired, task %s with %d, %d, %d, and %d of %d in a sample expired",
			process.ErrWaiting, claimed, redeemed, expired, state, taskPending, taskRedeemed, taskExpired, sampled, len(numbers))
	})
	return right, err
}

// readLog finds the events that announce the end, and fails on a redemption at or after it by lane time.
func (x *expiry) readLog(ctx context.Context, ends []uint64, g *grown) error {
	end, expired, seen := wire.At(x.at), uint64(0), &x.seen
	var ev wire.Event
	err := x.s.tail(ctx, topology.EvtStream, ends, func(m jetstream.Msg, stored time.Time) error {
		announced := false
		for line := range bytes.Lines(m.Data()) {
			if err := wire.ParseEvent(bytes.TrimSuffix(line, []byte{'\n'}), &ev); err != nil {
				return err
			}
			switch {
			case ev.Type == wire.CouponRedeemed && ev.At >= end:
				return fmt.Errorf("the log has a redemption at %s, the end was at %s", ev.At, end)
			case ev.Type == wire.CouponsExpired && ev.Through >= end:
				announced = true
				expired += ev.Count
				seen.Lines++
				seen.Event = x.after(stored)
				g.bytes += len(line)
			}
		}
		if announced {
			seen.Messages++
			seen.Bytes += int64(sizeOf(m))
		}
		return nil
	})
	g.messages += seen.Messages
	if err == nil && expired+uint64(x.redeemed) != uint64(x.n) {
		err = fmt.Errorf("%d coupons expired on the log and %d were redeemed, of %d", expired, x.redeemed, x.n)
	}
	return err
}

// count checks the status of every coupon.
func (x *expiry) count(ctx context.Context) error {
	const sql = `SELECT count(*) FILTER (WHERE status = 'expired'), count(*) FILTER (WHERE status = 'redeemed'), count(*) FROM scrip.coupon WHERE campaign = $1`
	var expired, redeemed, all int
	if err := x.s.db.QueryRow(ctx, sql, x.campaign).Scan(&expired, &redeemed, &all); err != nil {
		return err
	}
	if all != x.n || redeemed != x.redeemed || expired != x.n-x.redeemed {
		return fmt.Errorf("scrip.coupon has %d rows, %d expired, %d redeemed; there were %d coupons, of which %d were redeemed", all, expired, redeemed, x.n, x.redeemed)
	}
	return nil
}
