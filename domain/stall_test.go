package domain

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestMoreRedemptionsIndexLittleAtOnce: raising max_redemptions starts the index of orders. What it does not know of yet is
// found by walking, and the answers are those of a lane that knew of all from the start.
func TestMoreRedemptionsIndexLittleAtOnce(t *testing.T) {
	s := newScript(t)
	l := s.lane
	decide := func(cmd wire.Command) wire.Outcome {
		t.Helper()
		_, out := l.Decide(&cmd, start.Add(time.Minute), nil)
		return out
	}
	const coupons = 3 * orderedAtOnce
	if out := decide(wire.Command{Type: wire.CreateCampaign, ID: "a", Campaign: "s", Patch: wire.PatchOf(wire.DefaultSettings(coupons))}); out.Refused() {
		t.Fatal(out)
	}
	codes := make([]string, coupons)
	for i := range codes {
		codes[i] = decide(wire.Command{Type: wire.Claim, ID: fmt.Sprint("c", i), Campaign: "s", CustomerID: fmt.Sprint(i)}).Code
		if out := decide(wire.Command{Type: wire.Redeem, ID: fmt.Sprint("r", i), Code: codes[i], OrderID: fmt.Sprint("o", i)}); out.Refused() {
			t.Fatal(out)
		}
	}
	var p wire.Patch
	p.MaxRedemptions = 9
	p.Set("max_redemptions")
	if out := decide(wire.Command{Type: wire.UpdateCampaign, ID: "u", Campaign: "s", Patch: p}); out.Refused() {
		t.Fatal(out)
	}
	x := l.campaigns["s"].indexes
	if x.orders == nil || x.ordered > orderedAtOnce {
		t.Fatalf("the update added %d acts to the index at once", x.ordered)
	}
	for i, code := range codes {
		before := x.ordered
		if out := decide(wire.Command{Type: wire.Redeem, ID: fmt.Sprint("again", i), Code: code, OrderID: fmt.Sprint("o", i)}); !out.Repeat {
			t.Fatalf("redemption %d for the same order: %+v", i, out)
		}
		if out := decide(wire.Command{Type: wire.Redeem, ID: fmt.Sprint("more", i), Code: code, OrderID: fmt.Sprint("p", i)}); out.Refused() || out.Repeat {
			t.Fatalf("redemption %d for another order: %+v", i, out)
		}
		if done := x.ordered - before; done > 8*orderedAtOnce {
			t.Fatalf("two commands added %d acts to the index", done)
		}
	}
	if x.ordered != l.campaigns["s"].acts.Len() {
		t.Errorf("the index knows of %d of %d acts", x.ordered, l.campaigns["s"].acts.Len())
	}
	for i, code := range codes {
		if out := decide(wire.Command{Type: wire.Redeem, ID: fmt.Sprint("third", i), Code: code, OrderID: fmt.Sprint("p", i)}); !out.Repeat {
			t.Fatalf("redemption %d for the same order, by the index: %+v", i, out)
		}
	}
}

// TestFreezingOddExpiriesCopiesNone: freezing shares the pages; writes after that do not show in what was frozen.
func TestFreezingOddExpiriesCopiesNone(t *testing.T) {
	var o irregularExpiries
	for n := uint32(1); n <= 10*irregularPageSize; n++ {
		o.set(n, wire.Instant(n))
	}
	frozen := o.freeze()
	if len(o.pages) > 11 || !maps.EqualFunc(o.pages, frozen.pages, func(a, b *irregularPage) bool { return a == b }) {
		t.Fatalf("%d pages were copied", len(o.pages))
	}
	o.set(5, 1<<40)
	o.delete(6)
	o.set(20*irregularPageSize, 1)
	for n := uint32(3 * irregularPageSize); n < 4*irregularPageSize; n++ {
		o.delete(n)
	}
	if frozen.len() != 10*irregularPageSize || frozen.get(5) != 5 || frozen.get(6) != 6 || frozen.get(3*irregularPageSize) != 3*irregularPageSize || frozen.get(20*irregularPageSize) != 0 {
		t.Error("a write after it shows in what was frozen")
	}
	if o.len() != 10*irregularPageSize-irregularPageSize || o.get(5) != 1<<40 || o.get(6) != 0 || o.get(3*irregularPageSize) != 0 || o.get(20*irregularPageSize) != 1 {
		t.Errorf("after the writes: %d of them", o.len())
	}
	last, count := uint32(0), 0
	for n, at := range frozen.sorted() {
		if n <= last || at != wire.Instant(n) {
			t.Fatalf("coupon %d, %d, behind %d", n, at, last)
		}
		last, count = n, count+1
	}
	if count != frozen.len() {
		t.Errorf("%d of %d listed", count, frozen.len())
	}
}
