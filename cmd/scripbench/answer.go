package main

import (
	"fmt"
	"slices"
)

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
type tally struct {
	done, won, refused int
	codes              []string
}

// redeemed is how many coupons must be redeemed after the run.
func (t tally) redeemed(p *plan) int {
	if p.redeem {
		return t.won
	}
	return 0
}

// tallyOf adds up the answers of a run. It fails on an error, on a code given out twice, and on more or fewer coupons given
// out than there are.
func tallyOf(p *plan, answers []answer) (tally, error) {
	var t tally
	t.codes = make([]string, 0, len(answers))
	for i := range answers {
		switch a := &answers[i]; a.verdict {
		case unsent:
			continue
		case won:
			t.won++
			t.codes = append(t.codes, a.code)
		case refused:
			t.refused++
		case failed:
			return t, fmt.Errorf("operation %d: %w", i, a.why)
		}
		t.done++
	}
	slices.Sort(t.codes)
	for i := 1; i < len(t.codes); i++ {
		if t.codes[i] == t.codes[i-1] {
			return t, fmt.Errorf("code %s was given out twice", t.codes[i])
		}
	}
	if len(t.codes) > 0 && t.codes[0] == "" {
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

func (p *plan) coupons() (sum int) {
	for _, c := range p.codes {
		sum += c
	}
	return sum
}
