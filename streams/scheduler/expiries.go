package scheduler

import "github.com/seed-4a2410e3/scrip/domain"

// expiries knows the own expiry of every coupon of a campaign that has one: a reminder of kind expires hangs on it. Four
// bytes a coupon, in pages; a page of coupons that all inherit their campaign's end is not there at all, and one whose
// coupons have all fallen is forgotten, so memory follows the coupons that still live.
type expiries struct {
	pages []*expiryPage
	first int // no page before it is there
	odd   map[uint32]domain.Instant
}

// pageCoupons is small because the coupons of a big campaign that were extended lie far apart, and small campaigns are
// many.
const pageCoupons = 256

type expiryPage struct {
	seconds [pageCoupons]uint32 // since 1970; 0 = inherits, oddExpiry = see odd
	latest  domain.Instant      // of all that were ever put in
}

const oddExpiry = 1<<32 - 1

// of is the own expiry of coupon n; 0 if it inherits its campaign's, or fell and was forgotten.
func (x *expiries) of(n uint32) domain.Instant {
	i, j := int(n/pageCoupons), n%pageCoupons
	if i >= len(x.pages) || x.pages[i] == nil {
		return 0
	}
	switch s := x.pages[i].seconds[j]; s {
	case oddExpiry:
		return x.odd[n]
	default:
		return domain.Instant(s) * 1e6
	}
}

// set gives coupon n an expiry of its own; 0 = it inherits.
func (x *expiries) set(n uint32, at domain.Instant) {
	i, j := int(n/pageCoupons), n%pageCoupons
	if at == 0 && (i >= len(x.pages) || x.pages[i] == nil) {
		return
	}
	for len(x.pages) <= i {
		x.pages = append(x.pages, nil)
	}
	if x.pages[i] == nil {
		x.pages[i] = new(expiryPage)
		x.first = min(x.first, i)
	}
	p := x.pages[i]
	p.latest = max(p.latest, at)
	delete(x.odd, n)
	// Expiries are whole seconds but for those an operator typed with more digits, or beyond the year 2106.
	if s := at / 1e6; at%1e6 == 0 && s < oddExpiry {
		p.seconds[j] = uint32(s)
		return
	}
	p.seconds[j] = oddExpiry
	if x.odd == nil {
		x.odd = make(map[uint32]domain.Instant)
	}
	x.odd[n] = at
}

// forget drops the leading pages whose coupons have all fallen by through. Nobody asks for them again: a reminder of a
// coupon that fell is refused as too late, and one that is extended is put in anew.
func (x *expiries) forget(through domain.Instant) {
	before := x.first
	for x.first < len(x.pages) && (x.pages[x.first] == nil || x.pages[x.first].latest <= through) {
		x.pages[x.first] = nil
		x.first++
	}
	if x.first == before {
		return
	}
	for n := range x.odd {
		if x.pages[n/pageCoupons] == nil {
			delete(x.odd, n)
		}
	}
}
