package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

const (
	// heldCampaign has heldTimes as many coupons as a run looks up.
	heldCampaign = "held-0"
	heldTimes    = 20
	// The recipes that goals compare, and the bound of their medians' ratio.
	lonelyHTTPName, lonelySDKName, couponName = "claim-http", "claim-sdk", "coupon"
	mostOfClaim                               = 1
)

// lonely is the workload of claims beside look-ups. requested is that of the coupons which are looked up: a message of the log has the
// claims of some hundred callers, and not the thousands of a bulk, of which a history reads the whole message.
var (
	lonely    = workload{name: "lookup-http", unit: "requests", style: alone, campaigns: 1}
	requested = workload{name: "requested", unit: "claims", style: single, campaigns: 1}
)

// lookUps are the recipes of lookup-http, on one server.
var lookUps = []recipe{
	{name: lonelyHTTPName, about: "POST …/claims, one at a time", server: onScrip, open: func(ctx context.Context, b *bench, p *plan) (job, error) {
		return b.scrip.overHTTP(ctx, p, 1, 1)
	}},
	{name: lonelySDKName, about: "the same claims by the Go SDK, over NATS", server: onScrip, open: openScrip},
	{name: couponName, about: "GET /v1/campaigns/{campaign}/coupons/{n}", server: onScrip, open: looking(couponPath, "", `"customer_id":"masked-`)},
	{name: "coupon-history", about: "the same with ?history=1", server: onScrip, open: looking(couponPath, "?history=1", `"what":"claimed"`)},
	{name: "customer", about: "GET /v1/customers/{customer_id}, who has one coupon", server: onScrip, open: looking(customerPath, "", `"campaign":"`+heldCampaign+`"`)},
	{name: "customer-history", about: "the same with ?history=1", server: onScrip, open: looking(customerPath, "?history=1", `"what":"claimed"`)},
}

func lookUpCommand() *cobra.Command {
	return measurement(&cobra.Command{
		Use: "lookup-http", Short: "Measure look-ups over HTTP beside claims, one at a time",
		Long: `Claim ` + strconv.Itoa(heldTimes) + ` times --n coupons of one campaign, wait until the read tables have them, and then send --n requests, each after the
answer to the one before:

` + lines(lookUps, recipe.String) + `

They take turns, --runs times, on one server. Each answer must have what was looked up. Medians of --runs are compared; only scrip
is started.`,
		Example: `  scripbench lookup-http --n 1000 --runs 1`,
	}, 3000, lookUps, func(ctx context.Context, o options, done func(report.Result) error) error {
		o.limit = settleWithin
		t := &report.Table{Head: o.head(lonely.name, o.n), About: "one request at a time", Unit: lonely.unit}
		if err := o.with(ctx, recipes[:1], func(b *bench) error { return o.lookUp(ctx, b, t) }); err != nil {
			return err
		}
		return done(t)
	})
}

// lookUp fills scrip, and has the recipes take turns.
func (o options) lookUp(ctx context.Context, b *bench, t *report.Table) error {
	t.Settings = []string{b.scrip.settings(), fmt.Sprintf("%s coupons are in the tables", report.Num(o.n*heldTimes))}
	if _, err := o.claim(ctx, b, emptyPlan(requested, "held", o.n*heldTimes, o.n*heldTimes)); err != nil {
		return err
	}
	for _, r := range o.recipes {
		t.Systems = append(t.Systems, report.System{Name: r.name, Recipe: r.about})
	}
	for run := -1; run < o.runs; run++ { // -1 warms up
		for i, r := range o.recipes {
			p := newPlan(lonely, fmt.Sprintf("run%d-%d", run+1, i), o.n, 0)
			m, err := o.once(ctx, b, r, p)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			if run < 0 {
				continue
			}
			o.printf("%s %s %s, run %d of %d: median %s", t.Name, t.Durability, r.name, run+1, o.runs, report.Micro(m.Latency.P50))
			t.Systems[i].Runs = append(t.Systems[i].Runs, m)
		}
	}
	report.Compare(t.Systems)
	t.Goals = lookUpGoals(t.Systems)
	return nil
}

// Operation i looks up one of heldTimes coupons: no coupon twice in a run.
func couponPath(i int) string {
	return fmt.Sprintf("/v1/campaigns/%s/coupons/%d", heldCampaign, i*heldTimes+1)
}

func customerPath(i int) string { return "/v1/customers/" + customerID(i*heldTimes) }

// looking returns a recipe's open, which reads a path for each operation. Each answer must have a text.
func looking(path func(i int) string, query, has string) func(context.Context, *bench, *plan) (job, error) {
	return func(ctx context.Context, b *bench, p *plan) (job, error) {
		t, err := b.scrip.target(ctx)
		return t.job(p, 1, 1, func(c *httpCaller) sender {
			return each(func(ctx context.Context, i int) answer {
				status, err := c.get(ctx, path(i)+query)
				switch {
				case err != nil:
					return failure(err)
				case status != http.StatusOK || !bytes.Contains(c.answer.Bytes(), []byte(has)):
					return failure(fmt.Errorf("%s: status %d, and %s is expected: %s", path(i), status, has, c.answer.Bytes()))
				}
				return answer{verdict: won, code: strconv.Itoa(i)}
			})
		}), err
	}
}

// lookUpGoals compares the medians of look-ups with those of lonely claims, as far as they were measured.
func lookUpGoals(systems []report.System) (goals []report.Goal) {
	for _, door := range []string{lonelyHTTPName, lonelySDKName} {
		var claim int64
		for _, s := range systems {
			if s.Name == door {
				claim = s.Median.Latency.P50
			}
		}
		for _, s := range systems {
			if claim == 0 || s.Name == lonelyHTTPName || s.Name == lonelySDKName {
				continue
			}
			g := report.Goal{Is: float64(s.Median.Latency.P50) / float64(claim), Name: fmt.Sprintf("median: %s %s / %s %s", s.Name, report.Micro(s.Median.Latency.P50), door, report.Micro(claim))}
			if s.Name == couponName {
				g.Most = mostOfClaim
			}
			goals = append(goals, g)
		}
	}
	return goals
}
