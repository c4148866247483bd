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
)

// supervised starts a cluster and its Run.
func supervised(t *testing.T, opts Options) (*Cluster, string) {
	t.Helper()
	c := Open(opts)
	url := start(t, c)
	superviseIt(t, c)
	return c, url
}

func superviseIt(t *testing.T, c *Cluster) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func killPostmaster(t *testing.T, c *Cluster) (pid int) {
	t.Helper()
	pid = c.PID()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return pid
}

func comesBack(t *testing.T, c *Cluster, old int) {
	t.Helper()
	until(t, "another postmaster runs", func() bool { pid := c.PID(); return pid != 0 && pid != old })
}

func TestKilledPostmasterComesBackUnderTheSameURL(t *testing.T) {
	t.Parallel()
	var logged records
	opts := testOptions(madeDir(t))
	opts.Logger = logged.logger()
	c, url := supervised(t, opts)
	run(t, url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (0)")
	for round := 1; round <= 2; round++ {
		run(t, url, "UPDATE kept SET n = n + 1")
		comesBack(t, c, killPostmaster(t, c))
		if got := logged.count("stopped unexpectedly"); got != round {
			t.Errorf("round %d: logged %d times of the end", round, got)
		}
		until(t, "it is logged that it is up", func() bool { return logged.count("PostgreSQL is up again") == round })
	}
	if got := queryText(t, url, "SELECT n::text FROM kept"); got != "2" {
		t.Errorf("kept %q, want 2", got)
	}
	if c.URL() != url {
		t.Error("the URL changed although its port was free")
	}
	if got := logged.count("does not start"); got != 0 {
		t.Errorf("logged %d times that it does not start", got)
	}
}

// Backends that are busy do not notice at once that their postmaster is gone. A new one beside them would ruin the data.
func TestRestartWaitsForBackendsOfTheKilled(t *testing.T) {
	t.Parallel()
	c, url := supervised(t, testOptions(madeDir(t)))
	run(t, url, "CREATE TABLE kept (n int)")
	busy, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close(context.Background())
	backend := int(busy.PgConn().PID())
	// A stopped process notices as little as one that computes.
	if err := syscall.Kill(backend, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	old := killPostmaster(t, c)
	until(t, "a new postmaster found the backend", func() bool {
		raw, err := os.ReadFile(filepath.Join(c.Dir(), "postgres.log"))
		return err == nil && strings.Contains(string(raw), "pre-existing shared memory block")
	})
	if pid := c.PID(); pid != 0 {
		t.Errorf("postmaster %d runs beside backend %d of the one before", pid, backend)
	}
	if err := syscall.Kill(backend, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	comesBack(t, c, old)
	if got := queryText(t, url, "SELECT to_regclass('kept')::text"); got != "kept" {
		t.Errorf("kept %q", got)
	}
}

func TestRestartOnAnotherPortTellsTheURL(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(l.Addr())
	}
	changed := make(chan string, 1)
	opts := testOptions(madeDir(t))
	opts.URLChanged = func(url string) { changed <- url }
	c, url := supervised(t, opts)
	c.mu.Lock()
	c.port = addr.Port // as if that had been its port, and taken while it was down
	c.mu.Unlock()
	comesBack(t, c, killPostmaster(t, c))
	if got := <-changed; got == url || got != c.URL() || queryText(t, got, "SELECT 'alive'") != "alive" {
		t.Error("got another URL than the one that answers")
	}
}

func TestClusterThatDoesNotStartIsTriedAgainAndSaidOnce(t *testing.T) {
	t.Parallel()
	var logged records
	opts := testOptions(madeDir(t))
	opts.Logger = logged.logger()
	c, url := supervised(t, opts)
	run(t, url, "CREATE TABLE kept (n int)")
	control := filepath.Join(c.Dir(), "data", "global", "pg_control")
	log := filepath.Join(c.Dir(), "postgres.log")
	rename(t, control, control+".away")
	old := killPostmaster(t, c)
	until(t, "two attempts failed", func() bool {
		raw, err := os.ReadFile(log)
		return err == nil && strings.Count(string(raw), "pg_control") >= 2
	})
	if logged.count(log) == 0 || c.PID() != 0 {
		t.Errorf("process %d while it is down; what is logged does not name %s", c.PID(), log)
	}
	rename(t, control+".away", control)
	comesBack(t, c, old)
	if got := queryText(t, url, "SELECT to_regclass('kept')::text"); got != "kept" {
		t.Errorf("kept %q", got)
	}
	if got := logged.count("does not start"); got != 1 {
		t.Errorf("logged %d times that it does not start, want once", got)
	}
}

func TestRunLeavesAStoppedClusterAlone(t *testing.T) {
	t.Parallel()
	var logged records
	opts := testOptions(madeDir(t))
	opts.Logger = logged.logger()
	c, _ := supervised(t, opts)
	for range 2 {
		stop(t, c)
		if c.PID() != 0 {
			t.Fatal("runs after Stop")
		}
		url := start(t, c)
		if got := queryText(t, url, "SELECT 'alive'"); got != "alive" {
			t.Errorf("after Start: %q", got)
		}
	}
	if got := logged.count("unexpectedly"); got != 0 {
		t.Errorf("a Stop was taken for a crash %d times", got)
	}
	comesBack(t, c, killPostmaster(t, c)) // and it still watches
}

// Stop must win at each moment of a restart.
func TestStopDuringRestart(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	var logged records
	opts.Logger = logged.logger()
	c, _ := supervised(t, opts)
	for round := range 5 {
		c.mu.Lock()
		h := c.home
		c.mu.Unlock()
		restarts := logged.count("stopped unexpectedly")
		killPostmaster(t, c)
		until(t, "the end is noticed", func() bool { return logged.count("stopped unexpectedly") > restarts })
		if round%2 == 1 {
			until(t, "a new one is starting", func() bool { return h.running() != nil })
		}
		stop(t, c)
		if pm := h.running(); pm != nil {
			t.Fatalf("postmaster %d runs after Stop", pm.pid)
		}
		start(t, c)
	}
	if got := queryText(t, c.URL(), "SELECT 'alive'"); got != "alive" {
		t.Errorf("got %q", got)
	}
}

func TestRunEndsWithoutStopping(t *testing.T) {
	t.Parallel()
	c := Open(testOptions(madeDir(t)))
	url := start(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := queryText(t, url, "SELECT 'alive'"); got != "alive" {
		t.Errorf("the cluster went with Run: %q", got)
	}
}

// TestNice: PostgreSQL yields the CPU to scrip, also after it was restarted, and so do the processes it starts.
func TestNice(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	opts.Nice = 7
	c, url := supervised(t, opts)
	check := func(when string) {
		t.Helper()
		backend := 0
		err := connect(t, url).QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&backend)
		if err != nil {
			t.Fatal(err)
		}
		for name, pid := range map[string]int{"postmaster": c.PID(), "backend": backend} {
			// Linux answers 20 - nice.
			if got, err := syscall.Getpriority(syscall.PRIO_PROCESS, pid); err != nil || got != 20-7 {
				t.Errorf("%s: the %s has priority %d, %v; want 13", when, name, got, err)
			}
		}
	}
	check("at first")
	comesBack(t, c, killPostmaster(t, c))
	until(t, "it answers again", func() bool {
		conn, err := pgx.Connect(t.Context(), url)
		return err == nil && conn.Close(t.Context()) == nil
	})
	check("after a kill")
}
