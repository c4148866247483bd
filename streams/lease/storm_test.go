package lease_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// slowLink is a connection to a server whose writes take a while, as those of a replicated bucket over several zones do.
func slowLink(t *testing.T, server string, by time.Duration) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); open.Wait() })
	pipe := func(to, from net.Conn) {
		type piece struct {
			at   time.Time
			data []byte
		}
		queue := make(chan piece, 100_000)
		open.Go(func() {
			for p := range queue {
				time.Sleep(time.Until(p.at))
				_, _ = to.Write(p.data)
			}
			_ = to.Close()
		})
		for {
			buf := make([]byte, 32<<10)
			n, err := from.Read(buf)
			if n > 0 {
				queue <- piece{time.Now().Add(by), buf[:n]}
			}
			if err != nil {
				close(queue)
				return
			}
		}
	}
	open.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			conn, err := net.Dial("tcp", strings.TrimPrefix(server, "nats://"))
			if err != nil {
				_ = client.Close()
				return
			}
			open.Go(func() { pipe(conn, client) })
			open.Go(func() { pipe(client, conn) })
		}
	})
	return "nats://" + ln.Addr().String()
}

// All leases of a server with 64 lanes vanish at once, by a bucket whose writes take 20 ms. Its work goes on throughout, and
// all leases are soon written again.
func TestManyLeasesVanishAtOnce(t *testing.T) {
	const many = 64
	s := streamtest.Start(t)
	ensure(t, s.JetStream(t), 1)
	nc, err := nats.Connect(slowLink(t, s.ClientURL(), 10*time.Millisecond), nats.IgnoreDiscoveredServers())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	m, err := lease.New(js, "lane", many, "one", lease.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	var working, ended atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- m.Run(ctx, func(ctx context.Context, _ int) error {
			working.Add(1)
			defer working.Add(-1)
			<-ctx.Done()
			ended.Add(1)
			return nil
		})
	}()
	streamtest.Eventually(t, "all lanes are worked", func() bool { return working.Load() == many })
	fast := s.JetStream(t)
	kv, err := fast.KeyValue(t.Context(), topology.LeaseBucket)
	if err != nil {
		t.Fatal(err)
	}
	for key := range many {
		if err := kv.Purge(t.Context(), "lease.lane."+strconv.Itoa(key)); err != nil {
			t.Fatal(err)
		}
	}
	streamtest.Eventually(t, "all leases are written again", func() bool {
		status, err := lease.Inspect(t.Context(), fast, "lane", many)
		if err != nil {
			return false
		}
		for _, h := range status.Holders {
			if h.Server != "one" {
				return false
			}
		}
		return true
	})
	if ended.Load() != 0 {
		t.Errorf("%d works were cancelled although no other owner was there", ended.Load())
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// While the bucket does not answer, as in an election there, no server gives up or takes a lease.
func TestASilentBucketMovesNothing(t *testing.T) {
	t.Parallel() // it waits for several TTLs
	s := streamtest.Start(t)
	ensure(t, s.JetStream(t), 1)
	o := &office{t: t}
	var cancelled atomic.Int64
	var silent atomic.Bool
	var attempts atomic.Int64
	start := func(name string) {
		js := silentBucket{s.JetStream(t), &silent, &attempts}
		o.startOn(name, js, lease.Options{TTL: patient, Logger: quiet}, func(ctx context.Context, key int) error {
			o.enter(key, name)
			defer o.exit(key, name)
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), lease.ErrLost) || silent.Load() {
				cancelled.Add(1)
			}
			return nil
		})
	}
	start("a")
	start("b")
	o.spread("a", "b")
	silent.Store(true)
	before := attempts.Load()
	// Twice as many failed announcements of both as a silent server is given: each takes at least a quarter of the TTL.
	streamtest.Eventually(t, "announcements fail for long", func() bool { return attempts.Load()-before >= 2*2*4*2 })
	silent.Store(false)
	o.spread("a", "b")
	o.exclusive()
	if n := cancelled.Load(); n > 0 {
		t.Errorf("%d works were cancelled while the bucket did not answer", n)
	}
}

// silentBucket drops publishes, while that is wished, as a stream without a leader does.
type silentBucket struct {
	jetstream.JetStream
	silent   *atomic.Bool
	attempts *atomic.Int64
}

func (s silentBucket) Publish(ctx context.Context, subject string, data []byte, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if s.silent.Load() {
		s.attempts.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.JetStream.Publish(ctx, subject, data, opts...)
}

// Confirm decides by the bucket and not by the view.
func TestConfirm(t *testing.T) {
	s := streamtest.Start(t)
	ensure(t, s.JetStream(t), 1)
	js := s.JetStream(t)
	m, err := lease.New(js, "lane", 1, "a", lease.Options{TTL: 4 * ttl, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Run(ctx, func(ctx context.Context, key int) error {
			results <- m.Confirm(ctx, key)
			kv, err := js.KeyValue(ctx, topology.LeaseBucket)
			if err != nil {
				return err
			}
			// The other server is alive: from a silent one the lease would be taken back before the bucket is read.
			if _, err := kv.PutString(ctx, "server.lane.b", `{"server":"b","nonce":"other"}`); err != nil {
				return err
			}
			if _, err := kv.PutString(context.WithoutCancel(ctx), "lease.lane.0", `{"server":"b","nonce":"other"}`); err != nil {
				return err
			}
			err = m.Confirm(context.WithoutCancel(ctx), key)
			results <- err
			return err
		})
	}()
	if err := <-results; err != nil {
		t.Errorf("of its own lease: %v", err)
	}
	if err := <-results; !errors.Is(err, lease.ErrLost) {
		t.Errorf("of another's lease: %v", err)
	}
	cancel()
	<-done
}

// Two servers with the same name, the later one from a copy of the other's data directory: that one gives up, saying why.
func TestTheLaterOfTwinsGivesUp(t *testing.T) {
	s := streamtest.Start(t)
	ensure(t, s.JetStream(t), 1)
	run := func() (m *lease.Manager, done chan error) {
		m, err := lease.New(s.JetStream(t), "lane", keys, "same", lease.Options{TTL: ttl, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		done = make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			done <- m.Run(ctx, func(ctx context.Context, _ int) error { <-ctx.Done(); return nil })
		}()
		t.Cleanup(func() { cancel(); <-ended })
		return m, done
	}
	_, first := run()
	_, second := run()
	if err := <-second; !errors.Is(err, lease.ErrTwin) {
		t.Errorf("the later twin ended with %v", err)
	}
	select {
	case err := <-first:
		t.Errorf("the earlier twin ended with %v", err)
	default:
	}
}
