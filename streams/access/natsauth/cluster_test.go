package natsauth_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/service"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// fileLanes is the number of lanes of docker/nats/accounts.conf.
const fileLanes = 16

// startNodes starts three nats-servers with docker/nats/cluster.conf. It returns their addresses.
func startNodes(t *testing.T, issuer callout.Issuer) []string {
	t.Helper()
	t.Setenv("NATS_USER", "scrip")
	t.Setenv("NATS_PASSWORD", "secret")
	t.Setenv("NATS_ISSUER", issuer.Public())
	var routes, urls []string
	for range 3 {
		routes = append(routes, streamtest.Address(t))
	}
	t.Setenv("NATS_ROUTES_PASSWORD", "secret")
	t.Setenv("NATS_ROUTES", natsauth.Routes("secret", routes...))
	for i := range 3 {
		t.Setenv("NATS_NODE", fmt.Sprint("nats-", i+1))
		t.Setenv("NATS_STORE", t.TempDir())
		o, err := server.ProcessConfigFile("../../../docker/nats/cluster.conf")
		streamtest.Must(t, err)
		host, port, err := net.SplitHostPort(routes[i])
		streamtest.Must(t, err)
		o.Cluster.Host = host
		if o.Cluster.Port, err = strconv.Atoi(port); err != nil {
			t.Fatal(err)
		}
		o.Host, o.Port, o.HTTPPort, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, 0, true, true
		ns, err := server.NewServer(o)
		streamtest.Must(t, err)
		ns.Start()
		t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
		if !ns.ReadyForConnections(time.Minute) {
			t.Fatal("a node is not ready")
		}
		urls = append(urls, ns.Addr().String())
	}
	return urls
}

// deliverOn runs a sender with a key on each node. Together they deliver every reminder once, whichever node has its lane.
func deliverOn(t *testing.T, r *rig, registries []*access.Registry, nodes []string) {
	t.Helper()
	key := r.keys.add(access.Principal{Name: "mobile", Role: access.Sender})
	for _, registry := range registries {
		becomes(t, registry, key, nil)
	}
	g := &gateway{got: map[string]int{}, saw: map[string]bool{}}
	var changed testsignal.Signal[struct{}]
	changed.Watch()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, node := range nodes {
		nc, err := nats.Connect("nats://"+key+"@"+node, natsx.Keyed("nats://"+key+"@"+node, nats.IgnoreDiscoveredServers(), nats.Timeout(time.Minute))...)
		streamtest.Must(t, err)
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		streamtest.Must(t, err)
		p, err := push.New(js, push.Options{Name: "mobile", Since: push.FromStart(), AckWait: 3 * time.Second, Logger: streamtest.Logger(t)})
		streamtest.Must(t, err)
		p.Changed = changed
		running.Go(func() {
			if err := p.Run(ctx, g.push); err != nil {
				t.Errorf("a sender on %s ended: %v", node, err)
			}
		})
	}
	const messages = 24
	start := time.Now()
	for i := range messages {
		r.fire(t, i%fileLanes, fmt.Sprint("c", i))
	}
	until(t, &changed, "all reminders are delivered", func() bool {
		for i := range messages {
			if g.delivered(fmt.Sprint("c", i)) == 0 {
				return false
			}
		}
		return true
	})
	t.Logf("delivered after %s", time.Since(start))
	for i := range messages {
		if n := g.delivered(fmt.Sprint("c", i)); n != 1 {
			t.Errorf("c%d: delivered %d times", i, n)
		}
	}
}

// TestACluster: three NATS nodes with the configuration in docker/nats, and two servers of scrip. A key opens every node, works
// as in the embedded server, and is disconnected everywhere when it is revoked. Not parallel: it sets variables.
func TestACluster(t *testing.T) {
	issuer, err := callout.IssuerOf([32]byte{1})
	streamtest.Must(t, err)
	nodes := startNodes(t, issuer)
	connect := func(node int) *nats.Conn {
		nc, err := nats.Connect("nats://scrip:secret@"+nodes[node], natsx.Options("test")...)
		streamtest.Must(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	js, err := jetstream.New(connect(0))
	streamtest.Must(t, err)
	streamtest.Eventually(t, "the nodes make streams", func() bool {
		_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: topology.PushDeadStream, Storage: jetstream.MemoryStorage, Replicas: 3})
		return err == nil && js.DeleteStream(t.Context(), topology.PushDeadStream) == nil
	})
	owner := streamtest.StartOwner(t, connect(0), topology.Spec{Lanes: fileLanes, Replicas: 1})
	var registries []*access.Registry
	var store *access.Store
	for i := range 2 { // each server of scrip on a node of its own; the third node has none
		own, err := jetstream.New(connect(i))
		streamtest.Must(t, err)
		store = access.Open(own, access.Options{Logger: streamtest.Logger(t)})
		registry := store.Registry()
		registry.InForce.Watch()
		logins := callout.New(connect(i), fileLanes, issuer, registry, streamtest.Logger(t))
		run(t, registry.Run, registry.Ready())
		run(t, logins.Run, logins.Ready())
		svc := service.New(connect(i), owner.Log, code.New([32]byte{1}), service.Options{Keys: registry, Ops: &ops.Ops{Keys: store}})
		run(t, svc.Run, svc.Ready())
		registries = append(registries, registry)
	}
	keys := &ring{t: t, store: store}
	key := keys.add(kinds["producer"])
	for _, r := range registries {
		becomes(t, r, key, nil)
	}
	ended := make(chan struct{}, 3)
	for i, node := range nodes {
		c, err := client.Connect("nats://"+key+"@"+node, nats.IgnoreDiscoveredServers(), nats.Timeout(time.Minute), nats.ClosedHandler(func(*nats.Conn) { ended <- struct{}{} }),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatalf("node %d: %v", i, err)
		}
		t.Cleanup(c.Close)
		for n := range 4 {
			campaign := fmt.Sprint("campaign-", n)
			out, err := c.Do(t.Context(), wire.Command{Type: wire.Claim, Campaign: campaign, CustomerID: fmt.Sprint(i), ID: fmt.Sprint(i, "-", n)})
			if err != nil || out.Status != wire.StatusClaimed {
				t.Errorf("node %d: %+v, %v", i, out, err)
			}
		}
		// A subject that the node maps to the campaign's lane, and its acknowledgement.
		line := fmt.Appendf(nil, `{"id":"mapped-%d","type":"claim","customer_id":"m%d"}`, i, i)
		if ack, err := c.Conn().Request("scrip.cmd.summer", line, 20*time.Second); err != nil || !strings.Contains(string(ack.Data), topology.CmdStream(topology.LaneOf("summer", fileLanes))) {
			t.Errorf("node %d: %v, %v", i, ack, err)
		}
	}
	deliverOn(t, &rig{owner: owner, js: js, keys: keys}, registries, nodes)
	keys.revoke(key)
	answered := time.Now()
	for range nodes {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("a connection of a revoked key is still open")
		}
	}
	if took := time.Since(answered); took > 2*inForce { // each server closes those that it finds, on all nodes
		t.Errorf("all closed %s after the revocation was answered, promised are a second or two", took)
	}
	for i, node := range nodes {
		if nc, err := nats.Connect("nats://" + key + "@" + node); err == nil {
			nc.Close()
			t.Errorf("node %d: the revoked key opens", i)
		}
	}
}
