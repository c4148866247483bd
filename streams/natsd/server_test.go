package natsd_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// mappedSubject publishes a request to a campaign's subject and returns the subject it arrived under.
func mappedSubject(t *testing.T, nc *nats.Conn, subject string) string {
	t.Helper()
	sub, err := nc.SubscribeSync("scrip.lane.>")
	streamtest.Must(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	streamtest.Must(t, nc.Flush())
	streamtest.Must(t, nc.Publish(subject, nil))
	msg, err := sub.NextMsg(5 * time.Second)
	if err != nil {
		t.Fatalf("nothing arrived for %s: %v", subject, err)
	}
	return msg.Subject
}

func TestMappingAgreesWithLaneOf(t *testing.T) {
	for _, lanes := range []int{1, 4, 7, 64} {
		s := streamtest.Start(t, streamtest.Lanes(lanes))
		nc := s.Conn(t)
		for _, campaign := range []string{"summer", "winter", "a", "A_-9", "x0123456789x0123456789x0123456789x0123456789x0123456789x012345678"} {
			lane := topology.LaneOf(campaign, lanes)
			for subject, want := range map[string]string{"scrip.cmd.": topology.LaneCmdFor(lane, campaign), "scrip.admin.": topology.LaneAdminFor(lane, campaign)} {
				if got := mappedSubject(t, nc, subject+campaign); got != want {
					t.Errorf("%d lanes: %s%s arrived as %s, LaneOf returns %s", lanes, subject, campaign, got, want)
				}
			}
		}
		s.Shutdown()
	}
}

func TestMappingIsRememberedAndReplaced(t *testing.T) {
	s := streamtest.Start(t, streamtest.Lanes(4))
	streamtest.Must(t, s.SetMapping(64))
	want := topology.LaneCmdFor(topology.LaneOf("summer", 64), "summer")
	if got := mappedSubject(t, s.Conn(t), "scrip.cmd.summer"); got != want {
		t.Errorf("after SetMapping: %s, want %s", got, want)
	}
	s.Restart(t) // with Lanes: 4 in its options; the log's own number is in the marker
	if got := mappedSubject(t, s.Conn(t), "scrip.cmd.summer"); got != want {
		t.Errorf("after a restart: %s, want %s", got, want)
	}
	if err := s.SetMapping(0); err == nil || !strings.Contains(err.Error(), "--lanes") {
		t.Errorf("SetMapping(0): %v, want an error that names --lanes", err)
	}
}

// TestStartRefuses: nothing is changed by a start that is refused. A store that nats-server made without scrip, or whose marker was
// lost, is recognised all the same.
func TestStartRefuses(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	streamtest.Must(t, err)
	defer func() { _ = taken.Close() }()
	running, used := streamtest.Start(t), streamtest.Start(t)
	if _, err := used.JetStream(t).CreateStream(t.Context(), jetstream.StreamConfig{Name: "A", Subjects: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	used.Shutdown()

	cluster := &natsd.Cluster{Name: "c", Listen: "127.0.0.1:0", User: "u", Password: "p", Routes: []string{"nats://u:p@127.0.0.1:1"}}
	another := &natsd.Cluster{Name: "d", Listen: "127.0.0.1:0", User: "u", Password: "p", Routes: cluster.Routes}
	clustered := t.TempDir()
	c, err := natsd.Start(natsd.Options{StoreDir: clustered, Listen: "127.0.0.1:0", ServerName: "a", Cluster: cluster, Logger: quiet})
	streamtest.Must(t, err)
	c.Shutdown()
	marker := filepath.Join(used.StoreDir(), "scrip-nats.json")
	remove := func() error { return os.Remove(marker) }
	for _, tc := range []struct {
		name   string
		opts   natsd.Options
		want   string
		before func() error
	}{
		{"port in use", natsd.Options{StoreDir: t.TempDir(), Listen: taken.Addr().String()}, "--nats-listen", nil},
		{"no such address", natsd.Options{StoreDir: t.TempDir(), Listen: "4222"}, "--nats-listen", nil},
		{"bad port", natsd.Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:http"}, "--nats-listen", nil},
		{"bad sync", natsd.Options{StoreDir: t.TempDir(), Sync: "often"}, "--sync", nil},
		{"no directory", natsd.Options{}, "directory", nil},
		{"open routes", natsd.Options{StoreDir: t.TempDir(), Cluster: &natsd.Cluster{Name: "c", Listen: "127.0.0.1:0"}}, "password", nil},
		{"store of a running server", natsd.Options{StoreDir: running.StoreDir()}, "--data", nil},
		{"standalone store as cluster", natsd.Options{StoreDir: used.StoreDir(), Cluster: cluster}, "would delete its streams", nil},
		{"cluster store as standalone", natsd.Options{StoreDir: clustered}, "would delete its streams", nil},
		{"store of another cluster", natsd.Options{StoreDir: clustered, Cluster: another}, "own cluster's name", nil},
		{"standalone store without a marker as cluster", natsd.Options{StoreDir: used.StoreDir(), Cluster: cluster}, "would delete its streams", remove},
		{"damaged marker", natsd.Options{StoreDir: used.StoreDir()}, marker, func() error { return os.WriteFile(marker, []byte("{"), 0o600) }},
	} {
		if tc.before != nil {
			streamtest.Must(t, tc.before())
		}
		if tc.opts.Logger = quiet; tc.opts.Listen == "" {
			tc.opts.Listen = "127.0.0.1:0"
		}
		s, err := natsd.Start(tc.opts)
		if err == nil {
			s.Shutdown()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	streamtest.Must(t, remove())
	used.Up(t)
	if _, err := used.JetStream(t).Stream(t.Context(), "A"); err != nil {
		t.Errorf("the stream of the adopted store: %v", err)
	}
}

func TestCredentialsAreAsked(t *testing.T) {
	s, err := natsd.Start(natsd.Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Username: "shop", Password: "secret", Logger: streamtest.Logger(t)})
	streamtest.Must(t, err)
	defer s.Shutdown()
	if nc, err := nats.Connect(s.ClientURL()); err == nil {
		nc.Close()
		t.Error("a client without credentials connected")
	}
	nc, err := s.Connect()
	if err != nil {
		t.Fatalf("Connect does not know its own server's credentials: %v", err)
	}
	nc.Close()
}

// After a failed fsync the store is not opened again in this process: it would read from memory what the disk does not have.
// A full disk is waited for.
func TestAFailedSyncEndsRun(t *testing.T) {
	for _, c := range []struct {
		cause error
		ends  bool
	}{{syscall.EIO, true}, {syscall.ENOSPC, false}} {
		s := streamtest.Start(t, streamtest.SyncAlways, hurried)
		ctx, cancel := context.WithCancel(t.Context())
		looked := 0
		s.SetFree(func(string) uint64 { // for room, after which it goes on
			if looked++; looked == 3 {
				cancel()
			}
			return 1 << 40
		})
		s.StoreFailed(&os.PathError{Op: "sync", Path: "1.blk", Err: c.cause})
		if err := s.Run(ctx); errors.Is(err, natsd.ErrSync) != c.ends || (looked > 0) == c.ends {
			t.Errorf("%v: Run ended with %v, after %d looks", c.cause, err, looked)
		}
		cancel()
	}
}
