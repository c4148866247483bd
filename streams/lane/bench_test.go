package lane_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/service"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// BenchmarkClaims measures claims of one hot campaign, one per customer, through the SDK: load generator, SDK, server and
// lane in this process, with and without fsync. It prints claims per second; compare within one run only.
//
// It reports the limit of the same machine, too: bare publishes of messages of the same size on the event stream.
func BenchmarkClaims(b *testing.B) {
	for _, sync := range []string{natsd.SyncAlways, natsd.SyncInterval} {
		b.Run("sync="+sync, func(b *testing.B) {
			c := benchClient(b, sync)
			ctx := context.Background()
			if _, err := c.CreateCampaign(ctx, "hot", wire.DefaultSettings(uint32(b.N))); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			start := time.Now()
			claimAll(b, c, b.N)
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "claims/s")
		})
	}
}

// BenchmarkLonelyClaim measures one claim at a time: two fsyncs and three hops.
func BenchmarkLonelyClaim(b *testing.B) {
	for _, sync := range []string{natsd.SyncAlways, natsd.SyncInterval} {
		b.Run("sync="+sync, func(b *testing.B) {
			c := benchClient(b, sync)
			ctx := context.Background()
			if _, err := c.CreateCampaign(ctx, "lonely", wire.DefaultSettings(uint32(b.N))); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for i := range b.N {
				if out, err := c.Claim(ctx, "lonely", fmt.Sprint("customer-", i)); err != nil || out.Refused() {
					b.Fatal(out, err)
				}
			}
		})
	}
}

func claimAll(b *testing.B, c *client.Client, n int) {
	var wg sync.WaitGroup
	var refused atomic.Int64
	wg.Add(n)
	for i := range n {
		err := c.DoAsync(context.Background(), wire.Command{Type: wire.Claim, Campaign: "hot", CustomerID: fmt.Sprint("customer-", i)}, func(out wire.Outcome, err error) {
			if err != nil || out.Refused() {
				refused.Add(1)
			}
			wg.Done()
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	wg.Wait()
	if refused.Load() != 0 {
		b.Fatalf("%d claims were not answered with a code", refused.Load())
	}
}

// benchClient is an SDK client of a server with one lane.
func benchClient(b *testing.B, sync string) *client.Client {
	srv := streamtest.Start(b, streamtest.Lanes(1), func(o *natsd.Options) { o.Sync = sync })
	nc := srv.Conn(b)
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	log, err := topology.Ensure(b.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: code.Fingerprint(testKey)})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running chanGroup
	running.run(func() error {
		return lane.New(lane.Options{JetStream: js, Log: log, Key: testKey, Logger: streamtest.Logger(b)}).Run(ctx)
	})
	svc := service.New(srv.Conn(b), log, code.New(testKey), service.Options{Logger: streamtest.Logger(b)})
	running.run(func() error { return svc.Run(ctx) })
	c := client.New(srv.Conn(b), client.Options{})
	b.Cleanup(func() {
		c.Close()
		cancel()
		running.wait()
	})
	return c
}

// chanGroup waits for goroutines.
type chanGroup struct{ wg sync.WaitGroup }

func (g *chanGroup) run(f func() error) { g.wg.Go(func() { _ = f() }) }
func (g *chanGroup) wait()              { g.wg.Wait() }
