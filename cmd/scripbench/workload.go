package main

import (
	"fmt"
	"strings"
)

// workload is a job that every system can do.
type workload struct {
	name, says string
	// unit is what is counted, in the plural.
	unit string
	// n is how many operations a run has at most, unless the caller says.
	n int
	// style is how callers ask.
	style style
	// campaigns that the claims are spread over; Zipf if more than one.
	campaigns int
	// redeem says that each code is redeemed as soon as it was given out.
	redeem bool
	// share of the operations that find a code, one in so many; the others are told "sold out". 0 = all.
	share int
}

// style is how a workload's callers ask.
type style uint8

const (
	// crowd has as much under way as the system's best recipe likes.
	crowd style = iota
	// each has one operation in each of --callers requests.
	each
	// alone has one operation under way.
	alone
)

// workloads in the order in which they are run.
var workloads = []workload{
	{name: "claim-hot", says: "one campaign, one coupon per customer, everybody at once", unit: "claims", n: 500_000, style: crowd, campaigns: 1},
	{name: "claim-spread", says: "the same over 10,000 campaigns (Zipf, s = 1.1)", unit: "claims", n: 500_000, style: crowd, campaigns: 10_000},
	{name: "claim-redeem", says: "each customer claims and redeems at once; counted are pairs", unit: "pairs", n: 200_000, style: crowd, campaigns: 1, redeem: true},
	{name: "claim-request", says: "one claim in each request", unit: "claims", n: 300_000, style: each, campaigns: 1},
	{name: "lonely-claim", says: "one claim at a time", unit: "claims", n: 10_000, style: alone, campaigns: 1},
	{name: "sold-out", says: "a storm on a campaign that has one coupon for a thousand customers", unit: "answers", n: 1_000_000, style: crowd, campaigns: 1, share: 1000},
}

// workloadNamed finds workloads by name, all of them if none is named.
func workloadsNamed(names []string) ([]workload, error) {
	if len(names) == 0 {
		return workloads, nil
	}
	var found []workload
	for _, name := range names {
		before := len(found)
		for _, w := range workloads {
			if w.name == name {
				found = append(found, w)
			}
		}
		if len(found) == before {
			return nil, usageError{fmt.Errorf("%q is no workload; there are %s", name, strings.Join(workloadNames(), ", "))}
		}
	}
	return found, nil
}

func workloadNames() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}
