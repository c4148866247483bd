package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cluster"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/dial"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	compose = "../../../docker/compose.cluster.yaml"
	lanes   = 2
	// enough further answers on each lane show that it works; more than there can be calls in progress.
	enough = 10
	// think is the pause of a worker between two claims: some calls are in progress at any moment, and the machine is not busy
	// with claims alone.
	think = 40 * time.Millisecond
)

// programs are built once: nats-server from the module that the product requires, and the runner.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "scrip-cluster-")
	if err == nil {
		programs = dir
		err = errors.Join(e2e.BuildOf(filepath.Join(dir, "nats-server"), "github.com/nats-io/nats-server/v2"),
			e2e.BuildOf(filepath.Join(dir, "up"), "github.com/seed-4a2410e3/scrip/cmd/internal/cluster/up"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(e2e.Main(m, func() { _ = os.RemoveAll(dir) }))
}

func options(t *testing.T, folder string) cluster.Options {
	return cluster.Options{
		Folder: folder, Compose: compose, Scrip: e2e.Binary(), NATSServer: filepath.Join(programs, "nats-server"), Self: "up",
		Set: map[string]string{"SCRIP_LANES": fmt.Sprint(lanes)}, Tied: true, Out: t.Output(),
	}
}

// start starts a cluster that ends with the test, if that does not end it before.
func start(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close() // a second time does nothing
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(o.Folder, "*.log"))
			for _, log := range logs {
				text, _ := os.ReadFile(log)
				t.Logf("%s ends:\n%s", filepath.Base(log), text[max(0, len(text)-3000):])
			}
		}
	})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// load claims and redeems on every lane until it is stopped, and retries under the same id until there is an answer. Half of
// it is done with the key of a producer.
type load struct {
	t         *testing.T
	nc        *nats.Conn
	js        jetstream.JetStream
	sdk       *client.Client
	shop      *client.Client // with a producer's key
	ledger    *e2e.Ledger
	campaigns [lanes]string
	answers   [lanes]atomic.Int64
}

func newLoad(t *testing.T, c *cluster.Cluster) *load {
	t.Helper()
	list, err := c.NATSURL()
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(list, dial.Options("load")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	l := &load{t: t, nc: nc, js: js, sdk: client.New(nc, client.Options{}), ledger: e2e.NewLedger()}
	t.Cleanup(l.sdk.Close)
	l.shop = guest(t, c, list)
	for i, left := 0, lanes; left > 0; i++ {
		name := fmt.Sprint("sale-", i)
		if lane := topology.LaneOf(name, lanes); l.campaigns[lane] == "" {
			l.campaigns[lane] = name
			left--
		}
	}
	return l
}

// guest is a client with a key that is made for it.
func guest(t *testing.T, c *cluster.Cluster, list string) *client.Client {
	t.Helper()
	server := c.Data(c.Names(cluster.Scrip)[0])
	out, err := exec.CommandContext(t.Context(), e2e.Binary(), "access", "create", fmt.Sprint("shop-", time.Now().UnixNano()), "--role", "producer", "--data", server).Output()
	if err != nil {
		t.Fatalf("making a key: %v", err)
	}
	all, err := dial.URLs(list)
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, u := range all {
		u.User = url.User(strings.TrimSpace(string(out)))
		urls = append(urls, u.String())
	}
	var shop *client.Client
	streamtest.Eventually(t, "the key opens NATS", func() bool {
		shop, err = client.Connect(strings.Join(urls, ","))
		return err == nil
	})
	t.Cleanup(shop.Close)
	return shop
}

// open is true if a call ended without an answer.
func open(out wire.Outcome, err error) bool {
	var unknown *client.UnknownError
	var notSent *client.NotSentError
	return errors.Is(err, context.Canceled) || errors.As(err, &unknown) || errors.As(err, &notSent) || out.Refusal == wire.NotDurable
}

func (l *load) create() {
	l.t.Helper()
	for _, name := range l.campaigns {
		streamtest.Eventually(l.t, "campaign "+name+" exists", func() bool { // an attempt without an answer is repeated
			out, err := l.sdk.CreateCampaign(l.t.Context(), name, wire.DefaultSettings(1_000_000))
			if !open(out, err) && (err != nil || out.Refused()) {
				l.t.Fatal(out, err)
			}
			return err == nil && !out.Refused()
		})
	}
}

// run begins the load. stop waits until each call in progress has its answer: one that was given up could be decided after the
// log has been read, and before the tables are.
func (l *load) run() (stop func()) {
	ctx := l.t.Context()
	ended := make(chan struct{})
	over := func() bool {
		select {
		case <-ended:
			return true
		default:
			return ctx.Err() != nil
		}
	}
	var running sync.WaitGroup
	for lane := range lanes {
		for n := range 4 {
			worker := lane*10 + n
			rng := rand.New(rand.NewPCG(1, uint64(worker)))
			running.Go(func() {
				sdk := l.sdk
				if n%2 == 1 {
					sdk = l.shop
				}
				for i := 0; !over(); i++ {
					time.Sleep(think)
					customer := e2e.Customer(rng, worker, i)
					out, err := sdk.Claim(ctx, l.campaigns[lane], customer)
					if open(out, err) || !l.ledger.Claimed(l.campaigns[lane], customer, out, err) {
						continue
					}
					l.answers[lane].Add(1)
					if i%4 != 0 {
						continue
					}
					order := "order-of-" + customer
					if used, err := sdk.Redeem(ctx, out.Code, order); !open(used, err) {
						l.ledger.Redeemed(out.Code, order, used, err)
					}
				}
			})
		}
	}
	return sync.OnceFunc(func() { close(ended); running.Wait() })
}

// works waits until every lane has answered again.
func (l *load) works() {
	l.t.Helper()
	for lane := range lanes {
		before := l.answers[lane].Load()
		streamtest.Eventually(l.t, fmt.Sprintf("lane %d answers", lane), func() bool { return l.answers[lane].Load() >= before+enough })
	}
}

// whole waits until all replicas are current.
func (l *load) whole() {
	l.t.Helper()
	streamtest.Current(l.t, l.nc, topology.LeaseStream)
	for lane := range lanes {
		streamtest.Current(l.t, l.nc, topology.CmdStream(lane))
		streamtest.Current(l.t, l.nc, topology.EvtStream(lane))
	}
}

// leader is the node that leads a lane's events.
func (l *load) leader(lane int) (node string) {
	l.t.Helper()
	streamtest.Eventually(l.t, "the stream has a leader", func() bool {
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
		defer cancel()
		stream, err := l.js.Stream(ctx, topology.EvtStream(lane))
		if err == nil && stream.CachedInfo().Cluster != nil {
			node = stream.CachedInfo().Cluster.Leader
		}
		return node != ""
	})
	return node
}

// TestClusterUnderFaults: one NATS node, one scrip server and PostgreSQL are killed, stopped and cut off in turn under load.
// Every lane answers meanwhile, no answer is lost, and the tables are the fold of the log. A second start continues it.
func TestClusterUnderFaults(t *testing.T) {
	o := options(t, filepath.Join(projtest.Dir(t), "c"))
	o.Cuttable = true
	c := start(t, o)
	l := newLoad(t, c)
	l.create()
	stop := l.run()
	defer stop()
	l.works()

	do := func(verb, name string) {
		t.Helper()
		if err := c.Do(t.Context(), verb, name); err != nil {
			t.Fatalf("%s %s: %v", verb, name, err)
		}
	}
	victims := []func() string{
		func() string { return l.leader(0) },
		func() string { return c.Names(cluster.Scrip)[1] },
		func() string { return c.Names(cluster.Postgres)[0] },
	}
	for _, fault := range []struct{ begin, end string }{{"kill", "start"}, {"pause", "resume"}, {"cut", "heal"}} {
		for _, victim := range victims {
			name, began := victim(), time.Now()
			do(fault.begin, name)
			l.works()
			took := time.Since(began)
			do(fault.end, name)
			l.works()
			l.whole()
			t.Logf("%s %s: every lane answers again after %s", fault.begin, name, took.Round(10*time.Millisecond))
		}
	}
	stop()
	claims, redeemed := l.ledger.Answers()
	if len(claims) == 0 || len(redeemed) == 0 {
		t.Error("a load without claims or redemptions shows nothing")
	}
	if missing := l.ledger.Settle(t, e2e.CheckLog(t, l.js, c.PostgresURL())); missing != 0 {
		t.Errorf("the log lacks %d answers", missing)
	}
	t.Logf("%d claims and %d redemptions were answered", len(claims), len(redeemed))
	l.shop.Close()
	l.nc.Close()
	if err := c.Close(); err != nil {
		t.Fatalf("stopping: %v", err)
	}

	again := start(t, o)
	l2 := newLoad(t, again)
	requests := 0
	for key, code := range claims {
		campaign, customer, _ := strings.Cut(key, "/")
		if out, err := l2.shop.Claim(t.Context(), campaign, customer); err != nil || out.Code != code {
			t.Errorf("after a second start %s is answered %s, %v; it was %s", key, out.Code, err, code)
		}
		if requests++; requests == 50 {
			break
		}
	}
}
