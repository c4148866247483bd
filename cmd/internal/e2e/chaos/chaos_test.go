package chaos

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var (
	runFor = flag.Duration("chaos.for", 0, "how long, shared by the two worlds; less than each fault needs to happen once is not enough")
	seed   = flag.Uint64("chaos.seed", 0, "repeats the choices of a run, not its timing; 0 = a new one")

	reminders = flag.Int("chaos.reminders", 5_000, "how many are set in each world, in tenths that are due at one instant each, during faults")
)

func chance(t *testing.T) (uint64, *rand.Rand) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	return s, rand.New(rand.NewPCG(s, 1))
}

func jsonError(data []byte) int {
	var answer struct {
		Error struct {
			Code int `json:"err_code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(data, &answer) // no JSON is no error of ours
	return answer.Error.Code
}

// beside lets a short test run at the same time as the others, which wait most of the time. Worlds that run for long, and
// rates that are measured, have the machine to themselves.
func beside(t *testing.T) {
	if *runFor == 0 && *nodeFaults == 0 {
		t.Parallel()
	}
}

const zombie = "owner stopped in its tracks, another takes over, the first wakes up"

// TestChaosOfOneServer: everything in one process but PostgreSQL.
func TestChaosOfOneServer(t *testing.T) {
	beside(t)
	began := time.Now()
	s, rng := chance(t)
	w := &world{t: t, rng: rng, db: projtest.Cluster(t)}
	srv := newServer(t, "--nats-listen", streamtest.Address(t), "--postgres", w.db.URL())
	w.connect(srv.Desc.NATSURL)
	w.faults = []fault{
		{"kill -9", func() { srv.Kill(); srv.Up(); w.happened("kill -9") }},
		{"clean restart", func() {
			if code := srv.Stop(); code != 0 {
				t.Fatalf("the clean stop: exit code %d", code)
			}
			srv.Up()
			w.happened("clean restart")
		}},
		w.postgres(), w.twice(), w.full(),
	}
	w.run(s, began.Add(*runFor/2))
}

// TestChaosOfTwoServersOnThreeNodes: a replicated log in a cluster of its own, and two servers that share the lanes.
func TestChaosOfTwoServersOnThreeNodes(t *testing.T) {
	beside(t)
	began := time.Now()
	s, rng := chance(t)
	nodes := streamtest.StartCluster(t)
	w := &world{t: t, rng: rng, db: projtest.Cluster(t)}
	args := []string{"--nats", nodes.URL(), "--postgres", w.db.URL(), "--replicas", "3", "--lanes", "2"}
	servers := []*e2e.Server{newServer(t, args...), newServer(t, append(args, "--roles", "lanes,scheduler,api")...)}
	w.connect(nodes.URL())
	w.faults = []fault{
		{"kill -9", func() { s := servers[rng.IntN(2)]; s.Kill(); s.Up(); w.happened("kill -9") }},
		{zombie, func() {
			lane := rng.IntN(w.log.Lanes)
			var victim *e2e.Server
			streamtest.Eventually(t, "somebody holds the lane", func() bool {
				status, err := lease.Inspect(t.Context(), w.js, "lane", w.log.Lanes)
				if err != nil {
					return false
				}
				for _, s := range servers {
					if status.Holders[lane].Server == id(t, s) {
						victim = s
					}
				}
				return victim != nil
			})
			before := w.owners()[lane]
			victim.Signal(syscall.SIGSTOP)
			streamtest.Eventually(t, "the lane is taken over", func() bool { return w.owners()[lane] != before })
			victim.Signal(syscall.SIGCONT)
			w.happened(zombie)
		}},
		{"leader steps down", func() {
			nodes.StepDown(t, topology.EvtStream(rng.IntN(w.log.Lanes)))
			w.happened("leader steps down")
		}},
		{"leader's node stops and starts", func() {
			leader := nodes.StreamLeader(t, topology.EvtStream(rng.IntN(w.log.Lanes)))
			nodes.Stop(t, leader)
			w.calm(200)
			nodes.Start(t, leader)
			w.happened("leader's node stops and starts")
		}},
		w.postgres(), w.twice(), w.full(),
	}
	w.run(s, began.Add(*runFor/2))
}
