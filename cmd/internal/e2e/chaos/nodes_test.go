package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var (
	nodeFaults = flag.Int("chaos.faults", 0, "how many faults the cluster of processes meets while the silence of lanes is measured; 0 = the other worlds")
	nodeKind   = flag.String("chaos.kind", "", "only faults whose names match this regular expression happen to the cluster of processes")
	nodeLanes  = flag.Int("chaos.lanes", 4, "lanes of the cluster of processes")
)

const (
	// Goals of a replicated log: for how long a lane does not answer because of a fault, in the median and at worst.
	goalMedian = 10 * time.Second
	goalWorst  = 20 * time.Second
	// A fault lasts from holdLeast to holdMost, a cut cutLonger more: no healing hides that a lane would have stayed silent. A
	// node that was cut off makes JetStream elect its leaders again when it is back, a second disturbance with the same goal.
	holdLeast = 5 * time.Second
	holdMost  = 12 * time.Second
	cutLonger = 10 * time.Second
	// watchEnd is for how long the lanes are watched after the end of a fault.
	watchEnd = 8 * time.Second
)

// plant is a replicated log on three nodes that are processes, with two scrip servers that share its lanes. Nodes, servers
// and callers reach each other through links that can be cut.
type plant struct {
	t       *testing.T
	rng     *rand.Rand
	nodes   *Nodes
	sites   []*Site // of the servers
	servers []*e2e.Server
	log     topology.Log
	js      jetstream.JetStream
	callers *callers
	probes  int
}

func newPlant(t *testing.T, seed uint64, rng *rand.Rand, lanes int) *plant {
	t.Helper()
	p := &plant{t: t, rng: rng, nodes: StartNodes(t)}
	for range 2 {
		site := p.nodes.Site(t)
		p.sites = append(p.sites, site)
		p.servers = append(p.servers, newServer(t, "--nats", site.URL(), "--replicas", "3", "--lanes", fmt.Sprint(lanes), "--roles", "lanes,scheduler,api"))
	}
	site := p.nodes.Site(t)
	var err error
	if p.js, err = jetstream.New(site.Conn(t, natsx.Options("chaos")...)); err != nil {
		t.Fatal(err)
	}
	found := false
	if p.log, found, err = topology.Inspect(t.Context(), p.js); err != nil || !found {
		t.Fatalf("the log: %v, %v", found, err)
	}
	p.callers = startCallers(t, site, p.log.Lanes, seed)
	return p
}

// blow is one kind of fault. It returns how it ends.
type blow struct {
	name  string
	start func() (end func())
}

func (p *plant) blows() []blow {
	anyNode := func() int { return p.rng.IntN(3) }
	leases := func() int { return p.nodes.Leader(p.t, topology.LeaseStream) }
	streams := func() int { return p.nodes.Leader(p.t, p.stream()) }
	kill := func(which func() int) func() func() {
		return func() func() {
			i := which()
			p.nodes.Kill(p.t, i)
			return func() { p.nodes.Start(p.t, i) }
		}
	}
	cut := func(sent, received bool) func() func() {
		return func() func() {
			i := streams()
			p.nodes.Cut(i, sent, received)
			return func() { p.nodes.Heal(i) }
		}
	}
	cutServer := func(sent, received bool) func() func() {
		return func() func() {
			site := p.sites[p.rng.IntN(len(p.sites))]
			site.Cut(sent, received)
			return site.Heal
		}
	}
	return []blow{
		{"kill -9 of the node that leads the leases", kill(leases)},
		{"kill -9 of the node that leads a lane's stream", kill(streams)},
		{"kill -9 of any node", kill(anyNode)},
		{"SIGSTOP of the node that leads a lane's stream", func() func() {
			i := streams()
			p.nodes.Signal(p.t, i, syscall.SIGSTOP)
			return func() { p.nodes.Signal(p.t, i, syscall.SIGCONT) }
		}},
		{"node cut off", cut(true, true)},
		{"node cut off: sends nothing", cut(true, false)},
		{"node cut off: receives nothing", cut(false, true)},
		{"node cut off from the other nodes only", func() func() {
			i := streams()
			p.nodes.CutRoutes(i, true, true)
			return func() { p.nodes.Heal(i) }
		}},
		{"kill -9 of a server", func() func() {
			s := p.servers[p.rng.IntN(len(p.servers))]
			s.Kill()
			return s.Up
		}},
		{"SIGSTOP of a server", func() func() {
			s := p.servers[p.rng.IntN(len(p.servers))]
			s.Signal(syscall.SIGSTOP)
			return func() { s.Signal(syscall.SIGCONT) }
		}},
		{"server cut off", cutServer(true, true)},
		{"server cut off: sends nothing", cutServer(true, false)},
		{"server cut off: receives nothing", cutServer(false, true)},
	}
}

// stream is a lane's command or event stream.
func (p *plant) stream() string {
	lane := p.rng.IntN(p.log.Lanes)
	if p.rng.IntN(2) == 0 {
		return topology.CmdStream(lane)
	}
	return topology.EvtStream(lane)
}

// working waits until every lane answers again.
func (p *plant) working() {
	p.t.Helper()
	for _, campaign := range p.callers.campaigns {
		streamtest.Eventually(p.t, campaign+" is answered", func() bool {
			p.probes++
			customer := fmt.Sprint("probe-", p.probes)
			out, err := p.callers.sdk.Claim(p.t.Context(), campaign, customer)
			return p.callers.ledger.Claimed(campaign, customer, out, err)
		})
	}
}

// whole waits until all replicas of all streams are current.
func (p *plant) whole() {
	p.t.Helper()
	streamtest.Current(p.t, p.nodes.probe, topology.LeaseStream)
	for lane := range p.log.Lanes {
		streamtest.Current(p.t, p.nodes.probe, topology.CmdStream(lane))
		streamtest.Current(p.t, p.nodes.probe, topology.EvtStream(lane))
	}
}

// measure lets a fault happen and watches the lanes. It returns the longest times for which one did not answer: while the fault
// lasted, and after it.
func (p *plant) measure(b blow) (during, after time.Duration) {
	p.t.Helper()
	p.whole()
	hold := holdLeast + time.Duration(p.rng.Int64N(int64(holdMost-holdLeast)))
	if strings.Contains(b.name, "cut off") {
		hold += cutLonger
	}
	at := time.Now()
	end := b.start()
	until(at.Add(hold))
	over := time.Now()
	end()
	until(time.Now().Add(watchEnd))
	p.working()
	during, after = p.callers.timeline.silence(at, over), p.callers.timeline.silence(over, time.Now())
	p.t.Logf("%s %-48s for %4.1fs: silence %5.1fs; after its end %5.1fs", at.UTC().Format("15:04:05"), b.name, hold.Seconds(), during.Seconds(), after.Seconds())
	return during, after
}

// nodeProcesses: nodes and servers die, stop and are cut off without a FIN, one at a time. No answered claim may
// be lost or doubled, and claims go on.
func nodeProcesses(t *testing.T) {
	s, rng := chance(t)
	p := newPlant(t, s, rng, *nodeLanes)
	p.working()
	kinds, err := regexp.Compile(*nodeKind)
	if err != nil {
		t.Fatal(err)
	}
	blows := slices.DeleteFunc(p.blows(), func(b blow) bool { return !kinds.MatchString(b.name) })
	if len(blows) == 0 {
		t.Fatalf("no kind of fault matches %q", *nodeKind)
	}
	var silences []time.Duration
	started := time.Now()
	for n, order := 0, rng.Perm(len(blows)); n < *nodeFaults && (*runFor == 0 || time.Since(started) < *runFor); n++ {
		if len(order) == 0 {
			order = rng.Perm(len(blows))
		}
		during, after := p.measure(blows[order[0]])
		silences = append(silences, during, after)
		order = order[1:]
	}
	p.working()
	p.callers.end()
	p.settle()
	t.Logf("soak: %d faults of nodes and servers", len(silences)/2)
	slices.Sort(silences)
	if median, worst := silences[(len(silences)-1)/2], silences[len(silences)-1]; median > goalMedian || worst > goalWorst {
		t.Errorf("a lane was silent for %s in the median and for %s at worst; the goal is %s and %s", median, worst, goalMedian, goalWorst)
	}
}

// settle holds what was answered against the log.
func (p *plant) settle() {
	t := p.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	fold, _, err := e2e.ReadLog(ctx, p.js)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range fold.Violations[:min(len(fold.Violations), 10)] {
		t.Errorf("promise broken: %s", v)
	}
	p.callers.ledger.settle(t, fold)
}
