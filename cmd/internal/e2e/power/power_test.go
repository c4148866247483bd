package power

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

var (
	rounds  = flag.Int("power.rounds", 3, "how many scenes TestPowerCuts plays, each with a cut or more")
	lasting = flag.Duration("power.for", 0, "no scene starts later than that; 0 = no limit")
	only    = flag.String("power.only", "", "the one scene to play, such as backup")
	seed    = flag.Uint64("power.seed", 0, "repeats the choices of a run; 0 = a new one")
)

// world is one server that lives through all rounds, and what was answered by it.
type world struct {
	*machine
	got   *e2e.Ledger
	port  string
	url   string
	main  *e2e.Process // the newest of the server
	load  *load
	files int // for new names
	first int // answered claims of servers that were started again

	backups []backupMade
	keys    *keyBook
	rounds  map[string]int // by scene
}

// scene is what a power cut meets. It ends with the server ready again.
type scene struct {
	name string
	play func(*world)
}

// scenes are all of them, in the order of the first rounds.
var scenes = []scene{
	{"claims", (*world).claims},
	{"changes of keys", (*world).changeKeys},
	{"restart", (*world).restart},
	{"first start", (*world).firstStart},
	{"backup", (*world).backup},
	{"restore", (*world).restore},
	{"replay --name", (*world).replay},
	{"clean stop and snapshot", (*world).stop},
}

// TestPowerCuts cuts the power at random moments of random doings. Each time the server starts again; each answered claim is
// in the log with its code, and none twice.
func TestPowerCuts(t *testing.T) {
	from := *seed
	if from == 0 {
		from = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", from)
	played := slices.Clone(scenes)
	if *only != "" {
		played = slices.DeleteFunc(played, func(s scene) bool { return s.name != *only })
	}
	if len(played) == 0 {
		t.Fatalf("there is no scene %q", *only)
	}
	started := time.Now()
	w := &world{machine: newMachine(t, from), got: e2e.NewLedger(), keys: newKeyBook(), port: streamtest.Address(t), rounds: map[string]int{}}
	w.up()
	w.load = w.apply(w.url, w.got)
	defer w.load.end()
	for round := 0; round < *rounds && (*lasting == 0 || time.Since(started) < *lasting) && !t.Failed(); round++ {
		scene := played[round%len(played)]
		if round >= len(played) {
			scene = played[w.rng.IntN(len(played))]
		}
		at, cuts := time.Now(), w.cuts
		scene.play(w)
		w.rounds[scene.name] += w.cuts - cuts
		w.check()
		t.Logf("round %d, %s, %.1f s: %s", round+1, scene.name, time.Since(at).Seconds(), w.reports[len(w.reports)-1])
	}
	w.verify()
	claims, redeemed := w.got.Answers()
	dropped := 0
	for _, r := range w.reports {
		dropped += r.NamesDropped + r.PagesDropped
	}
	t.Logf("soak: %d power cuts", w.cuts)
	t.Logf("%v, %d names and pages dropped: %d answered claims, %d answered redemptions, %d answered changes of keys",
		w.rounds, dropped, len(claims)+w.first, len(redeemed), len(w.keys.recorded))
	if len(claims)+len(w.keys.recorded) == 0 || dropped == 0 {
		t.Error("nothing was tested")
	}
}

// up starts the server, which must become ready.
func (w *world) up() {
	w.t.Helper()
	w.url = w.ready(w.serve()).NATSURL
}

func (w *world) serve() *e2e.Process {
	w.t.Helper()
	w.main = w.start("scrip", "--nats-listen", w.port)
	return w.main
}

// check holds the log against all answers, and now and then the tables against the log.
func (w *world) check() {
	w.t.Helper()
	claims, redeemed := w.got.Answers()
	w.judge(w.url, claims, redeemed)
	w.got.Report(w.t)
	if w.rng.IntN(10) == 0 {
		w.verify()
	}
}

func (w *world) verify() { w.must("verify", "--data", w.path("scrip")) }

// name is a new name of a file or directory.
func (w *world) name(kind string) string {
	w.files++
	return fmt.Sprintf("%s-%d", kind, w.files)
}

// TestLostClaimsAreFound: a server that does not sync what it answers loses claims in a cut, and the test sees which.
func TestLostClaimsAreFound(t *testing.T) {
	m := newMachine(t, 1)
	args := []string{"--nats-listen", streamtest.Address(t), "--roles", "lanes,api", "--sync", "interval"}
	d := m.ready(m.start("scrip", args...))
	a := e2e.NewLedger()
	l := m.apply(d.NATSURL, a)
	<-l.allow(200)
	claims, _ := a.Answers()
	m.cutBy(DropAll)
	p := m.start("scrip", args...)
	l.end()
	d, err := p.Ready()
	if err != nil {
		return // that the log is gone is seen as well
	}
	js, closed := m.jetStream(d.NATSURL)
	defer closed()
	fold, _, err := e2e.ReadLog(bounded(t), js)
	if err == nil && len(e2e.Missing(fold, claims, nil)) == 0 {
		t.Errorf("none of %d claims is lost, though none was synced", len(claims))
	}
}
