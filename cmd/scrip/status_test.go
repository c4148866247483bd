package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
)

// TestStatusShowsDueWork: the reminders that are set, with --data and with --nats; and the owner of each lane and its roles.
func TestStatusShowsDueWork(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t), "--lanes", "1", "--roles", "lanes,scheduler,api")
	in := func(d time.Duration) string { return time.Now().Add(d).Format(time.RFC3339) } // the command line's clock stands still in tests
	p.must("campaign", "create", "sale", "--codes", "10", "--opens", in(30*time.Minute), "--expires", in(40*time.Minute), "--priority", "high")
	p.must("campaign", "create", "later", "--codes", "10", "--opens", in(30*time.Hour), "--expires", in(40*time.Hour))
	p.must("remind", "sale", "--customer", "ann", "--kind", "opens", "--before", "10m")
	p.must("remind", "sale", "--customer", "bob", "--kind", "opens", "--before", "10m")
	p.must("remind", "later", "--customer", "bob", "--kind", "opens", "--before", "10m")
	d, err := datadir.Find(p.data)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"status"}, {"status", "--nats", d.NATSURL}} {
		var first map[string]any
		wait(t, "the reminders in "+strings.Join(args, " "), stopLimit, func() bool {
			first = p.must(args...)["lane"].([]any)[0].(map[string]any)
			backlog, known := first["backlog"].(map[string]any)
			return known && backlog["pending"] == 3.0
		})
		st := p.must(args...)
		its := st["server"].([]any)[0].(map[string]any)
		if its["server"] != first["holder"] || its["ready"] != true || fmt.Sprint(its["roles"]) != "[lanes scheduler api]" {
			t.Errorf("%v: %v, %v", args, its, first)
		}
	}
}

// TestReportsAreMadePrintable: a report may contain control characters.
func TestReportsAreMadePrintable(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b]0;b\a\nc"
	var out strings.Builder
	m := &Main{Out: &out}
	err := m.printStatus(&status.Status{
		PerLane:   []status.Lane{{Holder: evil, State: evil, Error: evil, Tables: evil}},
		PerServer: []status.Server{{Server: evil, Roles: []string{evil}, Settings: evil}},
		Checks:    map[string]status.Result{evil: {Detail: map[string]any{"Error": evil}}}, Note: evil, Sync: evil, NATS: evil, HTTP: evil, NoDeadLetters: evil,
	})
	if n := strings.Count(out.String(), "a?]0;b? c"); err != nil || n != 14 || strings.ContainsAny(out.String(), "\x1b\a") {
		t.Errorf("shown %d times, %v: %q", n, err, out.String())
	}
}

// TestStatusOfAServerThatHangs: of two servers one is stopped (SIGSTOP); status names it and is not ready.
func TestStatusOfAServerThatHangs(t *testing.T) {
	t.Parallel()
	url := natsOnly(t)
	well := serve(t, dataDir(t), "--nats", url, "--lanes", "2", "--roles", "lanes,scheduler,api")
	key, err := os.ReadFile(filepath.Join(well.data, "code.key"))
	if err != nil {
		t.Fatal(err)
	}
	hangs := serve(t, dataDir(t), "--nats", url, "--roles", "lanes,scheduler", "SCRIP_CODE_KEY="+string(key))
	wait(t, "two servers", stopLimit, func() bool {
		got := well.run("status")
		return got.code == cli.ExitDone && strings.Count(got.out, "lanes,scheduler") >= 2
	})
	hangs.signal(syscall.SIGSTOP)
	defer hangs.signal(syscall.SIGCONT)
	got := well.run("status")
	if got.code == cli.ExitDone || !strings.Contains(got.out, "does not answer") || !strings.Contains(got.out, "NOT READY") {
		t.Errorf("%+v", got)
	}
}
