package client_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
)

// realClient is a client of real lanes.
func realClient(t testing.TB, sync string) *client.Client {
	t.Helper()
	url, stop, err := serve(sync)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stopping the server: %v", err)
		}
	})
	c, err := client.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestMoreClaimersThanCodes: an import on real lanes, which a repeat does not add to, and more customers than codes.
func TestMoreClaimersThanCodes(t *testing.T) {
	c := realClient(t, natsd.SyncInterval)
	ctx := within(t)
	if out, err := c.CreateCampaign(ctx, "sale", wire.DefaultSettings(0)); err != nil || out.Refused() {
		t.Fatalf("creating: %+v, %v", out, err)
	}
	const codes = 2000
	for _, repeat := range []bool{false, true} {
		out, err := c.ImportCodes(ctx, "sale", numbered(codes), nil, client.ID("import"))
		if err != nil || out.Refused() || out.Repeat != repeat {
			t.Fatalf("importing (again: %t): %+v, %v", repeat, out, err)
		}
	}
	var all sync.WaitGroup
	var soldOut atomic.Int64
	var held sync.Map
	for i := range 2 * codes {
		all.Go(func() {
			out, err := c.Claim(ctx, "sale", fmt.Sprint("customer-", i))
			switch {
			case err != nil:
				t.Errorf("claimer %d: %v", i, err)
			case out.Refusal == wire.SoldOut:
				soldOut.Add(1)
			case out.Refused():
				t.Errorf("claimer %d: %+v", i, out)
			default:
				if other, twice := held.LoadOrStore(out.Code, i); twice {
					t.Errorf("code %s went to claimers %d and %v", out.Code, i, other)
				}
			}
		})
	}
	all.Wait()
	distinct := 0
	held.Range(func(any, any) bool { distinct++; return true })
	if distinct != codes || soldOut.Load() != codes {
		t.Errorf("%d codes were handed out and %d claims refused, expected %d of each", distinct, soldOut.Load(), codes)
	}
	if n := c.Counters(); n.Messages > n.Lines/4 {
		t.Errorf("%d calls became %d messages", n.Lines, n.Messages)
	}
	view, err := c.Campaign(ctx, "sale")
	if err != nil || view.Codes != codes || view.Claimed != codes {
		t.Errorf("the campaign: %+v (%v)", view, err)
	}
}
