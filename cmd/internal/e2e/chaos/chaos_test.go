package chaos

import (
	"flag"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var (
	runFor = flag.Duration("chaos.for", 0, "how long, shared by the two worlds, or by the faults of -chaos.faults; 0 = two faults of one server")
	seed   = flag.Uint64("chaos.seed", 0, "repeats the choices of a run, not its timing; 0 = a new one")

	reminders = flag.Int("chaos.reminders", 2_000, "how many are set in each world, in tenths that are due at one instant each, during faults")
)

func chance(t *testing.T) (uint64, *rand.Rand) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	return s, rand.New(rand.NewPCG(s, 1))
}

// TestChaos has three worlds: one server with everything in one process but PostgreSQL; a replicated log in a cluster of its
// own, with two servers that share the lanes; and nodes that are processes, with -chaos.faults. A short run has the first
// alone: one node that is killed is in cmd/internal/cluster, one server in package crash.
func TestChaos(t *testing.T) {
	if *nodeFaults > 0 {
		t.Run("node processes", nodeProcesses)
		return
	}
	t.Run("one server", oneServer)
	if *runFor > 0 {
		t.Run("two servers on three nodes", twoServers)
	}
}

func oneServer(t *testing.T) {
	started := time.Now()
	s, rng := chance(t)
	w := newWorld(t, rng)
	srv := newServer(t, "--nats-listen", streamtest.Address(t), "--postgres", w.url)
	w.connect(srv.Desc.NATSURL)
	w.faults = []fault{{"kill -9", func() { srv.Kill(); srv.Up() }}, w.full()}
	if *runFor > 0 {
		w.faults = append(w.faults, w.restart(srv), w.postgres())
	}
	w.run(s, started.Add(*runFor/2))
}

func twoServers(t *testing.T) {
	started := time.Now()
	s, rng := chance(t)
	nodes := streamtest.StartCluster(t)
	w := newWorld(t, rng)
	args := []string{"--nats", nodes.URL(), "--postgres", w.url, "--replicas", "3", "--lanes", "2"}
	servers := []*e2e.Server{newServer(t, args...), newServer(t, append(args, "--roles", "lanes,scheduler,api")...)}
	w.connect(nodes.URL())
	w.faults = []fault{
		{"kill -9", func() { s := servers[rng.IntN(2)]; s.Kill(); s.Up() }},
		{"owner stopped in its tracks, another takes over, the first wakes up", func() {
			lane := rng.IntN(w.log.Lanes)
			victim := w.holder(lane, servers)
			before := e2e.Writers(t, w.js, w.log.Lanes)[lane]
			victim.Signal(syscall.SIGSTOP)
			streamtest.Eventually(t, "the lane is taken over", func() bool { return e2e.Writers(t, w.js, w.log.Lanes)[lane] != before })
			victim.Signal(syscall.SIGCONT)
		}},
		{"leader steps down", func() {
			nodes.StepDown(t, topology.EvtStream(rng.IntN(w.log.Lanes)))
		}},
		{"leader's node stops and starts", func() {
			leader := nodes.StreamLeader(t, topology.EvtStream(rng.IntN(w.log.Lanes)))
			nodes.Stop(t, leader)
			w.calm(200)
			nodes.Start(t, leader)
		}},
		w.restart(servers...), w.postgres(), w.full(),
	}
	w.run(s, started.Add(*runFor/2))
}

// restart stops one of the servers in order, as for an upgrade, and starts it again.
func (w *world) restart(servers ...*e2e.Server) fault {
	return fault{"clean restart", func() {
		s := servers[w.rng.IntN(len(servers))]
		if code := s.Stop(); code != 0 {
			w.t.Fatalf("the clean stop: exit code %d", code)
		}
		s.Up()
	}}
}

// holder waits until one of the servers holds a lane.
func (w *world) holder(lane int, servers []*e2e.Server) (victim *e2e.Server) {
	w.t.Helper()
	streamtest.Eventually(w.t, "one of the servers holds the lane", func() bool {
		status, err := lease.Inspect(w.t.Context(), w.js, "lane", w.log.Lanes)
		if err != nil {
			return false
		}
		for _, s := range servers {
			if status.Holders[lane].Server == id(w.t, s) {
				victim = s
			}
		}
		return victim != nil
	})
	return victim
}
