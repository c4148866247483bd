package lease_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
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

func TestMain(m *testing.M) {
	streamtest.NodeMain()
	streamtest.VerifyTestMain(m)
}

const (
	keys = 4
	ttl  = time.Second
	// patient is the TTL where no living server may lose a lease, however busy the machine.
	patient = 2 * ttl
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// office watches who works on what, over all servers of a test.
type office struct {
	t     *testing.T
	ttl   time.Duration // of the leases; 0 = ttl
	mu    sync.Mutex
	works [keys][]string // servers at work on a key now
	twice bool           // two servers were at work on one key
}

func (o *office) enter(key int, server string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.works[key] = append(o.works[key], server)
	o.twice = o.twice || len(o.works[key]) > 1
}

func (o *office) exit(key int, server string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.works[key] = slices.DeleteFunc(o.works[key], func(s string) bool { return s == server })
}

// spread waits until each of the servers, and no other, has its even share.
func (o *office) spread(servers ...string) {
	o.t.Helper()
	streamtest.Eventually(o.t, "the work is spread over "+strings.Join(servers, " "), func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		load := map[string]int{}
		for _, at := range o.works {
			if len(at) != 1 || !slices.Contains(servers, at[0]) {
				return false
			}
			load[at[0]]++
		}
		for _, s := range servers {
			if load[s] < keys/len(servers) || load[s] > (keys+len(servers)-1)/len(servers) {
				return false
			}
		}
		return true
	})
}

// exclusive checks that never two servers worked on the same key.
func (o *office) exclusive() {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.twice {
		o.t.Error("two servers worked on the same key although none had failed")
	}
}

// server is one manager and its connection.
type server struct {
	nc     *nats.Conn
	cancel context.CancelFunc
	ended  chan error
}

// start runs a manager whose work waits to be cancelled.
func (o *office) start(name string, nc *nats.Conn) *server {
	o.t.Helper()
	return o.startWork(name, nc, func(ctx context.Context, key int) error {
		o.enter(key, name)
		defer o.exit(key, name)
		<-ctx.Done()
		return ctx.Err()
	})
}

func (o *office) startWork(name string, nc *nats.Conn, work func(context.Context, int) error) *server {
	o.t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		o.t.Fatal(err)
	}
	return o.startOn(name, js, lease.Options{TTL: cmp.Or(o.ttl, ttl), Logger: quiet}, work)
}

func (o *office) startOn(name string, js jetstream.JetStream, opts lease.Options, work func(context.Context, int) error) *server {
	o.t.Helper()
	m, err := lease.New(js, "lane", keys, name, opts)
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{nc: js.Conn(), cancel: cancel, ended: make(chan error, 1)}
	go func() { s.ended <- m.Run(ctx, work) }()
	o.t.Cleanup(func() { s.stop(o.t) })
	return s
}

// stop stops cleanly and waits.
func (s *server) stop(t *testing.T) {
	t.Helper()
	s.cancel()
	if s.ended == nil {
		return
	}
	if err := <-s.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
	s.ended = nil
}

func ensure(t *testing.T, js jetstream.JetStream, replicas int) {
	t.Helper()
	_, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, Replicas: replicas, KeyFingerprint: "k", CmdMaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
}

// inspect waits for an answer: a node of a cluster reports "no responders" until it has the routes to the others.
func inspect(t *testing.T, js jetstream.JetStream) lease.Status {
	t.Helper()
	var s lease.Status
	streamtest.Eventually(t, "the leases can be read", func() (read bool) {
		var err error
		s, err = lease.Inspect(t.Context(), js, "lane", keys)
		return err == nil
	})
	return s
}

// connects is what a single server and a cluster have in common.
type connects interface {
	Conn(testing.TB, ...nats.Option) *nats.Conn
	JetStream(testing.TB, ...nats.Option) jetstream.JetStream
}

// onBoth runs a test on one server and on a cluster: compare-and-set answers differently there.
func onBoth(t *testing.T, test func(*testing.T, connects)) {
	t.Run("R1", func(t *testing.T) {
		s := streamtest.Start(t)
		ensure(t, s.JetStream(t), 1)
		test(t, s)
	})
	t.Run("R3", func(t *testing.T) {
		c := streamtest.StartCluster(t)
		ensure(t, c.JetStream(t), 3)
		test(t, c)
	})
}

func TestServersJoinAndLeave(t *testing.T) {
	t.Parallel() // it waits for TTLs
	onBoth(t, func(t *testing.T, to connects) {
		o := &office{t: t, ttl: patient}
		a := o.start("a", to.Conn(t))
		o.spread("a")
		b := o.start("b", to.Conn(t))
		o.spread("a", "b")
		c := o.start("c", to.Conn(t))
		o.spread("a", "b", "c")

		js := to.JetStream(t)
		status := inspect(t, js)
		if !slices.Equal(status.Servers, []string{"a", "b", "c"}) {
			t.Errorf("servers %q", status.Servers)
		}
		for _, h := range status.Holders {
			if h.Server == "" || h.Since.IsZero() || h.Revision == 0 {
				t.Errorf("holder %+v", h)
			}
		}
		a.stop(t)
		o.spread("b", "c")
		b.stop(t)
		o.spread("c")
		o.exclusive() // a lease goes to the next only when the work of the last has returned
		c.stop(t)
		// A replica may show what was a moment ago.
		streamtest.Eventually(t, "no server is there and nothing is held", func() bool {
			status := inspect(t, js)
			return len(status.Servers) == 0 && !slices.ContainsFunc(status.Holders, func(h lease.Holder) bool { return h.Server != "" })
		})
	})
}

// A server that is silent, dead or cut off, loses its leases to the others. Cut off, it goes on until it can see that.
func TestTakeoverOfTheSilent(t *testing.T) {
	onBoth(t, func(t *testing.T, to connects) {
		o := &office{t: t}
		lost := make(chan error, keys)
		var reach atomic.Pointer[net.Dialer]
		reach.Store(&net.Dialer{})
		silent := to.Conn(t, nats.SetCustomDialer(dialer(func(network, address string) (net.Conn, error) {
			if d := reach.Load(); d != nil {
				return d.Dial(network, address)
			}
			return nil, errors.New("cut off")
		})))
		o.startWork("silent", silent, func(ctx context.Context, key int) error {
			o.enter(key, "silent")
			<-ctx.Done()
			o.exit(key, "silent")
			select {
			case lost <- context.Cause(ctx):
			default: // more ends than are examined: leases that came back may be given away again
			}
			return ctx.Err()
		})
		o.spread("silent")
		reach.Store(nil)
		if err := silent.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		o.start("next", to.Conn(t))
		streamtest.Eventually(t, "the next has taken all", func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			for _, at := range o.works {
				if !slices.Contains(at, "next") {
					return false
				}
			}
			return true
		})
		if len(lost) > 0 {
			t.Error("work was cancelled although no other owner was seen")
		}
		reach.Store(&net.Dialer{})
		o.spread("next", "silent")
		for range keys / 2 { // what the other kept; the rest it may have given back before it was seen
			// Released, where it saw that the other lives before it saw what that one has.
			if err := <-lost; !errors.Is(err, lease.ErrLost) && !errors.Is(err, lease.ErrReleased) {
				t.Errorf("work was cancelled for: %v", err)
			}
		}
	})
}

type dialer func(network, address string) (net.Conn, error)

func (d dialer) Dial(network, address string) (net.Conn, error) { return d(network, address) }

// Started again under its old name, a server does not wait for its dead predecessor's leases to run out.
func TestRestartTakesOverAtOnce(t *testing.T) {
	s := streamtest.Start(t)
	ensure(t, s.JetStream(t), 1)
	js := s.JetStream(t)
	for key := range keys { // left by a predecessor killed just now; without a TTL, so that waiting would not help
		kv, err := js.KeyValue(t.Context(), topology.LeaseBucket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.PutString(t.Context(), "lease.lane."+string(rune('0'+key)), `{"server":"a","nonce":"dead"}`); err != nil {
			t.Fatal(err)
		}
	}
	o := &office{t: t}
	o.start("a", s.Conn(t))
	o.spread("a")
}

// A lease is not taken from a living server of another name, not even without an announcement of that one.
func TestHeldLeaseIsRespected(t *testing.T) {
	s := streamtest.Start(t)
	ensure(t, s.JetStream(t), 1)
	kv, err := s.JetStream(t).KeyValue(t.Context(), topology.LeaseBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "lease.lane.2", `{"server":"other","nonce":"x"}`); err != nil {
		t.Fatal(err)
	}
	o := &office{t: t}
	o.start("a", s.Conn(t))
	at := func(key int) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.works[key]) == 1
	}
	streamtest.Eventually(t, "the free keys are taken", func() bool { return at(0) && at(1) && at(3) })
	if at(2) {
		t.Error("took another server's lease")
	}
	if err := kv.Delete(t.Context(), "lease.lane.2"); err != nil {
		t.Fatal(err)
	}
	o.spread("a")
	// And one that is taken from it, by force, is let go.
	if _, err := kv.PutString(t.Context(), "lease.lane.2", `{"server":"other","nonce":"x"}`); err != nil {
		t.Fatal(err)
	}
	streamtest.Eventually(t, "the lost key is let go", func() bool { return !at(2) })
	if status := inspect(t, s.JetStream(t)); status.Holders[2].Server != "other" {
		t.Errorf("holder %+v", status.Holders[2])
	}
}

// Leases outlive a server that restarts: renewals fail for a while, work continues or restarts, and nothing hangs.
func TestManagersSurviveARestartOfTheServer(t *testing.T) {
	for name, hit := range map[string]func(*streamtest.Server, testing.TB){
		"clean": (*streamtest.Server).Restart,
		"kill":  (*streamtest.Server).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			s := streamtest.Start(t)
			ensure(t, s.JetStream(t), 1)
			o := &office{t: t}
			a := o.start("a", s.Conn(t))
			o.start("b", s.Conn(t))
			o.spread("a", "b")
			hit(s, t)
			o.spread("a", "b")
			a.stop(t)
			o.spread("b")
		})
	}
}

// Work that ends by itself is started again under the same lease.
func TestEndedWorkIsStartedAgain(t *testing.T) {
	s := streamtest.Start(t)
	ensure(t, s.JetStream(t), 1)
	o := &office{t: t}
	runs := make(chan int, 100)
	fail := errors.New("lane stopped")
	o.startWork("a", s.Conn(t), func(_ context.Context, key int) error { runs <- key; return fail })
	seen := map[int]int{}
	for len(seen) < keys || seen[0] < 2 || seen[1] < 2 || seen[2] < 2 || seen[3] < 2 {
		seen[<-runs]++
	}
	for _, h := range inspect(t, s.JetStream(t)).Holders {
		if h.Server != "a" {
			t.Errorf("failing work lost its lease: %+v", h)
		}
	}
}

func TestStopWithoutAServer(t *testing.T) {
	s := streamtest.Start(t)
	ensure(t, s.JetStream(t), 1)
	o := &office{t: t}
	a := o.start("a", s.Conn(t))
	o.spread("a")
	s.Shutdown()
	a.stop(t) // ends although nothing can be released
}

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct {
		group  string
		keys   int
		server string
		ttl    time.Duration
		want   string
	}{
		{"a.b", 1, "s", 0, "group"}, {"", 1, "s", 0, "group"}, {"g", 0, "s", 0, "keys"},
		{"g", 1, "a b", 0, "server name"}, {"g", 1, "*", 0, "server name"}, {"g", 1, "s", time.Millisecond, "TTL"},
	} {
		if _, err := lease.New(nil, tc.group, tc.keys, tc.server, lease.Options{TTL: tc.ttl}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
