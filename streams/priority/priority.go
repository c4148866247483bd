// Package priority decides what goes first where more waits than can be done: the priorities of campaigns, and the shares that
// they get. The scheduler shares its requests by it, a push sender its calls.
//
//	high    ─┐
//	normal  ─┼── Shares ──> 8 : 3 : 1, the higher one first
//	low     ─┘
//
// Owner: who has the Shares. A crash loses the credits, and all start equal.
package priority

import "github.com/seed-4a2410e3/scrip/domain/wire"

// Priority is a campaign's. Snapshots hold its number.
type Priority uint8

const (
	High Priority = iota
	Normal
	Low
	// Again is for what failed before, at a push sender. No campaign has it.
	Again

	// Campaigns is how many priorities campaigns have; All counts Again, too.
	Campaigns = Again
	All       = Again + 1
)

var (
	names   = [All]string{wire.PriorityHigh, wire.PriorityNormal, wire.PriorityLow, "again"}
	weights = [All]int{8, 3, 1, 1}
)

func (p Priority) String() string { return names[p] }

// Of reads a campaign's setting, or the header of a message. What is neither high nor low is normal.
func Of(setting string) Priority {
	if p, ok := Parse(setting); ok && p < Campaigns {
		return p
	}
	return Normal
}

// Parse reads what String returns.
func Parse(name string) (p Priority, ok bool) {
	for p, known := range names {
		if known == name {
			return Priority(p), true
		}
	}
	return 0, false
}

// Shares divides what can be done among the priorities that wait: one that has credit goes, the higher one first, and pays what
// it costs. When none that waits has credit, a round starts: high gets eight parts, normal three, low one. So where all wait they
// get 8 : 3 : 1, each gets its part of every round, and without competition one gets everything at once. What cost more than there
// was is paid in later rounds. A priority that does not wait saves no credit, and when none waits no debt is left.
type Shares struct {
	// Part is the credit of weight 1 in a round.
	Part   int
	credit [All]int
}

// Next returns the priority that goes next; false if none waits.
func (s *Shares) Next(waits func(Priority) bool) (Priority, bool) {
	var waiting [All]bool
	some := false
	for p := range All {
		if waiting[p] = waits(p); waiting[p] {
			some = true
		} else {
			s.credit[p] = min(s.credit[p], 0)
		}
	}
	if !some {
		s.credit = [All]int{}
		return 0, false
	}
	for {
		for p := range All {
			if waiting[p] && s.credit[p] > 0 {
				return p, true
			}
		}
		for p := range All {
			if waiting[p] {
				s.credit[p] += weights[p] * s.Part
			}
		}
	}
}

// Pay takes what the one that goes costs.
func (s *Shares) Pay(p Priority, cost int) { s.credit[p] -= cost }
