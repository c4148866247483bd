package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
)

// workload is a job that every system can do.
type workload struct {
	name, about string
	// unit is the plural of what is counted.
	unit string
	// n is how many operations a run has at most, unless --n is given.
	n int
	// style is how callers send.
	style style
	// campaigns that the claims are spread over; Zipf if more than one.
	campaigns int
	// redeem: each code is redeemed as soon as it was given out.
	redeem bool
	// share of the operations that get a code, one in so many; the others are refused as sold out. 0 = all.
	share int
}

// style is how a workload's callers send.
type style uint8

const (
	// bulk has as much in flight as is best for the system's recipe.
	bulk style = iota
	// single has one operation in each request.
	single
	// alone has one operation in flight.
	alone
	// overHTTP has claims in requests of HTTP.
	overHTTP
)

// workloads in the order in which they are run.
var workloads = []workload{
	{name: "claim-hot", about: "one campaign, one coupon per customer, all at the same time", unit: "claims", n: 500_000, style: bulk, campaigns: 1},
	{name: "claim-spread", about: "the same over 10,000 campaigns (Zipf, s = 1.1)", unit: "claims", n: 500_000, style: bulk, campaigns: 10_000},
	{name: "claim-redeem", about: "each customer claims and redeems at once; counted are pairs", unit: "pairs", n: 200_000, style: bulk, campaigns: 1, redeem: true},
	{name: "claim-request", about: "one claim in each request", unit: "claims", n: 300_000, style: single, campaigns: 1},
	{name: "claim-http", about: "one claim in each request over HTTP", unit: "claims", n: 100_000, style: overHTTP, campaigns: 1},
	{name: "lonely-claim", about: "one claim at a time", unit: "claims", n: 10_000, style: alone, campaigns: 1},
	{name: "sold-out", about: "a storm on a campaign that has one coupon for a thousand customers", unit: "answers", n: 1_000_000, style: bulk, campaigns: 1, share: 1000},
}

func workloadName(w workload) string { return w.name }

// zipfS is the exponent of claim-spread: the first of 10,000 campaigns gets about a seventh of the claims.
const zipfS = 1.1

// plan is the campaign and the customer of each operation, the same for every system.
type plan struct {
	workload
	// id is the prefix of the campaigns' names, so that runs on one server have different ones.
	id string
	n  int
	// first is how many operations earlier plans had on the same campaigns; created: those exist.
	first   int
	created bool
	// names of the campaigns, and how many coupons each has.
	names []string
	codes []int
	// of is the campaign of each operation, nil if there is one.
	of []uint32
}

// emptyPlan has campaigns of so many coupons, and all claims in the first.
func emptyPlan(w workload, id string, n, coupons int) *plan {
	p := &plan{workload: w, id: id, n: n, codes: slices.Repeat([]int{coupons}, w.campaigns)}
	for i := range w.campaigns {
		p.names = append(p.names, id+"-"+strconv.Itoa(i))
	}
	return p
}

// newPlan draws a plan of n operations. The same seed draws the same.
func newPlan(w workload, id string, n int, seed uint64) *plan {
	p := emptyPlan(w, id, n, 0)
	if w.campaigns == 1 {
		p.codes[0] = n
	} else {
		draw := rand.NewZipf(rand.New(rand.NewPCG(seed, 0)), zipfS, 1, uint64(w.campaigns-1))
		p.spread(func(int) int {
			c := int(draw.Uint64())
			p.codes[c]++
			return c
		})
	}
	for i := range p.codes {
		if w.share > 0 {
			p.codes[i] /= w.share
		}
		p.codes[i] = max(1, p.codes[i]) // a campaign of 0 would wait for imported codes
	}
	return p
}

// spread sets the campaign of each operation.
func (p *plan) spread(campaign func(i int) int) *plan {
	p.of = make([]uint32, p.n)
	for i := range p.of {
		p.of[i] = uint32(campaign(i))
	}
	return p
}

func (p *plan) index(i int) int {
	if p.of == nil {
		return 0
	}
	return int(p.of[i])
}

func (p *plan) campaign(i int) string { return p.names[p.index(i)] }

// customer of operation i: each claims once.
func (p *plan) customer(i int) string { return customerID(p.first + i) }

// order that redeems the coupon of operation i.
func (p *plan) order(i int) string { return "order-" + strconv.Itoa(p.first+i) }

// customerPrefix is what customer ids start with; a number follows.
const customerPrefix = "customer-"

func customerID(i int) string { return customerPrefix + strconv.Itoa(i) }

// coupons is how many there are.
func (p *plan) coupons() (sum int) {
	for _, c := range p.codes {
		sum += c
	}
	return sum
}

// coupon returns the campaign and the number of one coupon after the other; ok is false after the last.
func (p *plan) coupon() func() (c, n int, ok bool) {
	c, n := 0, -1
	return func() (int, int, bool) {
		if n++; n == p.codes[c] {
			c, n = c+1, 0
		}
		return c, n, c < len(p.codes)
	}
}

// code is number n of campaign c at peers, which cannot make codes: as long as one of scrip's.
func code(c, n int) string {
	const symbols = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
	b, v := []byte("____-____-____"), uint64(c)<<32|uint64(n)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] == '_' {
			b[i] = symbols[v&31]
			v >>= 5
		}
	}
	return string(b)
}

// verdict is what became of an operation.
type verdict uint8

const (
	unsent  verdict = iota
	won             // a code, redeemed if the workload redeems
	refused         // sold out
	failed          // an error, or an impossible answer
)

// answer to one operation.
type answer struct {
	code string
	verdict
	// why it failed.
	why error
}

func failure(err error) answer { return answer{verdict: failed, why: err} }

// tally is what was answered in one run.
type tally struct{ done, won, refused, redeemed int }

// tallyOf adds up the answers of a run. It fails on an error, on a code given out twice, and on more or fewer coupons given
// out than there are.
func tallyOf(p *plan, answers []answer) (t tally, err error) {
	codes := make([]string, 0, len(answers))
	for i, a := range answers {
		switch a.verdict {
		case unsent:
			continue
		case won:
			t.won++
			if p.redeem {
				t.redeemed++
			}
			codes = append(codes, a.code)
		case refused:
			t.refused++
		case failed:
			return t, fmt.Errorf("operation %d: %w", i, a.why)
		}
		t.done++
	}
	slices.Sort(codes)
	for i := 1; i < len(codes); i++ {
		if codes[i] == codes[i-1] {
			return t, fmt.Errorf("code %s was given out twice", codes[i])
		}
	}
	if len(codes) > 0 && codes[0] == "" {
		return t, fmt.Errorf("a claim was answered without a code")
	}
	switch most := p.coupons(); {
	case t.won > most:
		return t, fmt.Errorf("%d coupons were given out, there are %d", t.won, most)
	case t.refused > 0 && p.campaigns == 1 && t.won != most:
		return t, fmt.Errorf("%d were refused as sold out, but only %d of %d coupons were given out", t.refused, t.won, most)
	case t.refused > 0 && p.share == 0:
		return t, fmt.Errorf("%d were refused, and there was a coupon for each", t.refused)
	}
	return t, nil
}
