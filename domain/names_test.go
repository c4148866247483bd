package domain

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestCampaignsAreListedByName, in pages of any size, whatever the order they were created in and how much of it was requested
// for in between.
func TestCampaignsAreListedByName(t *testing.T) {
	const n = 3 * maxNames
	for k, tc := range []struct {
		format     string
		step, page int
	}{{"n%04d", 1, 1}, {"%d", 7919, 100}, {"x%04d-end", -1, n - 1}, {"%d", -1, 2 * n}} {
		l := testLane()
		var want, got []string
		for i := range n {
			name := fmt.Sprintf(tc.format, ((i*tc.step)%n+n)%n)
			cmd := wire.Command{Type: wire.CreateCampaign, ID: name, Campaign: name, Patch: wire.PatchOf(wire.DefaultSettings(1))}
			if _, out := l.Decide(&cmd, start, nil); out.Refused() {
				t.Fatal(outcomeText(out))
			}
			want = append(want, name)
			if k > 0 && i%(200*k) == 0 {
				l.Index(100)
			}
		}
		slices.Sort(want)
		for after := ""; ; after = got[len(got)-1] {
			views := l.List(after, tc.page)
			if len(views) == 0 {
				break
			}
			for _, v := range views {
				got = append(got, v.Campaign)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: %d campaigns are listed, %d there are", tc, len(got), len(want))
		}
		if after := want[n/2] + "!"; len(l.List(after, 1)) != 1 || l.List(after, 1)[0].Campaign <= after {
			t.Fatalf("%+v: after %s comes %+v", tc, after, l.List(after, 1))
		}
	}
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
