package lease_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/dial"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestAManagerLeavesANodeWithoutTheBucket: its node answers pings and reaches no stream, as one that is cut off from the
// other nodes. Through another node the bucket is there.
func TestAManagerLeavesANodeWithoutTheBucket(t *testing.T) {
	alone, other := streamtest.Start(t), streamtest.Start(t)
	if _, err := topology.Ensure(t.Context(), other.JetStream(t), topology.Spec{Lanes: 1, KeyFingerprint: "test"}); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(alone.ClientURL()+","+other.ClientURL(), append(dial.Options("test"), nats.DontRandomize())...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if nc.ConnectedUrl() != alone.ClientURL() {
		t.Fatalf("connected to %s, expected the first node %s", nc.ConnectedUrl(), alone.ClientURL())
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	m, err := lease.New(js, "group", 1, "server", lease.Options{TTL: ttl, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	works, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx, func(ctx context.Context, _ int) error {
			works <- struct{}{}
			<-ctx.Done()
			return nil
		})
	}()
	streamtest.Eventually(t, "the manager works", func() bool { return len(works) == 1 })
	cancel()
	<-ended
}
