package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/streams/lane"
)

// TestStatusShowsWhatIsToCome: what falls due in the next hour, by lane and priority, whichever way the server is found;
// and who works each lane with which roles.
func TestStatusShowsWhatIsToCome(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t), "--lanes", "1")
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
		wait(t, "the reminders in "+strings.Join(args, " "), stopLimit, func() bool {
			return strings.Contains(strings.Join(strings.Fields(p.run(args...).out), " "), "0 high 0s 0 0+0 0+0 0+0 0+0 2+1")
		})
		st := p.must(args...)
		first := st["lane"].([]any)[0].(map[string]any)
		backlog := first["backlog"].(map[string]any)
		if backlog["pending"] != 3.0 || fmt.Sprint(backlog["normal"].(map[string]any)["reminders_next"]) != "[0 0 0 0 0]" {
			t.Errorf("%v: %v", args, backlog)
		}
		its := st["server"].([]any)[0].(map[string]any)
		if its["server"] != first["holder"] || its["ready"] != true || fmt.Sprint(its["roles"]) != "[lanes scheduler projector api]" || first["tables"] == nil {
			t.Errorf("%v: %v, %v", args, its, first)
		}
	}
}

// TestStatusSaysWhyNothingFires: a lane whose scheduler does not work looks well otherwise. And whatever answers the call
// about a lane that there is not breaks nothing.
func TestStatusSaysWhyNothingFires(t *testing.T) {
	t.Parallel()
	st := &status{PerLane: make([]laneStatus, 1)}
	for _, n := range []int{-1, 0, 1} {
		detail := map[string]any{"lanes": []server.LaneReadiness{{Lane: n, Status: lane.Status{State: lane.StateOwner}, DueWaits: "the disk is full"}}}
		st.hear(server.Card{Readiness: server.Readiness{Checks: map[string]server.Result{"lanes": {Detail: detail}, "projector": {Detail: detail}}}})
	}
	if l := st.PerLane[0]; l.State != string(lane.StateOwner) || l.Error != "expiries and reminders wait: the disk is full" {
		t.Errorf("%+v", l)
	}
}

// TestWhatAServerSaysIsShownAndNotObeyed: whoever may answer the call can write anything into it.
func TestWhatAServerSaysIsShownAndNotObeyed(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b]0;b\a\nc"
	var out strings.Builder
	m := &Main{Out: &out}
	err := m.printStatus(&status{
		PerLane:   []laneStatus{{Holder: evil, State: evil, Error: evil, Tables: evil}},
		PerServer: []serverStatus{{Server: evil, Roles: []server.Role{evil}, Settings: evil}},
		Checks:    map[string]server.Result{evil: {Detail: map[string]any{"Error": evil}}}, Note: evil, Sync: evil, NATS: evil, HTTP: evil, NoDeadLetters: evil,
	})
	if n := strings.Count(out.String(), "a?]0;b? c"); err != nil || n != 14 || strings.ContainsAny(out.String(), "\x1b\a") {
		t.Errorf("shown %d times, %v: %q", n, err, out.String())
	}
}

// TestStatusOfAServerThatHangs: of two servers one is stopped in its tracks; status names it and is not content.
func TestStatusOfAServerThatHangs(t *testing.T) {
	t.Parallel()
	url := natsOnly(t)
	well := serve(t, dataDir(t), "--nats", url, "--lanes", "2", "--roles", "lanes,scheduler")
	key, err := os.ReadFile(filepath.Join(well.data, "code.key"))
	if err != nil {
		t.Fatal(err)
	}
	hangs := serve(t, dataDir(t), "--nats", url, "--roles", "lanes,scheduler", "SCRIP_CODE_KEY="+string(key))
	wait(t, "two servers", stopLimit, func() bool {
		got := well.run("status")
		return got.code == exitDone && strings.Count(got.out, "lanes,scheduler") == 2
	})
	hangs.signal(syscall.SIGSTOP)
	defer hangs.signal(syscall.SIGCONT)
	got := well.run("status")
	if got.code == exitDone || !strings.Contains(got.out, "does not answer") || !strings.Contains(got.out, "NOT READY") {
		t.Errorf("%+v", got)
	}
}
