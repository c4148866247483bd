package pgd

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// supervised starts a cluster and its Run.
func supervised(t *testing.T, opts Options) (*Cluster, string) {
	t.Helper()
	c := Open(opts)
	url := start(t, c)
	supervise(t, c)
	return c, url
}

func supervise(t *testing.T, c *Cluster) {
	t.Helper()
	c.signals.gone.Watch()
	c.signals.launching.Watch()
	c.signals.failed.Watch()
	c.signals.up.Watch()
	streamtest.Background(t, c.Run)
}

func killPostmaster(t *testing.T, c *Cluster) {
	t.Helper()
	streamtest.Must(t, syscall.Kill(c.PID(), syscall.SIGKILL))
}

// comesBack kills the postmaster and waits for another one.
func comesBack(t *testing.T, c *Cluster) {
	t.Helper()
	killPostmaster(t, c)
	c.signals.up.WaitFor(t, func(pid int) bool { return pid == c.PID() })
}

// A killed postmaster comes back under the same URL, or reports the new one, and yields the CPU to scrip as the first one did.
func TestKilledPostmasterComesBack(t *testing.T) {
	t.Parallel()
	changed := make(chan string, 1)
	opts := testOptions(madeDir(t))
	opts.Nice = 7
	opts.URLChanged = func(url string) { changed <- url }
	var logged records
	opts.Logger = logged.logger()
	c, url := supervised(t, opts)
	yields := func(when string) {
		t.Helper()
		backend := 0
		streamtest.Must(t, connect(t, c.URL()).QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&backend))
		for name, pid := range map[string]int{"postmaster": c.PID(), "backend": backend} {
			// Linux answers 20 - nice.
			if got, err := syscall.Getpriority(syscall.PRIO_PROCESS, pid); err != nil || got != 20-7 {
				t.Errorf("%s: the %s has priority %d, %v; want 13", when, name, got, err)
			}
		}
	}
	yields("at first")
	run(t, url, "INSERT INTO kept VALUES (8)")
	comesBack(t, c)
	yields("after a kill")
	keeps(t, url, "7,8")
	if c.URL() != url {
		t.Error("the URL changed although its port was free")
	}

	l, err := net.Listen("tcp4", "127.0.0.1:0")
	streamtest.Must(t, err)
	defer l.Close()
	c.mu.Lock()
	c.port = l.Addr().(*net.TCPAddr).Port // as if that had been its port, and taken while it was down
	c.mu.Unlock()
	comesBack(t, c)
	if got := <-changed; got == url || got != c.URL() {
		t.Error("got another URL than the one that answers")
	}
	keeps(t, c.URL(), "7,8")
	if gone, starts := logged.count("stopped unexpectedly"), logged.count("does not start"); gone != 2 || starts != 0 {
		t.Errorf("logged %d times of the end, %d times that it does not start", gone, starts)
	}
}

// What keeps a new postmaster from starting, is logged once, and ends. First backends that are busy and do not notice at once
// that their postmaster is gone: a new one beside them would ruin the data. Then a cluster that does not start.
func TestRestartIsTriedUntilItWorks(t *testing.T) {
	t.Parallel()
	var logged records
	opts := testOptions(madeDir(t))
	opts.Logger = logged.logger()
	c, url := supervised(t, opts)
	fails := func(text string) {
		t.Helper()
		c.signals.failed.WaitFor(t, func(err error) bool { return strings.Contains(err.Error(), text) })
		streamtest.Equal(t, "postmaster", c.PID(), 0)
	}
	busy, err := pgx.Connect(t.Context(), url)
	streamtest.Must(t, err)
	defer busy.Close(context.Background())
	backend := int(busy.PgConn().PID())
	if err := syscall.Kill(backend, syscall.SIGSTOP); err != nil { // it notices as little as one that computes
		t.Fatal(err)
	}
	killPostmaster(t, c)
	fails("pre-existing shared memory block")
	streamtest.Must(t, syscall.Kill(backend, syscall.SIGCONT))
	c.signals.up.Wait(t)
	keeps(t, url, "7")

	control := filepath.Join(c.Dir(), "data", "global", "pg_control")
	streamtest.Must(t, os.Rename(control, control+".away"))
	killPostmaster(t, c)
	fails("pg_control")
	fails("pg_control")
	streamtest.Must(t, os.Rename(control+".away", control))
	c.signals.up.Wait(t)
	keeps(t, url, "7")
	if got := logged.count("does not start"); got != 1 || logged.count(filepath.Join(c.Dir(), "postgres.log")) == 0 {
		t.Errorf("logged %d times that it does not start, want once with its log", got)
	}
}

// Stop must win at each moment of a restart, and Run leaves a stopped cluster alone.
func TestStopDuringRestart(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	var logged records
	opts.Logger = logged.logger()
	c, _ := supervised(t, opts)
	for round, moment := range []func(){
		func() { c.signals.gone.Wait(t); c.signals.launching.Wait(t) },
		func() { c.signals.gone.Wait(t) },
		func() { c.signals.gone.Wait(t); c.signals.up.Wait(t) },
	} {
		h := c.home
		killPostmaster(t, c)
		moment()
		stop(t, c)
		if pm := h.running(); pm != nil || c.PID() != 0 {
			t.Fatalf("round %d: postmaster %+v runs after Stop", round, pm)
		}
		start(t, c)
	}
	keeps(t, c.URL(), "7")
	streamtest.Equal(t, "crashes logged, a Stop not among them", logged.count("unexpectedly"), 3)
	comesBack(t, c) // and it still watches
}
