package main

import "slices"

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
	// single has one operation in each request, and --callers of them in flight.
	single
	// alone has one operation in flight.
	alone
)

// workloads in the order in which they are run.
var workloads = []workload{
	{name: "claim-hot", about: "one campaign, one coupon per customer, all at the same time", unit: "claims", n: 500_000, style: bulk, campaigns: 1},
	{name: "claim-spread", about: "the same over 10,000 campaigns (Zipf, s = 1.1)", unit: "claims", n: 500_000, style: bulk, campaigns: 10_000},
	{name: "claim-redeem", about: "each customer claims and redeems at once; counted are pairs", unit: "pairs", n: 200_000, style: bulk, campaigns: 1, redeem: true},
	{name: "claim-request", about: "one claim in each request", unit: "claims", n: 300_000, style: single, campaigns: 1},
	{name: "lonely-claim", about: "one claim at a time", unit: "claims", n: 10_000, style: alone, campaigns: 1},
	{name: "sold-out", about: "a storm on a campaign that has one coupon for a thousand customers", unit: "answers", n: 1_000_000, style: bulk, campaigns: 1, share: 1000},
}

func workloadName(w workload) string { return w.name }

// workloadsNamed finds workloads by name, in the order of the names; all of them if none is named.
func workloadsNamed(names []string) ([]workload, error) {
	list, err := named(workloads, workloadName, names, "%q is no workload; there are %s")
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b workload) int { return slices.Index(names, a.name) - slices.Index(names, b.name) })
	return list, err
}
