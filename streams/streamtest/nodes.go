package streamtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// Credentials that nodes require of clients.
	nodeUser, nodePassword = "test", "secret"
	// nodeIssuer is a public key whose seed nobody has: no other user logs in.
	nodeIssuer = "ABB43L3CVPUU7PRACSLBGNTC3A7DCWNDCBYIZPNHJCTPB4XJKFWS3KEI"
	// nowhere is advertised to other nodes: they use the links they were given, and make no other connections.
	nowhere = "127.0.0.1:1"
)

// NodeMain makes this process a NATS server if StartNodes or StartProcess has started it; it does not return then. Call it
// first in TestMain of packages that use one of them.
func NodeMain() {
	raw := os.Getenv(nodeEnv)
	if raw == "" {
		nodesCalled = true
		return
	}
	if err := runNode(raw); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

var nodesCalled bool

// runNode serves until standard input ends, which it does when the test's process ends, however that happens.
func runNode(raw string) error {
	var c nodeConfig
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		return err
	}
	if c.File == "" {
		return runEmbedded(c)
	}
	so, err := server.ProcessConfigFile(c.File)
	if err != nil {
		return err
	}
	so.NoSigs, so.LogFile, so.NoLog, so.Logtime, so.LogtimeUTC = true, "", false, true, true
	if so.Host, so.Port, err = splitAddr(c.Client); err != nil {
		return err
	}
	if so.Cluster.Host, so.Cluster.Port, err = splitAddr(c.Cluster); err != nil {
		return err
	}
	so.Cluster.NoAdvertise, so.Cluster.Advertise = true, nowhere
	so.Routes = server.RoutesFromStr(strings.Join(c.Routes, ","))
	ns, err := server.NewServer(so)
	if err != nil {
		return err
	}
	ns.ConfigureLogger()
	go ns.Start()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func splitAddr(addr string) (string, int, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.Atoi(p)
	return host, port, err
}

// Nodes are three NATS servers as processes of their own, which a test kills, stops and cuts off. They run with
// docker/nats/cluster.conf, addresses and store excepted.
type Nodes struct {
	nodes [nodes]*node
	sites []*Site
	probe *nats.Conn
}

type node struct {
	child
	config nodeConfig
	log    string
	links  [nodes]*Link // from this node to the others
}

// StartNodes starts three nodes and waits until streams with three replicas can be made. They end with the test.
func StartNodes(t testing.TB) *Nodes {
	t.Helper()
	n := &Nodes{}
	clients, routes := freePorts(t, nodes), freePorts(t, nodes)
	file, err := filepath.Abs(clusterConf(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		n.nodes[i] = &node{log: filepath.Join(t.TempDir(), name+".log"), config: nodeConfig{
			File: file, Name: name, Dir: t.TempDir(),
			Client: "127.0.0.1:" + strconv.Itoa(clients[i]), Cluster: "127.0.0.1:" + strconv.Itoa(routes[i]),
		}}
	}
	for i, from := range n.nodes {
		for j, to := range n.nodes {
			if i != j {
				from.links[j] = NewLink(t, to.config.Cluster)
				from.config.Routes = append(from.config.Routes, "nats://"+from.links[j].Addr())
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

// clusterConf finds the configuration of clusters from a package's directory.
func clusterConf(t testing.TB) string {
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "docker", "nats", "cluster.conf")
		}
		if len(dir) > 100 {
			t.Fatal("no go.mod above the test's directory")
		}
	}
}

// awaitQuorum waits until a stream can be made on three nodes.
func (n *Nodes) awaitQuorum(t testing.TB) {
	t.Helper()
	api := js(t, n.probe)
	const name = topology.PushDeadStream // one that this user may make
	Eventually(t, "the nodes make a stream with three replicas", func() bool {
		_, err := api.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: name, Storage: jetstream.MemoryStorage, Replicas: nodes})
		return err == nil && api.DeleteStream(t.Context(), name) == nil
	})
}

// Start starts node i, which is down, on its directory and ports. It does not wait for it.
func (n *Nodes) Start(t testing.TB, i int) {
	t.Helper()
	x := n.nodes[i]
	x.start(t, x.config, x.log, "NATS_NODE="+x.config.Name, "NATS_STORE="+x.config.Dir, "NATS_USER="+nodeUser, "NATS_PASSWORD="+nodePassword, "NATS_ISSUER="+nodeIssuer)
}

// Kill ends node i as kill -9 does and returns when it is gone. Killing one that is down does nothing.
func (n *Nodes) Kill(t testing.TB, i int) {
	t.Helper()
	n.nodes[i].kill()
}

// Pause pauses node i (SIGSTOP); Resume continues it.
func (n *Nodes) Pause(t testing.TB, i int) { n.signal(t, i, syscall.SIGSTOP) }

// Resume ends Pause (SIGCONT).
func (n *Nodes) Resume(t testing.TB, i int) { n.signal(t, i, syscall.SIGCONT) }

func (n *Nodes) signal(t testing.TB, i int, sig syscall.Signal) {
	t.Helper()
	if err := n.nodes[i].cmd.Process.Signal(sig); err != nil {
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
func (n *Nodes) Leader(t testing.TB, stream string) int {
	t.Helper()
	leader := -1
	Eventually(t, "stream "+stream+" has a leader", func() bool {
		leader = n.leader(stream)
		return leader >= 0
	})
	return leader
}

// leader returns the node that leads a stream, -1 if unknown. Without a leader every replica answers; such an answer names
// none.
func (n *Nodes) leader(stream string) int {
	reply, err := n.probe.Request("$JS.API.STREAM.INFO."+stream, nil, time.Second)
	if err != nil {
		return -1
	}
	var info struct {
		Cluster struct {
			Leader string `json:"leader"`
		} `json:"cluster"`
	}
	if json.Unmarshal(reply.Data, &info) != nil {
		return -1
	}
	for i, x := range n.nodes {
		if x.config.Name == info.Cluster.Leader && x.cmd != nil {
			return i
		}
	}
	return -1
}

// unstick is the time after which a stream whose replicas do not catch up gets another leader.
const unstick = 15 * time.Second

// Current waits until the stream has all its replicas, none of which lags. In nats-server 2.15 a replica that was cut off can
// restart its catch-up every 2 s without end ("Expected first catchup entry to be a snapshot and peerstate"); another leader
// ends that, as it would for an operator.
func (n *Nodes) Current(t testing.TB, stream string) {
	t.Helper()
	Current(t, n.probe, stream)
}

// Current is Nodes.Current for any cluster of three nodes.
func Current(t testing.TB, nc *nats.Conn, stream string) {
	t.Helper()
	since := time.Now()
	Eventually(t, "stream "+stream+" has three current replicas", func() bool {
		reply, err := nc.Request("$JS.API.STREAM.INFO."+stream, nil, time.Second)
		if err != nil {
			return false
		}
		var info struct {
			Cluster struct {
				Leader   string `json:"leader"`
				Replicas []struct {
					Name    string `json:"name"`
					Current bool   `json:"current"`
					Offline bool   `json:"offline"`
				} `json:"replicas"`
			} `json:"cluster"`
		}
		if json.Unmarshal(reply.Data, &info) != nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) != nodes-1 {
			return false
		}
		for _, r := range info.Cluster.Replicas {
			if r.Current && !r.Offline {
				continue
			}
			if time.Since(since) > unstick {
				since = time.Now()
				t.Logf("stream %s: %s does not catch up with %s, which is to step down", stream, r.Name, info.Cluster.Leader)
				_, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, time.Second) // else once more, later
			}
			return false
		}
		return true
	})
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
	links [nodes]*Link
}

// Site makes a location.
func (n *Nodes) Site(t testing.TB) *Site {
	t.Helper()
	s := &Site{}
	for i, x := range n.nodes {
		s.links[i] = NewLink(t, x.config.Client)
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
	return connect(t, s.URL(), opts...)
}
