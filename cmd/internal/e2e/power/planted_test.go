package power

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// careful is how the NATS store's marker is written; careless is how it once was, without an fsync.
const (
	careful  = `atomicfile.Write(filepath.Join(s.dir, markerFile), append(data, '\n'), 0o600)`
	careless = `func() error {
		path := filepath.Join(s.dir, markerFile)
		return errors.Join(os.WriteFile(path+".new", append(data, '\n'), 0o600), os.Rename(path+".new", path))
	}()`
)

// TestTheMarkersFsyncIsNeeded builds scrip without the fsync of the NATS store's marker. Cuts must find that out: the server
// does not start any more. With the fsync it starts after each cut of TestPowerCuts.
func TestTheMarkersFsyncIsNeeded(t *testing.T) {
	m := newMachine(t, 1)
	program := carelessBinary(t)
	for data, plan := range map[string]Plan{"first": KeepNames, "second": DropAll} {
		args := []string{"--nats-listen", "127.0.0.1:0", "--roles", "lanes,api"}
		m.ready(m.start(program, data, args...))
		m.cutBy(plan)
		p := m.start(program, data, args...)
		if _, err := p.Ready(); err == nil || !strings.Contains(p.Output(), "scrip-nats.json is damaged") {
			t.Errorf("%s: after the cut: %v\n%s", plan, err, p.Output())
		}
	}
}

// TestLostClaimsAreFound: a server that does not sync what it answers loses claims in a cut, and the test sees which.
func TestLostClaimsAreFound(t *testing.T) {
	m := newMachine(t, 1)
	args := []string{"--nats-listen", streamtest.Address(t), "--roles", "lanes,api", "--sync", "interval"}
	d := m.ready(m.start(e2e.Binary(), "scrip", args...))
	a := e2e.NewLedger()
	l := m.apply(d.NATSURL, a)
	<-l.allow(200)
	claims, _ := a.Answers()
	m.cutBy(DropAll)
	p := m.start(e2e.Binary(), "scrip", args...)
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

// carelessBinary builds the program with the bug.
func carelessBinary(t *testing.T) string {
	t.Helper()
	source, err := filepath.Abs("../../../../streams/natsd/marker.go")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(raw), careful) != 1 {
		t.Fatalf("%s does not hold %s; adapt this test to how the marker is written", source, careful)
	}
	dir := t.TempDir()
	planted, overlay, program := filepath.Join(dir, "marker.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "scrip")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {source: planted}})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{planted: strings.Replace(string(raw), careful, careless, 1), overlay: string(replace)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := e2e.BuildOf(program, e2e.Program, "-overlay", overlay); err != nil {
		t.Fatal(err)
	}
	return program
}
