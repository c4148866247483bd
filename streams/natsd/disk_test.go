package natsd_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// accounts are those of natsauth.
func accounts(t *testing.T) string {
	t.Helper()
	issuer, err := callout.NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	return natsauth.Render(natsauth.Config{Users: []natsauth.User{{Name: streamtest.ServersUser, Password: streamtest.ServersPassword}}, Issuer: issuer.Public()})
}

// TestAFullDisk: when the disk has nearly no room, and when a store has failed to write, JetStream goes down, so that
// publishers get an error instead of waiting; when there is space it restarts with everything acknowledged.
func TestAFullDisk(t *testing.T) {
	const plenty = 1 << 40
	for _, c := range []struct {
		name string
		fill func(room *atomic.Uint64, s *streamtest.Server)
		opts []streamtest.Option
	}{
		{"nearly no room", func(room *atomic.Uint64, _ *streamtest.Server) { room.Store(1 << 20) }, nil},
		{"a store that failed to write, and no room", func(room *atomic.Uint64, s *streamtest.Server) { room.Store(0); s.BreakStore() }, nil},
		{"a store that failed to write, room again at once", func(_ *atomic.Uint64, s *streamtest.Server) { s.BreakStore() }, nil},
		{"nearly no room, with accounts", func(room *atomic.Uint64, _ *streamtest.Server) { room.Store(1 << 20) },
			[]streamtest.Option{streamtest.Accounts(accounts(t))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := streamtest.Start(t, append(c.opts, streamtest.SyncAlways)...)
			var room atomic.Uint64
			room.Store(plenty)
			var looked atomic.Int64
			s.SetFree(func(string) uint64 { looked.Add(1); return room.Load() })
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			js := s.JetStream(t)
			_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := js.Publish(ctx, "s", []byte("before")); err != nil {
				t.Fatal(err)
			}
			c.fill(&room, s)
			if room.Load() != plenty {
				streamtest.Eventually(t, "JetStream is down", func() bool { return !s.JetStreamUp() })
				streamtest.Eventually(t, "publishers get an error", func() bool {
					_, err := js.Publish(ctx, "s", []byte("while full"), jetstream.WithRetryAttempts(0))
					return errors.Is(err, jetstream.ErrNoStreamResponse)
				})
				// It stays down while there is no room.
				seen := looked.Load()
				streamtest.Eventually(t, "it has been looked at again", func() bool { return looked.Load() > seen+2 })
				if s.JetStreamUp() {
					t.Fatal("JetStream came back without room")
				}
				room.Store(plenty)
			} else {
				seen := looked.Load()
				streamtest.Eventually(t, "it has been looked at", func() bool { return looked.Load() > seen+2 })
			}
			streamtest.Eventually(t, "a message is accepted again", func() bool {
				short, done := context.WithTimeout(ctx, time.Second)
				defer done()
				_, err := js.Publish(short, "s", []byte("after"))
				return err == nil
			})
			stream, err := js.Stream(ctx, "S")
			if err != nil {
				t.Fatal(err)
			}
			first, err := stream.GetMsg(ctx, 1)
			if err != nil || string(first.Data) != "before" {
				t.Errorf("the message from before: %v, %v", first, err)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Run ended with %v", err)
			}
		})
	}
}
