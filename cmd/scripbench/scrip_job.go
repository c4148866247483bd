package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

const (
	// sdkInFlight is how many claims of one lane the SDK has in flight at most, by default.
	sdkInFlight = 32_768
	// pairsPerCaller: callers that wait send a claim and its redemption; in bulk there are so many times --callers.
	pairsPerCaller = 16
	// requestConns is how many connections share the callers of claim-request.
	requestConns = 4
	// creating is how many campaigns are created or updated at once.
	creating = 4096
)

// openScrip creates the plan's campaigns and claims by the SDK: in bulk by DoAsync from one goroutine, else by callers
// that wait. In claim-request every claim is a NATS request of its own.
func openScrip(ctx context.Context, b *bench, p *plan, callers int) (job, error) {
	s := b.scrip
	if !p.created {
		if err := s.create(ctx, p); err != nil {
			return job{}, err
		}
	}
	j := job{check: func(ctx context.Context, t tally) error { return s.given(ctx, p, t) }, close: func() {}, batch: 1}
	switch {
	case p.style == bulk && !p.redeem:
		j.inFlight = min(p.n, sdkInFlight*min(s.desc.Lanes, len(p.names)))
		j.stream = func(ctx context.Context, i int, done func(answer)) error {
			cmd := wire.Command{Type: wire.Claim, Campaign: p.campaign(i), CustomerID: p.customer(i)}
			return s.sdk.DoAsync(ctx, cmd, func(o wire.Outcome, err error) { done(claimed(o, err)) })
		}
		return j, nil
	case p.style == single:
		return s.requests(p, j, callers)
	}
	j.callers = 1
	if p.style == bulk {
		j.callers = callers * pairsPerCaller
	}
	j.inFlight = j.callers
	j.caller = func(context.Context, int) (caller, error) { return sdkCaller{s, p}, nil }
	return j, nil
}

// create makes the campaigns of a plan.
func (s *scripServer) create(ctx context.Context, p *plan) error {
	return s.operate(ctx, p.names, func(i int) wire.Command {
		return wire.Command{Type: wire.CreateCampaign, Patch: wire.PatchOf(wire.DefaultSettings(uint32(p.codes[i])))}
	})
}

// operate sends a command to each of the campaigns, many at once. None may be refused.
func (s *scripServer) operate(ctx context.Context, names []string, command func(i int) wire.Command) error {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	var wg sync.WaitGroup
	var problem atomic.Pointer[error]
	slots := make(chan struct{}, creating)
	for i, name := range names {
		cmd := command(i)
		cmd.Campaign = name
		slots <- struct{}{}
		wg.Add(1)
		err := s.sdk.DoAsync(ctx, cmd, func(o wire.Outcome, err error) {
			if err == nil && o.Refused() {
				err = errors.New(o.Message)
			}
			if err != nil {
				problem.Store(&err)
			}
			<-slots
			wg.Done()
		})
		if err != nil {
			return fmt.Errorf("%s %s: %w", cmd.Type, name, err)
		}
	}
	wg.Wait()
	if err := problem.Load(); err != nil {
		return fmt.Errorf("%d campaigns, %s: %w", len(names), command(0).Type, *err)
	}
	return nil
}

// claimed is the answer of an outcome.
func claimed(o wire.Outcome, err error) answer {
	switch {
	case err != nil:
		return failure(err)
	case o.Refusal == wire.SoldOut:
		return answer{verdict: refused}
	case o.Refused():
		return failure(fmt.Errorf("refused: %s: %s", o.Refusal, o.Message))
	case o.Repeat:
		return failure(errors.New("answered as a repeat, without a repeated claim"))
	}
	return answer{verdict: won, code: o.Code}
}

// sdkCaller claims, and redeems if the workload does, one by one.
type sdkCaller struct {
	s *scripServer
	p *plan
}

func (c sdkCaller) close() {}

func (c sdkCaller) send(ctx context.Context, from, to int, answers []answer) error {
	for i := from; i < to; i++ {
		a := claimed(c.s.sdk.Claim(ctx, c.p.campaign(i), c.p.customer(i)))
		if a.verdict == won && c.p.redeem {
			o, err := c.s.sdk.Redeem(ctx, a.code, c.p.order(i))
			if err == nil && o.Refused() {
				err = fmt.Errorf("redeeming %s: %s", a.code, o.Message)
			}
			if err != nil {
				a = failure(err)
			}
		}
		answers[i] = a
	}
	return nil
}

// requests sends each claim as a request of its own to the NATS service.
func (s *scripServer) requests(p *plan, j job, callers int) (job, error) {
	conns := make([]*nats.Conn, min(requestConns, callers))
	j.close = func() {
		for _, nc := range conns {
			if nc != nil {
				nc.Close()
			}
		}
	}
	for i := range conns {
		var err error
		if conns[i], err = nats.Connect(s.desc.NATSURL, nats.Name("scripbench requests")); err != nil {
			j.close()
			return job{}, err
		}
	}
	j.callers, j.inFlight = callers, callers
	j.caller = func(_ context.Context, i int) (caller, error) { return requestCaller{conns[i%len(conns)], p}, nil }
	return j, nil
}

type requestCaller struct {
	nc *nats.Conn
	p  *plan
}

func (c requestCaller) close() {}

func (c requestCaller) send(ctx context.Context, from, to int, answers []answer) error {
	for i := from; i < to; i++ {
		body := append([]byte(`{"customer_id":"`), c.p.customer(i)...)
		reply, err := c.nc.RequestWithContext(ctx, "scrip.claim."+c.p.campaign(i), append(body, `"}`...))
		if err != nil {
			return err
		}
		o, err := wire.ParseOutcome(reply.Data)
		if code := reply.Header.Get("Nats-Service-Error"); code != "" {
			err = errors.New(code)
		}
		answers[i] = claimed(o, err)
	}
	return nil
}

// given compares the answers with the coupons that the lane's owner, or for many campaigns the read tables, has as claimed.
func (s *scripServer) given(ctx context.Context, p *plan, t tally) error {
	var claimed, redeemed uint64
	if len(p.names) == 1 {
		v, err := s.sdk.Campaign(ctx, p.names[0])
		if err != nil {
			return err
		}
		claimed, redeemed = uint64(v.Claimed), uint64(v.Redeemed)
	} else {
		if err := s.settle(ctx); err != nil {
			return err
		}
		// $1 = prefix of the names of this run
		const sql = `SELECT coalesce(sum(claimed), 0)::bigint, coalesce(sum(redeemed), 0)::bigint FROM scrip.campaign WHERE starts_with(campaign, $1)`
		if err := s.db.QueryRow(ctx, sql, p.id+"-").Scan(&claimed, &redeemed); err != nil {
			return err
		}
	}
	want := uint64(t.redeemed(p))
	if all := uint64(p.first + t.won); claimed != all || redeemed != want {
		return fmt.Errorf("scrip has %d coupons claimed and %d redeemed, answered were %d and %d", claimed, redeemed, all, want)
	}
	return nil
}
