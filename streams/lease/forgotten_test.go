package lease_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestLeasesWhoseTTLWasForgotten: the keys of a dead server that nats-server never removes, as after a crash at the wrong
// moment, keep no lease from the living, and are not reported for ever.
func TestLeasesWhoseTTLWasForgotten(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	if _, err := js.CreateKeyValue(t.Context(), topology.LeaseConfig(1)); err != nil {
		t.Fatal(err)
	}
	record := []byte(`{"server":"dead","nonce":"dead","since":"2026-01-01T00:00:00Z"}`)
	forget := func(key string) {
		t.Helper()
		if _, err := js.Publish(t.Context(), "$KV."+topology.LeaseBucket+"."+key, record); err != nil {
			t.Fatal(err)
		}
	}
	const group = "lane"
	forget("server." + group + ".dead")
	for key := range keys {
		forget(fmt.Sprintf("lease.%s.%d", group, key))
	}
	inspect := func() lease.Status {
		t.Helper()
		s, err := lease.Inspect(t.Context(), js, group, keys)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := inspect(); len(s.Servers) != 1 || s.Holders[0].Server != "dead" {
		t.Fatalf("a server is not seen: %+v", s)
	}
	lease.SetClock(func() time.Time { return time.Now().Add(lease.Abandoned) })
	s := inspect()
	lease.SetClock(time.Now)
	if len(s.Servers) != 0 || s.Holders[0].Server != "" {
		t.Errorf("seen although no owner has written for long: %+v", s)
	}

	m, err := lease.New(js, group, keys, "living", lease.Options{TTL: ttl, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var working atomic.Int32
	ended := make(chan error, 1)
	go func() {
		ended <- m.Run(ctx, func(ctx context.Context, _ int) error {
			working.Add(1)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	streamtest.Eventually(t, "the living server has all leases", func() bool { return working.Load() == keys })
	stop()
	<-ended
}
