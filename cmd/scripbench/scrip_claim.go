package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

const (
	// sdkInFlight is how many claims of one lane the SDK has in flight at most, by default.
	sdkInFlight = 32_768
	// callers are those of a request for each claim and, unless its recipe has a better number, of a peer; pairCallers send a
	// claim and its redemption, and wait for each.
	callers, pairCallers = 256, 4096
	// requestConns is how many connections share the callers of claim-request.
	requestConns = 4
	// creating is how many campaigns are created or updated at once.
	creating = 4096
)

// openScrip creates the plan's campaigns and claims by the SDK: in bulk by DoAsync from one goroutine, else by callers
// that wait. In claim-request every claim is a NATS request of its own, in claim-http one of HTTP.
func openScrip(ctx context.Context, b *bench, p *plan) (job, error) {
	s := b.scrip
	if p.style == overHTTP {
		return s.overHTTP(ctx, p, httpCallers, 1)
	}
	if err := s.create(ctx, p); err != nil {
		return job{}, err
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
	case p.style == bulk:
		j.callers = pairCallers
	default:
		j.callers = 1
	}
	j.inFlight = j.callers
	j.caller = func(context.Context, int) (caller, error) {
		return caller{send: each(func(ctx context.Context, i int) answer { return s.claim(ctx, p, i) })}, nil
	}
	return j, nil
}

// create makes the campaigns of a plan, unless they exist.
func (s *scripServer) create(ctx context.Context, p *plan) error {
	if p.created {
		return nil
	}
	p.created = true
	return s.operate(ctx, p.names, func(i int) wire.Command {
		return wire.Command{Type: wire.CreateCampaign, Patch: wire.PatchOf(wire.DefaultSettings(uint32(p.codes[i])))}
	})
}

// operate sends a command to each of the campaigns, many at once. None may be refused.
func (s *scripServer) operate(ctx context.Context, names []string, command func(i int) wire.Command) error {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(creating)
	for i, name := range names {
		g.Go(func() error {
			cmd := command(i)
			cmd.Campaign = name
			o, err := s.sdk.Do(ctx, cmd)
			if err == nil && o.Refused() {
				err = errors.New(o.Message)
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", cmd.Type, name, err)
			}
			return nil
		})
	}
	return g.Wait()
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
		return failure(errRepeat)
	}
	return answer{verdict: won, code: o.Code}
}

var errRepeat = errors.New("answered as a repeat, without a repeated claim")

// claim claims, and redeems if the workload does.
func (s *scripServer) claim(ctx context.Context, p *plan, i int) answer {
	a := claimed(s.sdk.Claim(ctx, p.campaign(i), p.customer(i)))
	if a.verdict == won && p.redeem {
		o, err := s.sdk.Redeem(ctx, a.code, p.order(i), client.Campaign(p.campaign(i)))
		if err == nil && o.Refused() {
			err = fmt.Errorf("redeeming %s: %s", a.code, o.Message)
		}
		if err != nil {
			return failure(err)
		}
	}
	return a
}

// requests sends each claim as a request of its own to the NATS service.
func (s *scripServer) requests(p *plan, j job, callers int) (job, error) {
	var conns []*nats.Conn
	j.close = func() {
		for _, nc := range conns {
			nc.Close()
		}
	}
	for range min(requestConns, callers) {
		nc, err := nats.Connect(s.desc.NATSURL, nats.Name("scripbench requests"))
		if err != nil {
			j.close()
			return job{}, err
		}
		conns = append(conns, nc)
	}
	j.callers, j.inFlight = callers, callers
	j.caller = func(_ context.Context, i int) (caller, error) {
		nc := conns[i%len(conns)]
		return caller{send: each(func(ctx context.Context, i int) answer {
			body := fmt.Appendf(nil, `{"customer_id":%q}`, p.customer(i))
			if p.style == overHTTP {
				body = fmt.Appendf(nil, `{"id":%q,"customer_id":%q}`, p.commandID(i), p.customer(i))
			}
			reply, err := nc.RequestWithContext(ctx, "scrip.claim."+p.campaign(i), body)
			if err != nil {
				return failure(err)
			}
			o, err := wire.ParseOutcome(reply.Data)
			if code := reply.Header.Get("Nats-Service-Error"); code != "" {
				err = errors.New(code)
			}
			return claimed(o, err)
		})}, nil
	}
	return j, nil
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
	if all := uint64(p.first + t.won); claimed != all || redeemed != uint64(t.redeemed) {
		return fmt.Errorf("scrip has %d coupons claimed and %d redeemed, answered were %d and %d", claimed, redeemed, all, t.redeemed)
	}
	return nil
}

// repeats is how many claims of a plan are repeated after a start.
const repeats = 1000

// sameCodes repeats claims of a plan. Each must be answered as a repeat with its code.
func (s *scripServer) sameCodes(ctx context.Context, p *plan) error {
	for i := 0; i < p.n; i += max(1, p.n/repeats) {
		o, err := s.sdk.Claim(ctx, p.campaign(i), p.customer(i))
		if err == nil && (!o.Repeat || o.Code == "") {
			err = fmt.Errorf("%s had a coupon of %s, and the answer is %+v", p.customer(i), p.campaign(i), o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
