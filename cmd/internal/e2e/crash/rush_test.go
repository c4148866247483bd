package crash

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestTwentyThousandClaimersOnTenThousandCodes requests all of them at the same time: 10,000 distinct codes, 10,000
// times sold_out, nothing else.
func TestTwentyThousandClaimersOnTenThousandCodes(t *testing.T) {
	const codes, claimers = 10_000, 20_000
	s := e2e.NewServer(t, "--nats-listen", streamtest.Address(t), "--postgres", projtest.URL(t))
	s.Up()
	c := s.Client()
	ctx := t.Context()
	if out, err := c.CreateCampaign(ctx, "noon", wire.DefaultSettings(codes)); err != nil || out.Refused() {
		t.Fatal(out, err)
	}
	var mu sync.Mutex
	holders := map[string]string{}
	refusals := map[wire.Refusal]int{}
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range claimers {
		all.Go(func() {
			<-start
			customer := fmt.Sprint("customer-", i)
			out, err := c.Claim(ctx, "noon", customer)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Errorf("%s: %v", customer, err)
			case out.Refused():
				refusals[out.Refusal]++
			case holders[out.Code] != "":
				t.Errorf("code %s went to %s and to %s", out.Code, holders[out.Code], customer)
			default:
				holders[out.Code] = customer
			}
		})
	}
	close(start)
	all.Wait()
	if len(holders) != codes || refusals[wire.SoldOut] != claimers-codes || len(refusals) != 1 {
		t.Fatalf("%d distinct codes and %v, want %d and %d × sold_out", len(holders), refusals, codes, claimers-codes)
	}
	fold := s.CheckLog()
	if n := fold.Refused["noon"][wire.SoldOut]; n != claimers-codes {
		t.Errorf("the log counts %d × sold_out", n)
	}
	if logged := fold.Holders("noon"); !maps.Equal(logged, holders) {
		t.Error("the answers and the log disagree about who holds what")
	}
	if code := s.Stop(); code != 0 {
		t.Errorf("the clean stop ended with exit code %d", code)
	}
}
