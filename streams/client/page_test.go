package client_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
)

// A customer with many coupons in several campaigns, of real lanes: whatever the page's size, each is shown once, by
// campaign, newest first, and those of others are not among them, wherever a page begins.
func TestACustomersCouponsInPages(t *testing.T) {
	c := realClient(t, natsd.SyncInterval)
	ctx := within(t)
	var want []string
	for i := range 3 {
		name := fmt.Sprint("c", i)
		settings := wire.DefaultSettings(400)
		settings.PerCustomer = 0
		if out, err := c.CreateCampaign(ctx, name, settings); err != nil || out.Refused() {
			t.Fatalf("creating: %+v, %v", out, err)
		}
		var mine []string
		for k := range 30 + 140*i { // some campaigns find their customers without an index, being small
			who := "ann"
			if k%5 == 2 {
				who = "bob"
			}
			out, err := c.Claim(ctx, name, who)
			if err != nil || out.Refused() {
				t.Fatalf("claiming: %+v, %v", out, err)
			}
			if who == "ann" {
				mine = append(mine, fmt.Sprintf("%s/%d", name, out.N))
			}
		}
		slices.Reverse(mine)
		want = append(want, mine...)
	}
	for _, limit := range []int{0, 7, 24, len(want), 500} {
		var got []string
		page := client.Page{Limit: limit}
		for {
			shown, err := c.CustomerPage(ctx, "ann", page)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range shown.Coupons {
				got = append(got, fmt.Sprintf("%s/%d", k.Campaign, k.N))
			}
			if page.Before = shown.Next; !shown.More {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %d coupons, want %d", limit, len(got), len(want))
		}
	}
	// The place of another's coupon begins a page like any other; it shows none of theirs.
	shown, err := c.CustomerPage(ctx, "bob", client.Page{Before: want[0][:2] + ".30~"})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range shown.Coupons {
		if slices.Contains(want, fmt.Sprintf("%s/%d", k.Campaign, k.N)) {
			t.Errorf("bob is shown %s/%d of ann's", k.Campaign, k.N)
		}
	}
}
