// Command flaky runs the tests of every package many times and prints how often each one failed: on an idle machine,
// with a busy loop on every core, and on one core. A test that fails in some of the runs depends on timing.
//
//	go list ──> go test -c, once a package ──> the binary, -runs times in each mode ──> table, output of failed runs
//
// The packages run one after the other, so that a run competes only with the busy loops of its mode. A busy loop is a
// separate process; it ends with its standard input, also when this process is killed. An interrupt ends the run in
// progress and prints the table of the runs so far.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
)

// mode is the load of the machine during a run.
type mode struct {
	name  string
	loops int      // busy loops at the same time
	args  []string // for the test binary
}

func modes() []mode {
	return []mode{
		{name: "idle"},
		{name: "busy", loops: runtime.NumCPU()},
		{name: "cpu1", args: []string{"-test.cpu=1"}},
	}
}

func main() {
	if os.Getenv(loopVariable) != "" {
		loop()
	}
	runs := flag.Int("runs", 20, "how often each package runs in each mode, 1 or more")
	names := flag.String("modes", "idle,busy,cpu1", "the modes, separated by commas")
	logs := flag.String("logs", filepath.Join(os.TempDir(), "scrip-flaky"), "the directory that keeps the output of failed runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	failed, err := run(ctx, *runs, strings.Split(*names, ","), *logs, flag.Args(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "flaky:", err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// run returns how many runs failed. An error is of the arguments or the build, never of a test.
func run(ctx context.Context, runs int, names []string, logs string, patterns []string, out io.Writer) (failed int, err error) {
	if runs < 1 {
		return 0, fmt.Errorf("-runs %d: give 1 or more", runs)
	}
	var chosen []mode
	for _, name := range names {
		i := slices.IndexFunc(modes(), func(m mode) bool { return m.name == name })
		if i < 0 {
			return 0, fmt.Errorf("-modes %q: the modes are idle, busy and cpu1", name)
		}
		chosen = append(chosen, modes()[i])
	}
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	bin, err := os.MkdirTemp("", "flaky-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(bin)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return 0, err
	}
	packages, err := build(ctx, bin, patterns)
	if err != nil {
		return 0, err
	}
	var table []row
	for _, m := range chosen {
		stop, err := startLoops(m.loops)
		if err != nil {
			return 0, err
		}
		for _, p := range packages {
			r := repeat(ctx, p, m, runs, logs)
			if r.runs == 0 {
				break
			}
			failed += r.failed
			table = append(table, r)
			fmt.Fprintln(out, r)
		}
		stop()
	}
	summarise(out, table)
	if failed > 0 {
		fmt.Fprintln(out, "output of failed runs:", logs)
	}
	return failed, nil
}

// testBinary is the compiled tests of a package.
type testBinary struct {
	name string // import path within the module
	dir  string // the package's folder, where its tests run
	path string
}

// build compiles the tests of all packages that have any.
func build(ctx context.Context, bin string, patterns []string) (list []testBinary, err error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}} {{.Module.Path}}{{end}}`
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		var path, dir, module string
		if _, err := fmt.Sscan(line, &path, &dir, &module); err != nil {
			return nil, fmt.Errorf("go list printed %q: %w", line, err)
		}
		name := strings.TrimPrefix(path, module+"/")
		p := testBinary{name: name, dir: dir, path: filepath.Join(bin, strings.ReplaceAll(name, "/", "-"))}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", p.path, path)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("go test -c %s: %w", path, err)
		}
		list = append(list, p)
	}
	return list, nil
}

// loopVariable in the environment makes this program a busy loop.
const loopVariable = "SCRIP_FLAKY_LOOP"

// loop keeps a core busy until standard input ends, at the latest with the process that started it.
func loop() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	var count atomic.Uint64
	for {
		count.Add(1)
	}
}

// startLoops starts n busy loops and returns the function that ends them.
func startLoops(n int) (stop func(), err error) {
	var ends []func()
	stop = func() {
		for _, end := range ends {
			end()
		}
	}
	program, err := os.Executable()
	if err != nil {
		return stop, err
	}
	for range n {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), loopVariable+"=1", "GOMAXPROCS=2") // one for the loop, one that reads standard input
		in, err := cmd.StdinPipe()
		if err != nil {
			stop()
			return stop, err
		}
		if err := cmd.Start(); err != nil {
			stop()
			return stop, err
		}
		ends = append(ends, func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
	}
	return stop, nil
}
