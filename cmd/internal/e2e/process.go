// Package e2e runs the real binary for tests. Below it are the tests: contract (what outside programs may rely on), crash, power
// (cuts), durable (fsync before an answer), chaos (all at once), doors (others at what they may) and readers (beside rebuilds).
//
//	Main ── go build ──> Binary() ── Start ──> scrip serve, a separate process ──> <data>/scrip.json
//	                       Server ───┘               └── SIGTERM, SIGKILL, SIGSTOP by the test
//	SDK clients ──> Ledger of answers ── Settle ──> log, tables: is an answer missing?
//
// Processes are those of cmd/internal/process, which reads a server's addresses from the file scrip.json. If a test binary
// crashes, its servers and their PostgreSQL keep running; their data directories are in the directory for temporary files.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/process"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
)

// readyEvery is the interval at which a process is looked at.
const readyEvery = 10 * time.Millisecond

var binary string

// Binary is the path of the program that Main has built.
func Binary() string { return binary }

// Main builds the program, runs the tests with what projtest shares, and removes the program. It returns the exit code
// for os.Exit, which is not 0 if NATS refused something to the user of the servers that Start started. after is called when the
// tests have run.
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
	code := projtest.Main(m)
	if after != nil {
		after()
	}
	if refused(os.Stderr) {
		code = max(code, 1)
	}
	return code
}

// Build is BuildOf for the program.
func Build(path string) error { return BuildOf(path, "github.com/seed-4a2410e3/scrip/cmd/scrip") }

// BuildOf builds any main package at path. It reuses bin/e2e of the module if that is up to date, which spares all test
// binaries of a run but the first the seconds that the linker takes. A program at path stays as it is when that one is replaced.
func BuildOf(path, program string) error {
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
	shared := filepath.Join(dir, strings.ReplaceAll(program, "/", "-"))
	// Without debug information the linker takes half the time.
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", shared, program).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	if os.Link(shared, path) == nil {
		return nil
	}
	built, err := os.ReadFile(shared) // path is on another file system
	if err != nil {
		return err
	}
	return os.WriteFile(path, built, 0o755)
}

// Descriptor is the content of <data>/scrip.json.
type Descriptor = process.Descriptor

// Process is a `scrip serve` that was started.
type Process struct{ *process.Server }

// Start starts `scrip serve` on a data directory, with HTTP on a free port, further arguments and variables
// (NAME=value). Its output is appended to the file logPath.
func Start(data, logPath string, args, env []string) (*Process, error) {
	if err := Strict(logPath); err != nil {
		return nil, err
	}
	server, err := process.Serve(process.Command{
		Program: binary, Args: append([]string{"serve", "--data", data, "--http-listen", "127.0.0.1:0"}, args...), Env: append(os.Environ(), env...), Log: logPath,
	}, data)
	if err != nil {
		return nil, err
	}
	return &Process{server}, nil
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
