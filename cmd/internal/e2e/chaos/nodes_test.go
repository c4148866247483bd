package chaos

import (
	"cmp"
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

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/dial"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var (
	nodeFaults = flag.Int("chaos.faults", 0, "how many faults the cluster of processes meets while rates are measured; 0 = one, not measured")
	nodeKind   = flag.String("chaos.kind", "", "only faults whose names match this regular expression happen to the cluster of processes")
	nodeLanes  = flag.Int("chaos.lanes", 2, "lanes of the cluster of processes")
)

const (
	// Goals of a replicated log: the usual rate again after a fault, in the median and at worst.
	goalMedian = 10 * time.Second
	goalWorst  = 20 * time.Second
	// A fault lasts from holdLeast to holdMost. A cut lasts cutLonger more: a node that was cut off makes JetStream elect its
	// leaders again when it is back. That is a second disturbance, held to the same goal, and must not begin before the first
	// one has met or missed it; nor may a cut that is healed too early hide that it would have lasted.
	holdLeast = 5 * time.Second
	holdMost  = 12 * time.Second
	cutLonger = goalWorst
	// crowded is the share of all cores from which on other work on the machine makes a measurement void; the fault is then
	// repeated, mostVoid times as often as faults were to be measured.
	crowded  = 0.5
	mostVoid = 1
	// watchFor and watchEnd are for how long the rate is watched after the beginning and the end of a fault, at least.
	watchFor = 16 * time.Second
	watchEnd = 8 * time.Second
	// enough answers of each lane show that it works.
	enough = 10
)

// plant is a replicated log on three nodes that are processes, with two scrip servers that share its lanes. Nodes, servers
// and callers reach each other through links that can be cut.
type plant struct {
	t       *testing.T
	rng     *rand.Rand
	nodes   *streamtest.Nodes
	sites   []*streamtest.Site // of the servers
	servers []*e2e.Server
	log     topology.Log
	js      jetstream.JetStream
	callers *callers
}

func newPlant(t *testing.T, seed uint64, rng *rand.Rand, lanes int) *plant {
	t.Helper()
	p := &plant{t: t, rng: rng, nodes: streamtest.StartNodes(t)}
	for range 2 {
		site := p.nodes.Site(t)
		p.sites = append(p.sites, site)
		p.servers = append(p.servers, newServer(t, "--nats", site.URL(), "--replicas", "3", "--lanes", fmt.Sprint(lanes), "--roles", "lanes,scheduler,api"))
	}
	site := p.nodes.Site(t)
	var err error
	if p.js, err = jetstream.New(site.Conn(t, dial.Options("chaos")...)); err != nil {
		t.Fatal(err)
	}
	found := false
	if p.log, found, err = topology.Inspect(t.Context(), p.js); err != nil || !found {
		t.Fatalf("the log: %v, %v", found, err)
	}
	p.callers = startCallers(t, site, p.log.Lanes, seed)
	return p
}

// blow is one kind of fault. It begins, and returns how it ends.
type blow struct {
	name  string
	begin func() (end func())
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
			p.nodes.Pause(p.t, i)
			return func() { p.nodes.Resume(p.t, i) }
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
			p.t.Fatalf("a lane has answered nobody for %s", patience)
		}
	}
}

// whole waits until all replicas of all streams are current.
func (p *plant) whole() {
	p.t.Helper()
	p.nodes.Current(p.t, topology.LeaseStream)
	for lane := range p.log.Lanes {
		p.nodes.Current(p.t, topology.CmdStream(lane))
		p.nodes.Current(p.t, topology.EvtStream(lane))
	}
}

// measured is what one fault did.
type measured struct {
	blow     string
	silence  time.Duration // the longest of any lane
	back     time.Duration
	late     float64 // share of the usual rate at lateAt
	endQuiet time.Duration
	endBack  time.Duration // after the fault's end
	others   float64       // share of all cores that other processes had
}

// measure lets a fault happen and watches the rate.
func (p *plant) measure(b blow) measured {
	t := p.t
	t.Helper()
	line := p.callers.timeline
	p.whole()
	until(time.Now().Add(usualOver))
	hold := holdLeast + time.Duration(p.rng.Int64N(int64(holdMost-holdLeast)))
	if strings.Contains(b.name, "cut off") {
		hold += cutLonger
	}
	at, before := time.Now(), lookAtMachine()
	usual := line.usual(at)
	end := b.begin()
	until(at.Add(hold))
	over := time.Now()
	end()
	m := measured{blow: b.name}
	until(at.Add(max(watchFor, hold+watchEnd)))
	for deadline := time.Now().Add(patience); ; until(time.Now().Add(time.Second)) {
		now := time.Now()
		var back, endBack bool
		m.back, back = line.back(at, now, usual)
		m.endBack, endBack = line.back(over, now, usual)
		if back && endBack {
			m.silence, m.endQuiet = line.silence(at, over), line.silence(over, now)
			break
		}
		if now.After(deadline) {
			t.Fatalf("%s: the usual rate of %.0f a second is not back; it is %.0f", b.name, usual, line.rate(now.Add(-backOver), backOver))
		}
	}
	m.late = line.rate(at.Add(lateAt), backOver) / usual
	m.others = lookAtMachine().others(before)
	t.Logf("%s %-48s for %4.1fs: usual %3.0f/s, silence %5.1fs, back after %5.1fs, %3.0f %% after 10 s; its end: silence %5.1fs, back after %5.1fs; other work had %2.0f %% of the cores",
		at.UTC().Format("15:04:05"), b.name, hold.Seconds(), usual, m.silence.Seconds(), m.back.Seconds(), 100*m.late, m.endQuiet.Seconds(), m.endBack.Seconds(), 100*m.others)
	return m
}

// TestChaosOfNodeProcesses: nodes and servers die, stop and are cut off without a FIN, one at a time. No answered claim may
// be lost or doubled, and claims go on.
func TestChaosOfNodeProcesses(t *testing.T) {
	beside(t)
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
	var all []measured
	void := 0
	if *nodeFaults == 0 { // the node that leads the leases is killed
		began, end := time.Now(), blows[0].begin()
		p.working(time.Now())
		t.Logf("%s: every lane answers again after %s", blows[0].name, time.Since(began).Round(10*time.Millisecond))
		end()
	}
	began := time.Now()
	for order := rng.Perm(len(blows)); len(all) < *nodeFaults && (*runFor == 0 || time.Since(began) < *runFor); order = order[1:] {
		if len(order) == 0 {
			order = rng.Perm(len(blows))
		}
		m := p.measure(blows[order[0]])
		if m.others < crowded {
			all = append(all, m)
			continue
		}
		if void++; void > mostVoid**nodeFaults {
			t.Errorf("other work had more than %.0f %% of the cores during %d faults; measure on an idle machine", 100*crowded, void)
			break
		}
		t.Logf("the one above does not count: the machine was busy with other work")
	}
	p.working(time.Now())
	p.callers.end()
	p.settle()
	if void > 0 {
		t.Logf("%d faults do not count, as the machine was busy with other work", void)
	}
	if len(all) > 0 {
		report(t, s, all)
	}
	t.Logf("soak: %d faults of nodes and servers", len(all)+void)
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

// report prints what the faults did, by kind, and holds it against the goal.
func report(t *testing.T, seed uint64, all []measured) {
	byKind := map[string][]measured{}
	for _, m := range all {
		byKind[m.blow] = append(byKind[m.blow], m)
	}
	median := func(list []measured, of func(measured) float64) (mid, worst float64) {
		var values []float64
		for _, m := range list {
			values = append(values, of(m))
		}
		slices.Sort(values)
		return values[len(values)/2], values[len(values)-1]
	}
	silence := func(m measured) float64 { return m.silence.Seconds() }
	back := func(m measured) float64 { return m.back.Seconds() }
	endBack := func(m measured) float64 { return m.endBack.Seconds() }
	lost := func(m measured) float64 { return -100 * m.late } // the worst is the least
	var out strings.Builder
	row := func(name string, list []measured) {
		s, sWorst := median(list, silence)
		b, bWorst := median(list, back)
		l, lWorst := median(list, lost)
		e, eWorst := median(list, endBack)
		fmt.Fprintf(&out, "%-48s %3d | %5.1f %5.1f | %5.1f %5.1f | %4.0f %4.0f | %5.1f %5.1f\n", name, len(list), s, sWorst, b, bWorst, -l, -lWorst, e, eWorst)
	}
	kinds := make([]string, 0, len(byKind))
	for kind := range byKind {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b string) int { return cmp.Compare(a, b) })
	for _, kind := range kinds {
		row(kind, byKind[kind])
	}
	row("all", all)
	t.Logf("seed %d, %d faults; median and worst of: seconds a lane was silent | seconds until %.0f %% of the usual rate | %% of it after 10 s | seconds until %.0f %% after the fault's end\n%s",
		seed, len(all), 100*backShare, 100*backShare, out.String())
	for of, what := range map[string]func(measured) float64{"beginning": back, "end": endBack} {
		if mid, worst := median(all, what); mid > goalMedian.Seconds() || worst > goalWorst.Seconds() {
			t.Errorf("the usual rate was back %.1f s after a fault's %s in the median and %.1f s at worst; the goal is %s and %s", mid, of, worst, goalMedian, goalWorst)
		}
	}
}
