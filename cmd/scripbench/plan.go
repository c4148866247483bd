package main

import (
	"math/rand/v2"
	"strconv"
)

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

// emptyPlan has names for the campaigns, no coupons and no claims yet.
func emptyPlan(w workload, id string, n int) *plan {
	p := &plan{workload: w, id: id, n: n, names: make([]string, w.campaigns), codes: make([]int, w.campaigns)}
	for i := range p.names {
		p.names[i] = id + "-" + strconv.Itoa(i)
	}
	return p
}

// newPlan draws a plan of n operations. The same seed draws the same.
func newPlan(w workload, id string, n int, seed uint64) *plan {
	p := emptyPlan(w, id, n)
	if w.campaigns == 1 {
		p.codes[0] = n
	} else {
		p.of = make([]uint32, n)
		draw := rand.NewZipf(rand.New(rand.NewPCG(seed, 0)), zipfS, 1, uint64(w.campaigns-1))
		for i := range p.of {
			c := uint32(draw.Uint64())
			p.of[i] = c
			p.codes[c]++
		}
	}
	for i := range p.codes {
		if w.share > 0 {
			p.codes[i] /= w.share
		}
		p.codes[i] = max(1, p.codes[i]) // a campaign of 0 would wait for imported codes
	}
	return p
}

// spread is a plan with the claims drawn evenly over the campaigns, each with that many coupons.
func spread(w workload, id string, n, coupons int, seed uint64) *plan {
	p := emptyPlan(w, id, n)
	for i := range p.codes {
		p.codes[i] = coupons
	}
	p.of = make([]uint32, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range p.of {
		p.of[i] = uint32(r.IntN(w.campaigns))
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
func (p *plan) customer(i int) string { return "customer-" + strconv.Itoa(p.first+i) }

// order that redeems the coupon of operation i.
func (p *plan) order(i int) string { return "order-" + strconv.Itoa(p.first+i) }

// code is number n of campaign c at peers, which cannot make codes: as long as one of scrip's.
func code(c, n int) string {
	const symbols = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
	var b [14]byte
	v := uint64(c)<<32 | uint64(n)
	for i := len(b) - 1; i >= 0; i-- {
		if i == 4 || i == 9 {
			b[i] = '-'
			continue
		}
		b[i] = symbols[v&31]
		v >>= 5
	}
	return string(b[:])
}
