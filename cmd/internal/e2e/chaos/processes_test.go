package chaos

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/cmd/internal/process"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	nodeCount = 3
	// Credentials that nodes require of clients.
	nodeUser, nodePassword = "test", "secret"
	// nodeIssuer is a public key whose seed is lost: no other user logs in.
	nodeIssuer = "ABB43L3CVPUU7PRACSLBGNTC3A7DCWNDCBYIZPNHJCTPB4XJKFWS3KEI"
	// nodeRoutes is the password that nodes require of each other.
	nodeRoutes = "secret-too"
	// nowhere is advertised to other nodes: they use the links they were given, and make no other connections.
	nowhere = "127.0.0.1:1"
)

// Nodes are three NATS servers as processes of their own, which a test kills, stops and cuts off. They run with
// docker/nats/cluster.conf, addresses and store excepted.
type Nodes struct {
	program string
	nodes   [nodeCount]*node
	sites   []*Site
	probe   *nats.Conn
}

type node struct {
	*process.Process // nil while it is down
	name             string
	client, cluster  string // HOST:PORT to listen on
	dir, log         string
	links            [nodeCount]*streamtest.Link // from this node to the others
}

// StartNodes starts three nodes and waits until streams with three replicas can be made. They end with the test.
func StartNodes(t testing.TB) *Nodes {
	t.Helper()
	n := &Nodes{program: filepath.Join(t.TempDir(), "nats-server")}
	if err := e2e.BuildOf(n.program, "github.com/nats-io/nats-server/v2"); err != nil {
		t.Fatal(err)
	}
	for i := range n.nodes {
		name := fmt.Sprintf("n%d", i)
		n.nodes[i] = &node{name: name, client: streamtest.Address(t), cluster: streamtest.Address(t), dir: t.TempDir(), log: filepath.Join(t.TempDir(), name+".log")}
	}
	for i, from := range n.nodes {
		for j, to := range n.nodes {
			if i != j {
				from.links[j] = streamtest.NewLink(t, to.cluster)
			}
		}
	}
	t.Cleanup(func() {
		for i := range n.nodes {
			n.Kill(t, i)
		}
		if t.Failed() {
			n.tails(t)
		}
	})
	for i := range n.nodes {
		n.Start(t, i)
	}
	n.probe = n.Site(t).Conn(t, natsx.Options("streamtest probe")...)
	n.awaitQuorum(t)
	return n
}

// awaitQuorum waits until a stream can be made on three nodes.
func (n *Nodes) awaitQuorum(t testing.TB) {
	t.Helper()
	api, err := jetstream.New(n.probe)
	if err != nil {
		t.Fatal(err)
	}
	const name = topology.PushDeadStream // one that this user may make
	streamtest.Eventually(t, "the nodes make a stream with three replicas", func() bool {
		_, err := api.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: name, Storage: jetstream.MemoryStorage, Replicas: nodeCount})
		return err == nil && api.DeleteStream(t.Context(), name) == nil
	})
}

// Start starts node i, which is down, on its directory and ports. It does not wait for it.
func (n *Nodes) Start(t testing.TB, i int) {
	t.Helper()
	x := n.nodes[i]
	var routes []string
	for _, l := range x.links {
		if l != nil {
			routes = append(routes, l.Addr())
		}
	}
	host, port, err := net.SplitHostPort(x.client)
	if err != nil {
		t.Fatal(err)
	}
	x.Process, err = process.Start(process.Command{
		Program: n.program, Log: x.log,
		Args: []string{"--config", "../../../../docker/nats/cluster.conf", "--addr", host, "--port", port, "--http_port", "-1",
			"--cluster", "nats://" + natsauth.RoutesUser + ":" + nodeRoutes + "@" + x.cluster, "--no_advertise", "--cluster_advertise", nowhere},
		Env: append(os.Environ(), "NATS_NODE="+x.name, "NATS_STORE="+x.dir, "NATS_USER="+nodeUser, "NATS_PASSWORD="+nodePassword, "NATS_ISSUER="+nodeIssuer,
			natsauth.RoutesPasswordVariable+"="+nodeRoutes, natsauth.RoutesVariable+"="+natsauth.Routes(nodeRoutes, routes...)),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Kill ends node i as kill -9 does and returns when it is gone. Killing one that is down does nothing.
func (n *Nodes) Kill(t testing.TB, i int) {
	t.Helper()
	if x := n.nodes[i]; x.Process != nil {
		x.Process.Kill()
		x.Process = nil
	}
}

// Signal sends node i a signal.
func (n *Nodes) Signal(t testing.TB, i int, sig syscall.Signal) {
	t.Helper()
	if err := n.nodes[i].Signal(sig); err != nil {
		t.Fatalf("signal %s to node %d: %v", sig, i, err)
	}
}

// Cut cuts node i off from the other nodes and from all sites: what it sends, what is sent to it, or both.
func (n *Nodes) Cut(i int, sent, received bool) {
	n.CutRoutes(i, sent, received)
	for _, s := range n.sites {
		s.links[i].Cut(received, sent)
	}
}

// CutRoutes cuts node i off from the other nodes only: clients still reach it.
func (n *Nodes) CutRoutes(i int, sent, received bool) {
	for j := range n.nodes {
		if j != i {
			n.nodes[i].links[j].Cut(sent, received)
			n.nodes[j].links[i].Cut(received, sent)
		}
	}
}

// Heal ends all cuts of node i.
func (n *Nodes) Heal(i int) {
	for j := range n.nodes {
		if j != i {
			n.nodes[i].links[j].Heal()
			n.nodes[j].links[i].Heal()
		}
	}
	for _, s := range n.sites {
		s.links[i].Heal()
	}
}

// Leader waits until the stream has a leader that runs and returns its index.
func (n *Nodes) Leader(t testing.TB, stream string) (leader int) {
	t.Helper()
	streamtest.Eventually(t, "stream "+stream+" has a leader", func() bool {
		reply, err := n.probe.Request("$JS.API.STREAM.INFO."+stream, nil, time.Second)
		var info struct{ Cluster struct{ Leader string } }
		if err != nil || json.Unmarshal(reply.Data, &info) != nil {
			return false
		}
		// Without a leader every replica answers; such an answer names none.
		leader = slices.IndexFunc(n.nodes[:], func(x *node) bool { return x.name == info.Cluster.Leader && x.Process != nil })
		return leader >= 0
	})
	return leader
}

// tails shows the ends of the nodes' logs.
func (n *Nodes) tails(t testing.TB) {
	for i, x := range n.nodes {
		out, err := os.ReadFile(x.log)
		if err != nil {
			continue
		}
		t.Logf("node %d:\n%s", i, out[max(0, len(out)-3000):])
	}
}

// Site is a location in the network with links of its own to every node: a server or a client that can be cut off.
type Site struct {
	links [nodeCount]*streamtest.Link
}

// Site makes a location.
func (n *Nodes) Site(t testing.TB) *Site {
	t.Helper()
	s := &Site{}
	for i, x := range n.nodes {
		s.links[i] = streamtest.NewLink(t, x.client)
	}
	n.sites = append(n.sites, s)
	return s
}

// URL lists all nodes as reached from the site, with credentials.
func (s *Site) URL() string {
	var urls []string
	for _, l := range s.links {
		urls = append(urls, "nats://"+nodeUser+":"+nodePassword+"@"+l.Addr())
	}
	return strings.Join(urls, ",")
}

// Cut cuts the site off from all nodes: what it sends, what it receives, or both.
func (s *Site) Cut(sent, received bool) {
	for _, l := range s.links {
		l.Cut(sent, received)
	}
}

// Heal ends all cuts of the site.
func (s *Site) Heal() {
	for _, l := range s.links {
		l.Heal()
	}
}

// Conn connects from the site to any node until the test ends, reconnecting for ever.
func (s *Site) Conn(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return streamtest.Connect(t, s.URL(), opts...)
}
