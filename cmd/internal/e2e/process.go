// Package e2e runs the real binary for tests. Below it are the tests: contract (what outside programs may rely on), crash, power
// (cuts), durable (fsync before an answer), mixed (with an older version) and chaos (all at once).
//
//	Main ── go build ──> Binary() ── Start ──> scrip serve, a separate process ──> <data>/scrip.json
//	                       Server ───┘               └── SIGTERM, SIGKILL, SIGSTOP by the test
//	SDK clients ──> Ledger of answers ── Settle ──> log, tables: is an answer missing?
//
// Process uses none of the program's packages: it reads a server's addresses from the file scrip.json. If a test binary
// crashes, its servers and their PostgreSQL keep running; their data directories are in the directory for temporary files.
package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/pgtest"
)

const (
	// readyLimit is far longer than a start, one or two seconds, for machines under load.
	readyLimit = time.Minute
	readyEvery = 10 * time.Millisecond
)

var binary string

// Binary is the path of the program that Main has built.
func Binary() string { return binary }

// Main builds the program, runs the tests with what pgtest shares, and removes the program. It returns the exit code
// for os.Exit. after is called when the tests have run.
func Main(m *testing.M, after func()) int {
	dir, err := os.MkdirTemp("", "scrip-binary-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "scrip")
	if err := Build(binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := pgtest.Main(m)
	if after != nil {
		after()
	}
	return code
}

// Build builds the program at path, with further flags for go build. Without any, it reuses bin/e2e/scrip of the module if
// that is up to date, which spares all test binaries of a run but the first the seconds that the linker takes. A program at
// path stays as it is when that one is replaced.
func Build(path string, flags ...string) error {
	if len(flags) > 0 {
		return link(path, flags)
	}
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("finding the module: %w", err)
	}
	dir := filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "bin", "e2e")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	shared := filepath.Join(dir, "scrip")
	if err := link(shared, nil); err != nil {
		return err
	}
	if os.Link(shared, path) == nil {
		return nil
	}
	program, err := os.ReadFile(shared) // path is on another file system
	if err != nil {
		return err
	}
	return os.WriteFile(path, program, 0o755)
}

// link omits debug information, which halves the time of the linker.
func link(path string, flags []string) error {
	args := append(append([]string{"build", "-ldflags=-w", "-o", path}, flags...), "github.com/seed-4a2410e3/scrip/cmd/scrip")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("building scrip: %w\n%s", err, out)
	}
	return nil
}

// Descriptor is the content of <data>/scrip.json.
type Descriptor struct {
	PID         int    `json:"pid"`
	NATSURL     string `json:"nats_url"`
	HTTPURL     string `json:"http_url"`
	PostgresURL string `json:"postgres_url"`
	Lanes       int    `json:"lanes"`
	Sync        string `json:"sync"`
}

// Process is a `scrip serve` that was started.
type Process struct {
	Data string
	cmd  *exec.Cmd
	log  *os.File
	gone chan struct{}
}

// Start starts `scrip serve` on a data directory, with HTTP on a free port, further arguments and variables
// (NAME=value). Its output is appended to the file logPath.
func Start(data, logPath string, args, env []string) (*Process, error) {
	return StartProgram(binary, data, logPath, args, env)
}

// StartProgram is Start for another program than that of Main.
func StartProgram(program, data, logPath string, args, env []string) (*Process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	p := &Process{Data: data, log: log, gone: make(chan struct{})}
	p.cmd = exec.Command(program, append([]string{"serve", "--data", data, "--http-listen", "127.0.0.1:0"}, args...)...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		_ = p.cmd.Wait() // Wait returns the exit code
		_ = log.Close()
		close(p.gone)
	}()
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Gone is closed when the process has ended.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Ready waits until the server has written its addresses, or has ended.
func (p *Process) Ready() (Descriptor, error) {
	deadline := time.NewTimer(readyLimit)
	defer deadline.Stop()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		var d Descriptor
		raw, err := os.ReadFile(filepath.Join(p.Data, "scrip.json"))
		if err == nil {
			if err = json.Unmarshal(raw, &d); err == nil && d.PID == p.PID() {
				return d, nil
			}
		}
		select {
		case <-p.gone:
			return d, fmt.Errorf("the server ended before it was ready: %s", p.cmd.ProcessState)
		case <-deadline.C:
			return d, fmt.Errorf("the server is not ready after %s: %w", readyLimit, err)
		case <-tick.C:
		}
	}
}

// Kill is kill -9; it waits until the process has ended. Its private PostgreSQL goes on: the next server adopts it, or End.
func (p *Process) Kill() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// End is Kill, and ends the PostgreSQL that is left in the data directory, too.
func (p *Process) End() {
	p.Kill()
	EndPostgres(p.Data)
}

// EndPostgres ends the private PostgreSQL that a killed server left running in a data directory, immediately. It returns when
// its postmaster has ended.
func EndPostgres(data string) {
	file := filepath.Join(data, "postgres", "data", "postmaster.pid")
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for sent := false; ; sent = true {
		raw, err := os.ReadFile(file) // removed at the end
		first, _, _ := strings.Cut(string(raw), "\n")
		pid, perr := strconv.Atoi(first)
		if err != nil || perr != nil {
			return
		}
		// Only a postmaster has it as working directory; the number may be another's by now.
		if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || cwd != filepath.Dir(file) {
			return
		}
		if !sent {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
		}
		<-tick.C
	}
}

// Signal sends a signal.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Wait waits for the end and returns the exit code, -1 after a signal.
func (p *Process) Wait() int {
	<-p.gone
	return p.cmd.ProcessState.ExitCode()
}

// Stop sends SIGTERM, waits for the end and returns the exit code.
func (p *Process) Stop() (int, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return -1, err
	}
	return p.Wait(), nil
}

// Output is the output of the process so far, after that of earlier processes with the same file.
func (p *Process) Output() string {
	out, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(out)
}
