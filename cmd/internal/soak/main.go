// Command soak runs what takes long, each part for its share of a budget of time: faults at random under load, against the real
// binary, real NATS nodes and a real PostgreSQL; and the peers of the benchmarks.
//
//	go run ./cmd/internal/soak -for 30m [-seed N] [-parts kill,power]
//
//	parts ── build ──> bin/soak/*.test ── one after the other, killed when it is late ──> bin/soak/<part>.log ──> table
//
// It ends with 1 if a part failed or was late. Ctrl-C ends it with the table of what was done. What a killed part had started
// apart from itself, such as PostgreSQL, goes on.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// out is the folder for programs and output.
const out = "bin/soak"

func main() {
	budget := flag.Duration("for", 30*time.Minute, "how long all parts may take in sum, what is built first included")
	seed := flag.Uint64("seed", 0, "of the random choices; 0 = a new one")
	names := flag.String("parts", "", "some of the parts, separated by commas; empty = all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *seed == 0 {
		*seed = 1 + rand.Uint64N(1_000_000)
	}
	chosen, err := choose(*names)
	if err == nil {
		err = soak(ctx, os.Stdout, chosen, *budget, *seed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// result is what one part did.
type result struct {
	part   part
	seed   uint64
	work   string
	took   time.Duration
	failed error
}

func soak(ctx context.Context, to io.Writer, chosen []part, budget time.Duration, seed uint64) error {
	began := time.Now()
	fmt.Fprintf(to, "soak for %s, seed %d; output in %s\n", budget, seed, out)
	if err := build(ctx, to, chosen); err != nil {
		return err
	}
	var results []result
	failed := 0
	for i := range chosen {
		if ctx.Err() != nil {
			break
		}
		r := run(ctx, to, chosen[i], share(budget-time.Since(began), chosen[i:]), seed)
		results = append(results, r)
		if r.failed != nil {
			failed++
		}
	}
	table(to, results)
	fmt.Fprintf(to, "%s of %s\n", time.Since(began).Round(time.Second), budget)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("ended after %d of %d parts", len(results), len(chosen))
	case failed > 0:
		return fmt.Errorf("%d of %d parts failed; repeat one with: make soak PARTS=%s SEED=%d", failed, len(results), first(results).name, seed)
	}
	return nil
}

func first(results []result) part {
	for _, r := range results {
		if r.failed != nil {
			return r.part
		}
	}
	return part{}
}

// build builds all programs, so that compiling is in nobody's share.
func build(ctx context.Context, to io.Writer, chosen []part) error {
	dir, err := filepath.Abs(out)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	began := time.Now()
	steps := [][]string{{".", "go", "build", "-o", dir, "./cmd/scrip"}}
	for _, p := range chosen {
		command := p.build
		if command == nil {
			command = []string{"go", "test", "-c", "-o"}
		}
		steps = append(steps, append(append([]string{p.dir}, command...), p.program(dir), "."))
	}
	for _, s := range steps {
		cmd := exec.CommandContext(ctx, s[1], s[2:]...)
		cmd.Dir = s[0]
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s in %s: %w\n%s", strings.Join(s[1:], " "), s[0], err, text)
		}
	}
	fmt.Fprintf(to, "built in %s\n", time.Since(began).Round(time.Second))
	return nil
}

// run runs a part. It is killed, and has failed, when it is late.
func run(ctx context.Context, to io.Writer, p part, share time.Duration, seed uint64) result {
	began := time.Now()
	log := filepath.Join(out, p.name+".log")
	fmt.Fprintf(to, "%-14s %s, until %s at the latest; %s\n", p.name, share.Round(time.Second), began.Add(late(share)).Format(time.TimeOnly), log)
	r := result{part: p, seed: seed}
	file, err := os.Create(log)
	if err != nil {
		r.failed = err
		return r
	}
	defer file.Close() //nolint:errcheck // what was written is read again below
	limited, cancel := context.WithTimeoutCause(ctx, late(share), fmt.Errorf("late: not over %s after its share of %s", (late(share)-share).Round(time.Second), share.Round(time.Second)))
	defer cancel()
	for runs, longest := uint64(0), time.Duration(0); r.failed == nil; runs++ {
		if left := share - time.Since(began); runs > 0 && (!p.again || left < longest) {
			break
		}
		start := time.Now()
		r.failed = once(limited, p, file, p.args(p.last(share), seed+runs))
		longest = max(longest, time.Since(start))
		if p.again {
			fmt.Fprintln(file, "soak: 1 runs")
		}
	}
	r.took = time.Since(began)
	if text, err := os.ReadFile(log); err == nil {
		r.work = work(string(text))
	}
	return r
}

// once runs the program of a part in its package. A late one is asked where it is (SIGQUIT), then killed with its children.
func once(ctx context.Context, p part, file *os.File, args []string) error {
	program, err := filepath.Abs(p.program(out))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails where none is left
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// table prints what was done.
func table(to io.Writer, results []result) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nPART\tSEED\tDID\tSECONDS\tRESULT")
	for _, r := range results {
		verdict := "ok"
		if r.failed != nil {
			verdict = "FAILED: " + r.failed.Error()
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%.0f\t%s\n", r.part.name, r.seed, r.work, r.took.Seconds(), verdict)
	}
	_ = w.Flush() // to a terminal
}
