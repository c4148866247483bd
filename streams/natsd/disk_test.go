package natsd_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// hurried lets Run look a hundred times as often.
func hurried(o *natsd.Options) { o.Clock = streamtest.Hurried(100) }

// TestAFullDisk: when the disk has nearly no room, and when a store has failed to write, JetStream goes down, so that
// publishers get an error instead of waiting; when there is space it restarts with everything acknowledged.
func TestAFullDisk(t *testing.T) {
	const plenty, nearlyNone = 1 << 40, 1 << 20
	_, withAccounts := accounts(t)
	nothing := func(*streamtest.Server) error { return nil }
	broken := func(s *streamtest.Server) error { s.BreakStore(); return nil }
	for _, c := range []struct {
		name string
		fail func(*streamtest.Server) error
		room uint64
		opts []streamtest.Option
	}{
		{"nearly no room", nothing, nearlyNone, nil},
		{"a store that failed to write, and no room", broken, 0, nil},
		{"a store that failed to write, room again at once", broken, plenty, nil},
		{"nats-server has shut JetStream down", func(s *streamtest.Server) error { return s.Nats().ShutdownJetStream() }, plenty, nil},
		{"nearly no room, with accounts", nothing, nearlyNone, []streamtest.Option{withAccounts}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := streamtest.Start(t, append(c.opts, streamtest.SyncAlways, hurried)...)
			ctx, cancel := context.WithCancel(t.Context())
			rooms := make(chan uint64)
			s.SetFree(func(string) uint64 {
				select {
				case room := <-rooms:
					return room
				case <-ctx.Done():
					return plenty
				}
			})
			// sees returns after the server has acted on that much room: the second look starts then.
			sees := func(room uint64) { rooms <- room; rooms <- room }
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			js := s.JetStream(t)
			if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "SCRIP_RMD_0", Subjects: []string{"scrip.rmd.0"}}); err != nil {
				t.Fatal(err)
			}
			if _, err := js.Publish(ctx, "scrip.rmd.0", []byte("before")); err != nil {
				t.Fatal(err)
			}
			streamtest.Must(t, c.fail(s))
			sees(c.room)
			if c.room != plenty {
				if s.JetStreamUp() {
					t.Fatal("JetStream is up without room")
				}
				if _, err := js.Publish(ctx, "scrip.rmd.0", []byte("while full"), jetstream.WithRetryAttempts(0)); !errors.Is(err, jetstream.ErrNoStreamResponse) {
					t.Errorf("a publisher gets %v", err)
				}
				sees(c.room)
				if s.JetStreamUp() {
					t.Fatal("JetStream came back without room")
				}
				sees(plenty)
			}
			streamtest.Eventually(t, "the client is back", func() bool { return js.Conn().Stats().Reconnects == 1 && js.Conn().IsConnected() })
			if ack, err := js.Publish(ctx, "scrip.rmd.0", []byte("after")); err != nil || ack.Sequence != 2 {
				t.Errorf("a message after that: %+v, %v", ack, err)
			}
			stream, err := js.Stream(ctx, "SCRIP_RMD_0")
			streamtest.Must(t, err)
			if first, err := stream.GetMsg(ctx, 1); err != nil || string(first.Data) != "before" {
				t.Errorf("the message from before: %v, %v", first, err)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Run ended with %v", err)
			}
		})
	}
}

// TestADiskThatIsReallyFull: a store that cannot write is noticed by what nats-server logs then. When there is space the server
// recovers by itself, serves each request of JetStream's API once, and a backup can be taken.
func TestADiskThatIsReallyFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=96m"); err != nil {
		t.Skipf("a small disk cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	s := streamtest.Start(t, streamtest.SyncAlways, hurried, streamtest.Dir(filepath.Join(dir, "nats")), streamtest.Lanes(1))
	js := s.JetStream(t)
	if _, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: code.Fingerprint([32]byte{1})}); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	streamtest.Must(t, err)
	if _, err := io.Copy(filler, endless{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	streamtest.Eventually(t, "the store is broken", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, _ = js.Publish(ctx, topology.LaneCmdFor(0, "c"), make([]byte, 16<<10), jetstream.WithRetryAttempts(0))
		return s.Broken()
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	streamtest.Eventually(t, "JetStream is down", func() bool { return !s.JetStreamUp() })
	streamtest.Must(t, errors.Join(filler.Close(), os.Remove(filler.Name())))
	streamtest.Eventually(t, "the client is back", func() bool { return js.Conn().Stats().Reconnects == 1 && js.Conn().IsConnected() })
	if _, err := js.Publish(t.Context(), topology.LaneCmdFor(0, "c"), []byte("{}")); err != nil {
		t.Error(err)
	}
	served := func() uint64 {
		state, err := s.Nats().Jsz(nil)
		streamtest.Must(t, err)
		return state.API.Total
	}
	before := served()
	if _, err := js.AccountInfo(t.Context()); err != nil {
		t.Error(err)
	}
	if n := served() - before; n != 1 {
		t.Errorf("one request of the API was served %d times", n)
	}
	if _, err := backup.Create(t.Context(), js, filepath.Join(t.TempDir(), "backup"), backup.CreateOptions{Key: [32]byte{1}, Version: "test", Logger: streamtest.Logger(t)}); err != nil {
		t.Errorf("a backup: %v", err)
	}
	cancel()
	<-ended
}

// endless is zeros without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
