package natsd_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestInterruptedDescriptionsAreCompleted: nats-server writes meta.inf and then meta.sum. A crash in between must not take a
// stream away, neither now nor at the start after the stream was created again.
func TestInterruptedDescriptionsAreCompleted(t *testing.T) {
	dir := t.TempDir()
	stream := filepath.Join(dir, "jetstream", "$G", "streams", "KEPT")
	sum, inf := filepath.Join(stream, "meta.sum"), filepath.Join(stream, "meta.inf")
	consumerSum := filepath.Join(stream, "obs", "reader", "meta.sum")
	messages := uint64(0)
	// round starts a server, looks for what was there, and adds a message.
	round := func() {
		t.Helper()
		s := streamtest.Start(t, streamtest.Dir(dir))
		js := s.JetStream(t)
		publish := func() {
			t.Helper()
			if _, err := js.Publish(t.Context(), "kept", nil); err != nil {
				t.Fatal(err)
			}
			messages++
		}
		kept, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}})
		streamtest.Must(t, err)
		if have := kept.CachedInfo().State.Msgs; have != messages {
			t.Errorf("the stream holds %d messages, not %d", have, messages)
		}
		if messages == 0 {
			c, err := kept.CreateOrUpdateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "reader", AckPolicy: jetstream.AckExplicitPolicy})
			streamtest.Must(t, err)
			publish()
			m, err := c.Next(jetstream.FetchMaxWait(time.Minute))
			if err == nil {
				err = m.DoubleAck(t.Context())
			}
			streamtest.Must(t, err)
		} else if info, err := js.Consumer(t.Context(), "KEPT", "reader"); err != nil || info.CachedInfo().Delivered.Stream != 1 {
			t.Errorf("the consumer is gone, or has not delivered 1 message: %v", err)
		}
		publish()
		s.Shutdown()
	}
	old := time.Now().Add(-time.Hour)
	crash := map[string]func() error{
		"created, no sum yet":   func() error { return os.Remove(sum) },
		"created, an empty sum": func() error { return os.Truncate(sum, 0) },
		"changed, the sum of before": func() error {
			if err := os.WriteFile(sum, []byte("0123456789abcdef"), 0o600); err != nil {
				return err
			}
			return os.Chtimes(sum, old, old)
		},
		"a consumer without a sum": func() error { return os.Remove(consumerSum) },
	}
	round()
	for name, do := range crash {
		t.Run(name, func(t *testing.T) {
			streamtest.Must(t, do())
			round()
			round()
		})
	}

	// A wrong sum that is not a crash's is left as it is: meta.inf may be what is damaged.
	streamtest.Must(t, os.WriteFile(sum, []byte("0123456789abcdef"), 0o600))
	streamtest.Must(t, os.Chtimes(inf, old, old))
	s := streamtest.Start(t, streamtest.Dir(dir))
	defer s.Shutdown()
	if raw, err := os.ReadFile(sum); string(raw) != "0123456789abcdef" {
		t.Errorf("the sum became %q (%v)", raw, err)
	}
}
