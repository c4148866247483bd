package client_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

func TestMoreClaimersThanCodes(t *testing.T) {
	c := realClient(t, natsd.SyncInterval)
	ctx := within(t)
	const codes = 2000
	if out, err := c.CreateCampaign(ctx, "sale", wire.DefaultSettings(codes)); err != nil || out.Refused() {
		t.Fatalf("creating: %+v, %v", out, err)
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
}

func TestAnImportOnRealLanes(t *testing.T) {
	c := realClient(t, natsd.SyncInterval)
	ctx := within(t)
	if out, err := c.CreateCampaign(ctx, "own", wire.DefaultSettings(0)); err != nil || out.Refused() {
		t.Fatalf("creating: %+v, %v", out, err)
	}
	const n = 20_000
	for _, repeat := range []bool{false, true} {
		out, err := c.ImportCodes(ctx, "own", numbered(n), nil, client.ID("import"))
		if err != nil || out.Refused() || out.Repeat != repeat {
			t.Fatalf("importing (again: %t): %+v, %v", repeat, out, err)
		}
	}
	view, err := c.Campaign(ctx, "own")
	if err != nil || view.Codes != n {
		t.Errorf("the campaign has %d codes, expected %d (%v)", view.Codes, n, err)
	}
	claimed, err := c.Claim(ctx, "own", "ann")
	if err != nil || claimed.Refused() {
		t.Fatalf("claiming: %+v, %v", claimed, err)
	}
	if out, err := c.Redeem(ctx, claimed.Code, "o1", client.Campaign("own"), client.Holder("ann")); err != nil || out.Status != wire.StatusRedeemed {
		t.Errorf("redeeming %s: %+v, %v", claimed.Code, out, err)
	}
	customer, err := c.Customer(ctx, "ann")
	if err != nil || len(customer.Coupons) != 1 || customer.Coupons[0].Code != claimed.Code {
		t.Errorf("the customer: %+v, %v", customer, err)
	}
}

func TestListOnRealLanes(t *testing.T) {
	c := realClient(t, natsd.SyncInterval)
	ctx := within(t)
	var want, got []string
	for i := range 7 {
		name := fmt.Sprint("c", i)
		want = append(want, name)
		if out, err := c.CreateCampaign(ctx, name, wire.DefaultSettings(1)); err != nil || out.Refused() {
			t.Fatalf("creating: %+v, %v", out, err)
		}
	}
	after := ""
	for {
		page, next, err := c.Campaigns(ctx, after, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range page {
			got = append(got, v.Campaign)
		}
		if next == "" {
			break
		}
		after = next
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, expected %v", got, want)
	}
}

// BenchmarkClaim measures claims through the SDK on real lanes, every message fsynced, from one goroutine (Async) and
// from many that wait (Callers).
func BenchmarkClaim(b *testing.B) {
	for _, mode := range []string{natsd.SyncAlways, natsd.SyncInterval} {
		b.Run("Async/sync="+mode, func(b *testing.B) {
			c := realClient(b, mode)
			ctx := create(b, c)
			var open sync.WaitGroup
			start := time.Now()
			for i := 0; b.Loop(); i++ {
				open.Add(1)
				cmd := wire.Command{Type: wire.Claim, Campaign: "hot", CustomerID: fmt.Sprint("customer-", i)}
				if err := c.DoAsync(ctx, cmd, func(out wire.Outcome, err error) {
					if err != nil || out.Refused() {
						b.Errorf("%+v, %v", out, err)
					}
					open.Done()
				}); err != nil {
					b.Fatal(err)
				}
			}
			open.Wait()
			report(b, c, time.Since(start))
		})
		b.Run("Callers=256/sync="+mode, func(b *testing.B) {
			c := realClient(b, mode)
			ctx := create(b, c)
			var next atomic.Int64
			var all sync.WaitGroup
			b.ResetTimer()
			start := time.Now()
			for range 256 {
				all.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if out, err := c.Claim(ctx, "hot", fmt.Sprint("customer-", i)); err != nil || out.Refused() {
							b.Errorf("%+v, %v", out, err)
						}
					}
				})
			}
			all.Wait()
			report(b, c, time.Since(start))
		})
		b.Run("Lonely/sync="+mode, func(b *testing.B) {
			c := realClient(b, mode)
			ctx := create(b, c)
			for i := 0; b.Loop(); i++ {
				if out, err := c.Claim(ctx, "hot", fmt.Sprint("customer-", i)); err != nil || out.Refused() {
					b.Fatalf("%+v, %v", out, err)
				}
			}
		})
	}
}

// BenchmarkRequest measures one claim per plain NATS request, 256 callers on one connection, through the micro service.
func BenchmarkRequest(b *testing.B) {
	for _, mode := range []string{natsd.SyncAlways, natsd.SyncInterval} {
		b.Run("Callers=256/sync="+mode, func(b *testing.B) {
			c := realClient(b, mode)
			create(b, c)
			var next atomic.Int64
			var all sync.WaitGroup
			b.ResetTimer()
			start := time.Now()
			for range 256 {
				all.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						reply, err := c.Conn().Request("scrip.claim.hot", fmt.Appendf(nil, `{"customer_id":"customer-%d"}`, i), 30*time.Second)
						if err != nil {
							b.Error(err)
						} else if out, err := wire.ParseOutcome(reply.Data); err != nil || out.Status != wire.StatusClaimed {
							b.Errorf("%s, %v", reply.Data, err)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "claims/s")
		})
	}
}

func create(b *testing.B, c *client.Client) context.Context {
	b.Helper()
	ctx := context.Background()
	if out, err := c.CreateCampaign(ctx, "hot", wire.DefaultSettings(wire.MaxCodes)); err != nil || out.Refused() {
		b.Fatalf("creating: %+v, %v", out, err)
	}
	return ctx
}

func report(b *testing.B, c *client.Client, took time.Duration) {
	n := c.Counters()
	b.ReportMetric(float64(n.Lines)/took.Seconds(), "claims/s")
	b.ReportMetric(float64(n.Lines)/float64(n.Messages), "lines/message")
}
