package main

import (
	"context"
	"errors"
	"flag"
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

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	lanes = 2
	// think is the pause of a worker between two claims: some calls are in progress at any moment, and the machine is not busy
	// with claims alone.
	think = 40 * time.Millisecond
	// patience is far longer than anything here takes on a machine under load.
	patience = 3 * time.Minute
)

var (
	lasting = flag.Duration("cluster.for", 0, "how long faults are made; 0 = one")
	seed    = flag.Uint64("cluster.seed", 0, "of their choice; 0 = a new one")
)

// programs are built once: nats-server from the module that the product requires, and the runner.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "scrip-cluster-")
	if err == nil {
		programs = dir
		err = errors.Join(e2e.BuildOf(filepath.Join(dir, "nats-server"), "github.com/nats-io/nats-server/v2"),
			e2e.BuildOf(filepath.Join(dir, "up"), "github.com/seed-4a2410e3/scrip/cmd/internal/cluster"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(e2e.Main(m, func() { _ = os.RemoveAll(dir) }))
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
	postgres  string
	campaigns []string // by lane
	probes    int
}

func newLoad(t *testing.T, r *runner) *load {
	t.Helper()
	data, d := r.server()
	nc, err := nats.Connect(d.NATSURL, natsx.Options("load")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	l := &load{t: t, nc: nc, js: js, sdk: client.New(nc, client.Options{}), ledger: e2e.NewLedger(), campaigns: e2e.Campaigns(lanes), postgres: d.PostgresURL}
	t.Cleanup(l.sdk.Close)
	l.ledger.Faults = true
	l.shop = guest(t, data, d.NATSURL)
	return l
}

// guest is a client with a key that is made for it.
func guest(t *testing.T, server, list string) *client.Client {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), e2e.Binary(), "access", "create", fmt.Sprint("shop-", time.Now().UnixNano()), "--role", "producer", "--data", server).Output()
	if err != nil {
		t.Fatalf("making a key: %v", err)
	}
	all, err := natsx.URLs(list)
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

func (l *load) create() {
	l.t.Helper()
	for _, name := range l.campaigns {
		streamtest.Eventually(l.t, "campaign "+name+" exists", func() bool { // an attempt without an answer is repeated
			out, err := l.sdk.CreateCampaign(l.t.Context(), name, wire.DefaultSettings(1_000_000))
			if !e2e.Unanswered(out, err) && (err != nil || out.Refused()) {
				l.t.Fatal(out, err)
			}
			return err == nil && !out.Refused()
		})
	}
}

// run starts the load. stop waits until each call in progress has its answer: one that was given up could be decided after the
// log has been read, and before the tables are.
func (l *load) run() (stop func()) {
	ctx := l.t.Context()
	var ended atomic.Bool
	var running sync.WaitGroup
	for lane, campaign := range l.campaigns {
		for n, sdk := range []*client.Client{l.sdk, l.shop, l.sdk, l.shop} {
			worker := lane*10 + n
			rng := rand.New(rand.NewPCG(1, uint64(worker)))
			running.Go(func() {
				for i := 0; !ended.Load() && ctx.Err() == nil; i++ {
					time.Sleep(think)
					customer := e2e.Customer(rng, worker, i)
					out, err := sdk.Claim(ctx, campaign, customer)
					if l.ledger.Claimed(campaign, customer, out, err) && i%4 == 0 {
						l.ledger.Redeem(ctx, sdk, out.Code, customer)
					}
				}
			})
		}
	}
	return sync.OnceFunc(func() { ended.Store(true); running.Wait() })
}

// works waits until every lane answers again.
func (l *load) works() {
	l.t.Helper()
	for _, campaign := range l.campaigns {
		streamtest.Eventually(l.t, campaign+" is answered", func() bool {
			l.probes++
			customer := fmt.Sprint("probe-", l.probes)
			out, err := l.shop.Claim(l.t.Context(), campaign, customer)
			return l.ledger.Claimed(campaign, customer, out, err)
		})
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

// TestClusterUnderFaults: what `make cluster` starts. NATS nodes, scrip servers and PostgreSQL are killed, stopped and paused in
// turn under load, a node alone in a short run. Every lane goes on to answer, no answer is lost, and the tables are the fold of
// the log. Ctrl-C stops all. A second start continues the log.
func TestClusterUnderFaults(t *testing.T) {
	t.Chdir("../../..") // of docker/nats
	folder := filepath.Join(projtest.Dir(t), "c")
	r := start(t, folder)
	if before := r.do("status"); strings.Count(before, " up ") != 7 {
		t.Fatalf("status:\n%s", before)
	}
	l := newLoad(t, r)
	l.create()
	stop := l.run()
	defer stop()
	l.works()
	r.faults(l)
	stop()
	claims, redeemed := l.ledger.Answers()
	if len(redeemed) == 0 {
		t.Error("a load without redemptions shows nothing")
	}
	if missing := l.ledger.Settle(t, e2e.CheckLog(t, l.js, l.postgres)); missing != 0 {
		t.Errorf("the log lacks %d answers", missing)
	}
	l.shop.Close()
	l.nc.Close()
	r.refuses()
	r.interrupt()
	if *lasting == 0 {
		return
	}
	again := newLoad(t, start(t, folder))
	requests := 0
	for key, code := range claims {
		campaign, customer, _ := strings.Cut(key, "/")
		if out, err := again.shop.Claim(t.Context(), campaign, customer); err != nil || out.Code != code {
			t.Errorf("after a second start %s is answered %s, %v; it was %s", key, out.Code, err, code)
		}
		if requests++; requests == 50 {
			break
		}
	}
}
