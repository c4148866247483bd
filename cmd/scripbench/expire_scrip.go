package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var expiring = workload{name: "expire", unit: "claims", style: bulk, campaigns: 1}

const (
	// probed coupons are redeemed around the instant, watched ones are read in the read tables.
	probed, watched = 500, 100
	// readEvery is how often the read tables are read, validateEvery how often a coupon is validated.
	readEvery, validateEvery = 20 * time.Millisecond, 2 * time.Millisecond
)

// expireScrip sets the end of a campaign of claimed coupons to an instant. It ends when the read tables show it: the
// campaign, its expiry task, and a sample of the coupons.
func expireScrip(ctx context.Context, o options, b *bench, j dueJob) (m DueRun, err error) {
	s, p := b.scrip, newPlan(expiring, "expire", j.n, o.seed)
	if _, err := o.window(ctx, b, p); err != nil {
		return m, fmt.Errorf("claiming: %w", err)
	}
	o.printf("expire: %s coupons claimed", num(j.n))
	probes, err := s.coupons(ctx, p, 0, min(probed, j.n/2))
	if err != nil {
		return m, err
	}
	samples, err := s.coupons(ctx, p, j.n/2, min(watched, j.n/2))
	if err != nil {
		return m, err
	}
	ends, err := s.ends(ctx, topology.EvtStream)
	if err != nil {
		return m, err
	}
	at, err := aimed(time.Second, func(at time.Time, _ bool) error {
		patch := wire.Patch{Settings: wire.Settings{ExpiresAt: wire.At(at)}}
		patch.Set("expires_at")
		if err := s.operate(ctx, p.names, func(int) wire.Command {
			return wire.Command{Type: wire.UpdateCampaign, Patch: patch}
		}); err != nil {
			return err
		}
		return s.settle(ctx)
	})
	if err != nil {
		return m, err
	}

	x := expiry{s: s, campaign: p.names[0], n: j.n, at: at, seen: ScripDue{}}
	m, err = measured(ctx, s, at, func(ctx context.Context) (DueRun, error) {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return x.redeem(ctx, probes) })
		g.Go(func() error { return x.validate(ctx, samples[0].Code) })
		var right float64
		g.Go(func() (err error) {
			right, err = x.readTables(ctx, samples)
			return err
		})
		err := g.Wait()
		return DueRun{Done: j.n, First: x.seen.Refused, All: right}, err
	})
	if err != nil {
		return m, err
	}
	if err := x.readLog(ctx, ends, j.grown); err != nil {
		return m, err
	}
	m.Scrip = &x.seen
	return m, x.count(ctx)
}

// expiry observes one campaign's end.
type expiry struct {
	s        *scripServer
	campaign string
	n        int
	at       time.Time
	redeemed int // by redeem, before the end
	seen     ScripDue
}

// coupons repeats the claims of some coupons of a plan, from that one on.
func (s *scripServer) coupons(ctx context.Context, p *plan, from, n int) (list []wire.Outcome, err error) {
	for i := range n {
		o, err := s.repeat(ctx, p, from+i)
		if err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

// after is an instant as the number of seconds after the end.
func (x *expiry) after(t time.Time) float64 { return t.Sub(x.at).Seconds() }

// redeem redeems one coupon after the other at an even pace, half of them before the end and half after it. A redeem
// sent at or after the end must be refused; one answered before it, not.
func (x *expiry) redeem(ctx context.Context, coupons []wire.Outcome) error {
	type probe struct {
		sent, answered time.Time
		o              wire.Outcome
		err            error
	}
	probes := make([]probe, len(coupons))
	var inFlight sync.WaitGroup
	begin, pace := x.at.Add(-shortly), 2*shortly/time.Duration(len(coupons))
	for i := range probes {
		if err := until(ctx, begin.Add(time.Duration(i)*pace)); err != nil {
			return err
		}
		probe := &probes[i]
		inFlight.Add(1)
		probe.sent = time.Now()
		cmd := wire.Command{Type: wire.Redeem, Code: coupons[i].Code, OrderID: fmt.Sprint("probe-", i)}
		if err := x.s.sdk.DoAsync(ctx, cmd, func(o wire.Outcome, err error) {
			probe.answered, probe.o, probe.err = time.Now(), o, err
			inFlight.Done()
		}); err != nil {
			return err
		}
	}
	inFlight.Wait()
	x.seen.Accepted = -shortly.Seconds()
	refused := false
	for i := range probes {
		p := &probes[i]
		switch sent, answered := x.after(p.sent), x.after(p.answered); {
		case p.err != nil:
			return fmt.Errorf("redeeming: %w", p.err)
		case p.o.Refused() && p.o.Refusal != wire.Expired:
			return fmt.Errorf("redeeming: refused: %s: %s", p.o.Refusal, p.o.Message)
		case p.o.Refused() && answered < 0:
			return fmt.Errorf("a coupon was expired %f s before its end", -answered)
		case p.o.Refused():
			if !refused || answered < x.seen.Refused {
				x.seen.Refused = answered
			}
			refused = true
		case sent >= 0:
			return fmt.Errorf("a redeem that was sent %f s after the end succeeded", sent)
		default:
			x.redeemed++
			x.seen.Accepted = max(x.seen.Accepted, sent)
		}
	}
	if !refused {
		return errors.New("no redeem was refused")
	}
	return nil
}

// validate sends one validate query after the other until one is refused.
func (x *expiry) validate(ctx context.Context, code string) error {
	ctx, cancel := context.WithDeadline(ctx, x.at.Add(patience))
	defer cancel()
	return poll(ctx, nil, validateEvery, func() error {
		o, err := x.s.sdk.Validate(ctx, code, "")
		switch x.seen.Validated = x.after(time.Now()); {
		case err != nil:
			return fmt.Errorf("validating: %w", err)
		case !o.Refused():
			return fmt.Errorf("%w: the coupon is valid", errWaiting)
		case x.seen.Validated < 0 || o.Refusal != wire.Expired:
			return fmt.Errorf("validating %f s after the end: refused: %s: %s", x.seen.Validated, o.Refusal, o.Message)
		}
		return nil
	})
}

// $1 = campaign   $2 = its end   $3 = numbers of coupons that are not redeemed
const readSQL = `
SELECT c.claimed, c.redeemed, c.expired, coalesce(t.state, 'missing'), coalesce(t.pending, -1), coalesce(t.redeemed, -1), coalesce(t.expired, -1),
       (SELECT count(*) FROM scrip.coupon k WHERE k.campaign = $1 AND k.n = ANY($3) AND k.status = 'expired')
FROM scrip.campaign c LEFT JOIN scrip.expiry_task t ON t.campaign = c.campaign AND t.due_at = $2
WHERE c.campaign = $1`

// readTables polls the read tables until they are right and returns when that was seen. Before the end none may show as expired.
func (x *expiry) readTables(ctx context.Context, sample []wire.Outcome) (right float64, err error) {
	numbers := each(sample, func(o wire.Outcome) int64 { return int64(o.N) })
	ctx, cancel := context.WithDeadline(ctx, x.at.Add(settleWithin))
	defer cancel()
	err = poll(ctx, nil, readEvery, func() error {
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
			errWaiting, claimed, redeemed, expired, state, taskPending, taskRedeemed, taskExpired, sampled, len(numbers))
	})
	return right, err
}

// readLog finds the events that announce the end, and fails on a redemption at or after it by lane time.
func (x *expiry) readLog(ctx context.Context, ends []uint64, g *grown) error {
	end, expired := wire.At(x.at), uint64(0)
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
				x.seen.Lines++
				x.seen.Event = x.after(stored)
				g.bytes += len(line)
			}
		}
		if announced {
			x.seen.Messages++
			x.seen.Bytes += int64(sizeOf(m))
		}
		return nil
	})
	if err != nil {
		return err
	}
	g.messages, g.lines = g.messages+x.seen.Messages, g.lines+x.seen.Lines
	if expired+uint64(x.redeemed) != uint64(x.n) {
		return fmt.Errorf("%d coupons expired on the log and %d were redeemed, of %d", expired, x.redeemed, x.n)
	}
	return nil
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
