package streamtest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsd"
)

const (
	nodes = 3
	// reconnectWait is short because tests wait for it.
	reconnectWait = 20 * time.Millisecond
	globalAccount = "$G"
)

// Cluster is three servers in one process, joined over loopback.
type Cluster struct {
	Nodes [nodes]*natsd.Server // nil while stopped
	opts  [nodes]natsd.Options
}

// StartCluster starts three nodes and waits for a meta leader and its two followers. Streams with three replicas are
// then made at once. Options apply to each node, StoreDir and addresses excepted.
func StartCluster(t testing.TB, options ...Option) *Cluster {
	t.Helper()
	c := &Cluster{}
	clients, routes := freePorts(t, nodes), freePorts(t, nodes)
	var urls []string
	for _, p := range routes {
		urls = append(urls, fmt.Sprintf("nats://routes:%s@127.0.0.1:%d", password, p))
	}
	for i := range nodes {
		o := natsd.Options{Sync: natsd.SyncInterval, Logger: Logger(t)}
		for _, set := range options {
			set(&o)
		}
		o.StoreDir = t.TempDir()
		o.ServerName = fmt.Sprintf("n%d", i)
		o.Listen = "127.0.0.1:" + strconv.Itoa(clients[i])
		o.Cluster = &natsd.Cluster{Name: "test", Listen: "127.0.0.1:" + strconv.Itoa(routes[i]), User: "routes", Password: password, Routes: urls}
		c.opts[i] = o
		c.Start(t, i)
	}
	t.Cleanup(func() {
		for i := range nodes {
			c.Stop(t, i)
		}
	})
	Eventually(t, "the cluster has a meta leader with three peers", func() bool {
		for _, n := range c.Nodes {
			if n.Nats().JetStreamIsLeader() && len(n.Nats().JetStreamClusterPeers()) == nodes {
				return true
			}
		}
		return false
	})
	return c
}

// Start starts node i, which was stopped, on its directory and ports.
func (c *Cluster) Start(t testing.TB, i int) {
	t.Helper()
	n, err := natsd.Start(c.opts[i])
	if err != nil {
		t.Fatalf("starting node %d: %v", i, err)
	}
	c.Nodes[i] = n
}

// Stop stops node i. Stopping a stopped one does nothing.
func (c *Cluster) Stop(t testing.TB, i int) {
	t.Helper()
	if c.Nodes[i] == nil {
		return
	}
	c.Nodes[i].Shutdown()
	c.Nodes[i] = nil
}

// StreamLeader waits until the stream has a leader among the running nodes and returns its index.
func (c *Cluster) StreamLeader(t testing.TB, stream string) int {
	t.Helper()
	leader := -1
	Eventually(t, "stream "+stream+" has a leader", func() bool {
		for i, n := range c.Nodes {
			if n != nil && n.Nats().JetStreamIsStreamLeader(globalAccount, stream) {
				leader = i
				return true
			}
		}
		return false
	})
	return leader
}

// StepDown makes the stream's leader step down and waits for another one.
func (c *Cluster) StepDown(t testing.TB, stream string) {
	t.Helper()
	old := c.StreamLeader(t, stream)
	if err := c.Nodes[old].Nats().JetStreamStepdownStream(globalAccount, stream); err != nil {
		t.Fatalf("stepping down from %s: %v", stream, err)
	}
	since := time.Now()
	Eventually(t, "stream "+stream+" has another leader", func() bool {
		if c.StreamLeader(t, stream) != old {
			return true
		}
		if time.Since(since) > unstick { // it was elected again
			since = time.Now()
			_ = c.Nodes[old].Nats().JetStreamStepdownStream(globalAccount, stream)
		}
		return false
	})
}

// URL lists all nodes, running or not; a client tries one after the other.
func (c *Cluster) URL() string {
	var urls []string
	for _, o := range c.opts {
		urls = append(urls, "nats://"+o.Listen)
	}
	return strings.Join(urls, ",")
}

func (c *Cluster) credentials() []nats.Option {
	if o := c.opts[0]; o.Username != "" {
		return []nats.Option{nats.UserInfo(o.Username, o.Password)}
	}
	return nil
}

// Conn connects to any node until the test ends, reconnecting for ever.
func (c *Cluster) Conn(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return Connect(t, c.URL(), append(c.credentials(), opts...)...)
}

// JetStream connects to any node until the test ends.
func (c *Cluster) JetStream(t testing.TB, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	return js(t, c.Conn(t, opts...))
}

// unstick is the time after which a stream whose replicas do not catch up gets another leader.
const unstick = 15 * time.Second

// Current waits until the stream has all its replicas on a cluster of three nodes, none of which lags. In nats-server 2.15 a
// replica that was cut off can restart its catch-up every 2 s without end ("Expected first catchup entry to be a snapshot and
// peerstate"); another leader ends that, as it would for an operator.
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
