package chaos

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
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
	// enough answers of each lane show that it works.
	enough = 10
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

// working waits until every lane has answered again since a time.
func (p *plant) working(since time.Time) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); p.callers.timeline.least(since) < enough; until(time.Now().Add(20 * time.Millisecond)) {
		if time.Now().After(deadline) {
			p.t.Fatalf("a lane has not answered for %s", patience)
		}
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

// silences are the longest times for which a lane did not answer, by kind of fault: of each fault one while it lasted, and one
// after it.
type silences map[string][]time.Duration

// measure lets a fault happen and watches the lanes.
func (p *plant) measure(b blow, all silences) {
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
	p.working(time.Now())
	during, after := p.callers.timeline.silence(at, over), p.callers.timeline.silence(over, time.Now())
	all[b.name] = append(all[b.name], during, after)
	p.t.Logf("%s %-48s for %4.1fs: silence %5.1fs; after its end %5.1fs", at.UTC().Format("15:04:05"), b.name, hold.Seconds(), during.Seconds(), after.Seconds())
}

// nodeProcesses: nodes and servers die, stop and are cut off without a FIN, one at a time. No answered claim may
// be lost or doubled, and claims go on.
func nodeProcesses(t *testing.T) {
	s, rng := chance(t)
	p := newPlant(t, s, rng, *nodeLanes)
	p.working(time.Now())
	kinds, err := regexp.Compile(*nodeKind)
	if err != nil {
		t.Fatal(err)
	}
	blows := slices.DeleteFunc(p.blows(), func(b blow) bool { return !kinds.MatchString(b.name) })
	if len(blows) == 0 {
		t.Fatalf("no kind of fault matches %q", *nodeKind)
	}
	all, n, started := silences{}, 0, time.Now()
	for order := rng.Perm(len(blows)); n < *nodeFaults && (*runFor == 0 || time.Since(started) < *runFor); n++ {
		if len(order) == 0 {
			order = rng.Perm(len(blows))
		}
		p.measure(blows[order[0]], all)
		order = order[1:]
	}
	p.working(time.Now())
	p.callers.end()
	p.settle()
	all.report(t)
	t.Logf("soak: %d faults of nodes and servers", n)
}

// settle holds what was answered against the log.
func (p *plant) settle() {
	t := p.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	fold := check.NewFold()
	if _, err := fold.CatchUp(ctx, p.js, p.log); err != nil {
		t.Fatal(err)
	}
	for _, v := range fold.Violations[:min(len(fold.Violations), 10)] {
		t.Errorf("promise broken: %s", v)
	}
	p.callers.ledger.settle(t, fold)
}

// report prints how long lanes were silent, by kind, and compares all with the goal.
func (s silences) report(t *testing.T) {
	t.Helper()
	var sum []time.Duration
	for _, kind := range slices.Sorted(maps.Keys(s)) {
		t.Logf("%3d × %-48s silence of at most %5.1fs", len(s[kind])/2, kind, slices.Max(s[kind]).Seconds())
		sum = append(sum, s[kind]...)
	}
	if len(sum) == 0 {
		return
	}
	slices.Sort(sum)
	median, worst := sum[(len(sum)-1)/2], sum[len(sum)-1]
	if median > goalMedian || worst > goalWorst {
		t.Errorf("a lane was silent for %s in the median and for %s at worst; the goal is %s and %s", median, worst, goalMedian, goalWorst)
	}
}
