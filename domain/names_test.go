package domain

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestCampaignsAreListedByName, in pages of any size, whatever the order they were created in and how much of it was requested
// for in between.
func TestCampaignsAreListedByName(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := testLane()
		var want []string
		create := func(name string) {
			cmd := wire.Command{Type: wire.CreateCampaign, ID: name, Campaign: name, Patch: wire.PatchOf(wire.DefaultSettings(1))}
			if _, out := l.Decide(&cmd, start, nil); out.Refused() {
				rt.Fatal(outcomeText(out))
			}
			want = append(want, name)
		}
		format := rapid.SampledFrom([]string{"n%04d", "%d", "x%04d-end"}).Draw(rt, "format")
		step := rapid.SampledFrom([]int{1, 7919, -1}).Draw(rt, "step")
		const n = 3 * maxNames
		for i := range n {
			create(fmt.Sprintf(format, ((i*step)%n+n)%n))
			if rapid.IntRange(0, 300).Draw(rt, "request") == 0 {
				l.Index(100)
			}
		}
		slices.Sort(want)
		page := rapid.IntRange(1, 2*n).Draw(rt, "page")
		var got []string
		for after := ""; ; {
			views := l.List(after, page)
			if len(views) == 0 {
				break
			}
			for _, v := range views {
				got = append(got, v.Campaign)
			}
			after = got[len(got)-1]
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%d campaigns are listed, %d there are", len(got), len(want))
		}
		if after := want[n/2] + "!"; len(l.List(after, 1)) != 1 || l.List(after, 1)[0].Campaign <= after {
			rt.Fatalf("after %s comes %+v", after, l.List(after, 1))
		}
	})
}

// TestACustomersCouponsComeInPages of any size, however few campaigns are looked at at once.
func TestACustomersCouponsComeInPages(t *testing.T) {
	l := testLane()
	var want []string
	for i := range 40 {
		name := fmt.Sprintf("c%02d", i)
		s := wire.DefaultSettings(100)
		s.PerCustomer = 0
		cmd := wire.Command{Type: wire.CreateCampaign, ID: name, Campaign: name, Patch: wire.PatchOf(s)}
		l.Decide(&cmd, start, nil)
		var mine []string
		for k := range i % 4 {
			for _, customer := range []string{"ann", "bob"} {
				cmd = wire.Command{Type: wire.Claim, ID: fmt.Sprint(customer, k), Campaign: name, CustomerID: customer}
				if _, out := l.Decide(&cmd, start, nil); customer == "ann" {
					mine = append([]string{fmt.Sprint(name, " ", out.N)}, mine...)
				}
			}
		}
		want = append(want, mine...)
	}
	for _, limit := range []int{1, 2, 7, 1000} {
		for _, campaigns := range []int{1, 3, 1000} {
			var got []string
			at, rounds := CouponPlace{}, 0
			for done := false; !done; rounds++ {
				var views []CouponView
				views, at, done = l.CustomerAfter("ann", start, at, limit, campaigns)
				if len(views) > limit || rounds > 1000 {
					t.Fatalf("limit %d, %d campaigns at once: %d views in round %d", limit, campaigns, len(views), rounds)
				}
				for _, v := range views {
					got = append(got, fmt.Sprint(v.Campaign, " ", v.N))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("limit %d, %d campaigns at once: %v, want %v", limit, campaigns, got, want)
			}
		}
	}
}
