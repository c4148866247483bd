package power

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) {
	Serve()
	os.Exit(e2e.Main(m, nil))
}

// limit is for what hangs. Everything here takes seconds, on a loaded machine some more.
const limit = 3 * time.Minute

// machine is what the power is cut of: a file system and the processes that use it.
type machine struct {
	t   *testing.T
	fs  *FS
	rng *rand.Rand
	log string // of all servers, on another disk

	mu       sync.Mutex
	commands []*command
	servers  []*e2e.Process

	cuts    int
	reports []Report
}

func newMachine(t *testing.T, seed uint64) *machine {
	t.Helper()
	if err := Missing(); err != nil {
		if rounds := flag.Lookup("power.rounds"); rounds.Value.String() != rounds.DefValue {
			t.Fatalf("rounds were requested, and the power cannot be cut here: %v", err)
		}
		t.Skipf("the power cannot be cut here: %v", err)
	}
	dir := projtest.Dir(t)
	fs, err := Mount(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, fs: fs, rng: rand.New(rand.NewPCG(seed, 0)), log: filepath.Join(t.TempDir(), "serve.log")}
	// What NATS and PostgreSQL keep: see cutfs_*_test.go. All other files are scrip's, which syncs directories.
	if err := fs.Loose("jetstream", "data"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			m.explain()
		}
		m.killAll()
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// explain logs what the last cut dropped, and what servers wrote since.
func (m *machine) explain() {
	if n := len(m.reports); n > 0 {
		m.t.Logf("the last cut: %s\n  %s", m.reports[n-1], strings.Join(m.reports[n-1].Dropped, "\n  "))
	}
	out, _ := os.ReadFile(m.log)
	m.t.Logf("the servers' log ends:\n%s", out[max(0, len(out)-8000):])
}

func (m *machine) path(name string) string { return filepath.Join(m.fs.Dir, name) }

// start starts a server on a data directory of this machine.
func (m *machine) start(data string, args ...string) *e2e.Process {
	m.t.Helper()
	p, err := e2e.Start(m.path(data), m.log, args, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers = append(m.servers, p)
	return p
}

// ready waits until a server serves. It ends the test if it does not.
func (m *machine) ready(p *e2e.Process) e2e.Descriptor {
	m.t.Helper()
	d, err := p.Ready()
	if err != nil {
		m.t.Fatalf("after %d cuts: %v", m.cuts, err)
	}
	return d
}

// command is a scrip command that runs on this machine.
type command struct {
	process *os.Process
	out     bytes.Buffer
	done    chan struct{}
	code    int // once done is closed; -1 = killed
}

// launch starts a command and does not wait for its end.
func (m *machine) launch(args ...string) *command {
	m.t.Helper()
	c := &command{done: make(chan struct{})}
	cmd := exec.Command(e2e.Binary(), args...)
	cmd.Stdout, cmd.Stderr = &c.out, &c.out
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	c.process = cmd.Process
	m.mu.Lock()
	m.commands = append(m.commands, c)
	m.mu.Unlock()
	go func() {
		_ = cmd.Wait()
		c.code = cmd.ProcessState.ExitCode()
		close(c.done)
	}()
	return c
}

// run runs a command to its end.
func (m *machine) run(args ...string) *command {
	m.t.Helper()
	c := m.launch(args...)
	select {
	case <-c.done:
	case <-time.After(limit):
		_ = c.process.Signal(syscall.SIGQUIT) // it writes where it is
		<-c.done
		m.t.Fatalf("after %d cuts: scrip %s does not end:\n%s", m.cuts, strings.Join(args, " "), c.out.String())
	}
	return c
}

// must runs a command that has to work, and returns what it wrote.
func (m *machine) must(args ...string) string {
	m.t.Helper()
	c := m.run(args...)
	if c.code != 0 {
		m.t.Fatalf("after %d cuts: scrip %s: exit code %d\n%s", m.cuts, strings.Join(args, " "), c.code, c.out.String())
	}
	return c.out.String()
}

// tries is how often a transfer may break on its way on a loaded machine: it holds a lease that it must renew in time.
const tries = 4

// insist is must for a transfer, which is started again when it breaks.
func (m *machine) insist(args ...string) {
	m.t.Helper()
	for range tries - 1 {
		if c := m.run(args...); c.code == 0 {
			return
		}
	}
	m.must(args...)
}

// steps is a number of changes of the file system, small ones as likely as large ones.
func (m *machine) steps(most int) int {
	return int(math.Exp(m.rng.Float64() * math.Log(float64(most))))
}

// cutAfter calls start and cuts the power before the n-th change of the file system from then on, or where not so many come,
// when what start returned is closed.
func (m *machine) cutAfter(n int, start func() (end <-chan struct{})) {
	m.t.Helper()
	if err := m.fs.After(n); err != nil {
		m.t.Fatal(err)
	}
	select {
	case <-m.fs.Frozen():
	case <-start():
	case <-time.After(limit):
		m.t.Errorf("neither %d changes nor an end in %s", n, limit)
	}
	m.cut()
}

// cut cuts the power. It returns when no process of the machine is left and the file system is mounted again.
func (m *machine) cut() {
	m.t.Helper()
	plan := []Plan{DropAll, DropAll, KeepNames, KeepNames, KeepData, Mixed, Mixed, Mixed, KeepAll}[m.rng.IntN(9)]
	m.cutBy(plan)
}

func (m *machine) cutBy(plan Plan) {
	m.t.Helper()
	if err := m.fs.Freeze(); err != nil {
		m.t.Fatal(err)
	}
	pids, gone := m.kill()
	report, err := m.fs.Cut(plan, m.rng.Uint64())
	if err != nil {
		m.t.Fatal(err)
	}
	m.cuts++
	m.reports = append(m.reports, report)
	m.await(pids, gone)
}

// killAll kills what is left at the end.
func (m *machine) killAll() {
	_ = m.fs.After(0)
	m.await(m.kill())
}

// kill kills all processes of the machine (-9). It returns what is closed at the end of each child of this process, and the
// numbers of the others. Those that wait for a frozen file system end when it is gone.
func (m *machine) kill() (pids map[int]bool, gone []<-chan struct{}) {
	pids = map[int]bool{}
	m.mu.Lock()
	for _, p := range m.servers {
		_ = p.Signal(syscall.SIGKILL)
		gone = append(gone, p.Gone())
	}
	for _, c := range m.commands {
		_ = c.process.Kill()
		gone = append(gone, c.done)
	}
	m.servers, m.commands = nil, nil
	m.mu.Unlock()
	for fresh := true; fresh; { // PostgreSQL may be starting another one
		fresh = false
		for _, pid := range within(m.fs.Dir) {
			if !pids[pid] {
				pids[pid], fresh = true, true
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return pids, gone
}

// within finds the processes that work in a directory: PostgreSQL's.
func within(dir string) (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/")) {
			if pid, err := strconv.Atoi(strings.Split(link, "/")[2]); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// await waits until killed processes are gone; some may not be reaped yet.
func (m *machine) await(pids map[int]bool, gone []<-chan struct{}) {
	m.t.Helper()
	// A process with threads may look dead, and have its port, while one of them still waits for the file system.
	for _, ended := range gone {
		select {
		case <-ended:
		case <-time.After(limit):
			m.t.Fatal("a killed process does not end")
		}
	}
	for pid := range pids {
		streamtest.Eventually(m.t, fmt.Sprintf("process %d ends", pid), func() bool { return !alive(pid) })
	}
}

func alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

// bounded is a context for questions to a server that serves.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errors.New("no answer in time"))
	t.Cleanup(cancel)
	return ctx
}
