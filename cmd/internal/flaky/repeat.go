package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// timeout ends a run that hangs, which is then counted as failed.
const timeout = 10 * time.Minute

// row is the result of one package in one mode.
type row struct {
	name, mode   string
	runs, failed int
	tests        map[string]int // failed tests, and in how many runs
	took         []time.Duration
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// repeat runs the tests of a package the given number of times, or until ctx ends.
func repeat(ctx context.Context, p testBinary, m mode, runs int, logs string) row {
	r := row{name: p.name, mode: m.name, tests: map[string]int{}}
	for n := range runs {
		if ctx.Err() != nil {
			break
		}
		cmd := exec.CommandContext(ctx, p.path, append([]string{"-test.v", "-test.timeout=" + timeout.String()}, m.args...)...)
		cmd.Dir = p.dir
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		began := time.Now()
		err := cmd.Run()
		if ctx.Err() != nil {
			break // interrupted; this run is not counted
		}
		r.runs++
		r.took = append(r.took, time.Since(began))
		if err == nil {
			continue
		}
		r.failed++
		r.note(output.Bytes())
		file := filepath.Join(logs, fmt.Sprintf("%s-%s-%d.log", strings.ReplaceAll(p.name, "/", "-"), m.name, n+1))
		if err := os.WriteFile(file, output.Bytes(), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "flaky:", err)
		}
	}
	return r
}

// note counts the failed tests of a run. Of a test and its subtests the innermost count; a run that failed without a
// failed test (a panic, a data race, a timeout) counts as "(run)".
func (r *row) note(output []byte) {
	found := map[string]bool{}
	for _, m := range failedTest.FindAllSubmatch(output, -1) {
		found[string(m[1])] = true
	}
	for name := range found {
		for other := range found {
			if strings.HasPrefix(other, name+"/") {
				delete(found, name)
			}
		}
	}
	if len(found) == 0 {
		found["(run)"] = true
	}
	for name := range found {
		r.tests[name]++
	}
}

func (r row) median() time.Duration {
	if len(r.took) == 0 {
		return 0
	}
	slices.Sort(r.took)
	return r.took[len(r.took)/2].Round(10 * time.Millisecond)
}

func (r row) list() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(r.tests)) {
		list = append(list, fmt.Sprintf("%s (%d)", name, r.tests[name]))
	}
	return strings.Join(list, ", ")
}

func (r row) String() string {
	return fmt.Sprintf("%s %s: %d of %d failed, median %s %s", r.mode, r.name, r.failed, r.runs, r.median(), r.list())
}

// summarise prints a line for each package and mode in which a run failed, and the sum of all.
func summarise(out io.Writer, table []row) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nmode\tpackage\tfailed\truns\tmedian\ttests")
	runs, failed := 0, 0
	for _, r := range table {
		runs, failed = runs+r.runs, failed+r.failed
		if r.failed > 0 {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", r.mode, r.name, r.failed, r.runs, r.median(), r.list())
		}
	}
	fmt.Fprintf(w, "all\t\t%d\t%d\n", failed, runs)
	_ = w.Flush()
}
