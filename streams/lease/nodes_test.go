package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/dial"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// worker counts what one manager of 64 leases works on.
type worker struct {
	site  *streamtest.Site
	at    atomic.Int64 // leases it works on
	ended atomic.Int64 // works that were cancelled
}

// TestSixtyFourLeasesOnNodesThatDie: kill -9 of the node that leads the bucket takes no lease from anybody, and the leases of
// a server that is cut off without a FIN all go to the other one, and come back.
func TestSixtyFourLeasesOnNodesThatDie(t *testing.T) {
	const many = 64
	nodes := streamtest.StartNodes(t)
	js, err := jetstream.New(nodes.Site(t).Conn(t, dial.Options("test")...))
	if err != nil {
		t.Fatal(err)
	}
	streamtest.Eventually(t, "the log is made", func() bool {
		_, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, Replicas: 3, KeyFingerprint: "test"})
		return err == nil
	})
	run := func(name string) *worker {
		w := &worker{site: nodes.Site(t)}
		js, err := jetstream.New(w.site.Conn(t, dial.Options(name)...))
		if err != nil {
			t.Fatal(err)
		}
		m, err := lease.New(js, "lane", many, name, lease.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = m.Run(ctx, func(ctx context.Context, _ int) error {
				w.at.Add(1)
				<-ctx.Done()
				w.at.Add(-1)
				w.ended.Add(1)
				return nil
			})
		}()
		t.Cleanup(func() { cancel(); <-done })
		return w
	}
	a, b := run("a"), run("b")
	shared := func() bool { return a.at.Load() == many/2 && b.at.Load() == many/2 }
	streamtest.Eventually(t, "the leases are shared", shared)

	ended := a.ended.Load() + b.ended.Load()
	leader := nodes.Leader(t, topology.LeaseStream)
	before := announced(t, js)
	nodes.Kill(t, leader)
	began := time.Now()
	streamtest.Eventually(t, "both servers are announced again", func() bool {
		now := announced(t, js)
		return now["a"] > before["a"] && now["b"] > before["b"]
	})
	t.Logf("kill -9 of the bucket's leader: announced again after %s", time.Since(began).Round(10*time.Millisecond))
	if lost := a.ended.Load() + b.ended.Load() - ended; lost > 0 || !shared() {
		t.Errorf("%d of %d leases were lost with the bucket's leader", lost, many)
	}
	nodes.Start(t, leader)
	nodes.Current(t, topology.LeaseStream)

	b.site.Cut(true, true)
	began = time.Now()
	streamtest.Eventually(t, "one server works on all", func() bool { return a.at.Load() == many })
	t.Logf("server cut off: the other has all leases after %s", time.Since(began).Round(10*time.Millisecond))
	b.site.Heal()
	streamtest.Eventually(t, "the leases are shared again", shared)
}

// announced is the revision at which each server was announced last; empty while the bucket does not answer.
func announced(t *testing.T, js jetstream.JetStream) map[string]uint64 {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	revisions := map[string]uint64{}
	for _, name := range []string{"a", "b"} {
		msg, _, err := topology.LastMessage(ctx, js, topology.LeaseStream, "$KV."+topology.LeaseBucket+".server.lane."+name)
		if err != nil {
			return map[string]uint64{}
		}
		revisions[name] = msg.Sequence
	}
	return revisions
}
