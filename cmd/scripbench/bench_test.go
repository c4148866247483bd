package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

// small are options for runs that are over in a moment.
func small(t *testing.T) options {
	t.Helper()
	return options{recipes: recipes, scrip: scripBinary, base: openDir(t), durability: string(report.Always), n: 1000, runs: 1, limit: time.Minute, progress: t.Output()}
}

// openDir is a temporary directory that PostgreSQL's user can pass through. Its path is short, whatever the test is called:
// a socket's has room for 107 bytes.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestEveryWorkloadHasPeers: scrip alone is no comparison.
func TestEveryWorkloadHasPeers(t *testing.T) {
	for _, w := range workloads {
		list := (options{recipes: recipes}).fitting(w)
		if len(list) < 3 || list[0].name != report.Subject {
			t.Errorf("%s is done by %d systems, first by %s", w.name, len(list), list[0].name)
		}
	}
}

// TestTheCommandLine goes from flags to table, JSON and files.
func TestTheCommandLine(t *testing.T) {
	results := t.TempDir()
	var out, progress bytes.Buffer
	args := []string{"run", "sold-out", "lonely-claim", "--n", "1000", "--runs", "2", "--systems", "scrip,redis", "--durability", "interval",
		"--scrip", scripBinary, "--dir", openDir(t), "--results", results, "-o", "json"}
	if code := run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit %d: %s", code, progress.String())
	}
	r := readTables(t, out.Bytes())
	if len(r.Results) != 2 || r.Results[0].Name != "sold-out" || len(r.Results[0].Systems) != 2 || len(r.Results[0].Systems[1].Runs) != 2 {
		t.Fatalf("%+v", r)
	}
	ours, theirs := r.Results[0].Systems[0].Median, r.Results[0].Systems[1]
	if want := ours.Rate / theirs.Median.Rate; theirs.Ratio < want*0.999 || theirs.Ratio > want*1.001 {
		t.Errorf("ratio %v, want %v", theirs.Ratio, want)
	}
	if ours.Refused != 999 {
		t.Errorf("%d refused, want all but one", ours.Refused)
	}
	date := r.Date.UTC().Format(time.DateOnly)
	for name, needles := range map[string][]string{
		date + "-sold-out-interval.txt":     {"may lose the last seconds on power loss", "appendfsync everysec", "--sync interval", "cores of", "files on", "load average", "redis"},
		date + "-lonely-claim-interval.txt": {"one claim at a time", "medians of 2"},
		date + "-run-interval.json":         {`"name":"sold-out"`},
	} {
		text, err := os.ReadFile(filepath.Join(results, name))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, needle := range needles {
			if !strings.Contains(string(text), needle) {
				t.Errorf("%s has no %q:\n%s", name, needle, text)
			}
		}
	}
}

// tables is the JSON of a report that has nothing else.
type tables struct {
	Date    time.Time      `json:"date"`
	Results []report.Table `json:"results"`
}

func readTables(t *testing.T, raw []byte) (r tables) {
	t.Helper()
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMissingProgramsAreReported(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	t.Setenv("SCRIP_PG_BIN", empty)
	for system, fix := range map[string][]string{
		"scrip": {"make build", "--scrip PATH"}, "redis": {"apt-get install -y redis-server"}, "pg-skip-locked": {"apt-get install postgresql"},
	} {
		var out, progress bytes.Buffer
		if code := run(context.Background(), []string{"run", "claim-hot", "--dir", t.TempDir(), "--systems", system}, &out, &progress); code != 1 {
			t.Errorf("%s: exit %d", system, code)
		}
		contains(t, progress.String(), append(fix, "--systems")...)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"run claim-cold", "claim-hot"},
		{"run --systems mysql", "redis-x16"},
		{"run --durability never", "always or interval"},
		{"restart --n 0", "--n must be at least 1"},
		{"run --n -1", "--n must be at least 0"},
		{"run --runs 0", "--runs must be at least 1"},
		{"run -o xml", "table or json"},
		{"run --for 0s", "--for"},
		{"run --nonsense", "nonsense"},
	} {
		var progress bytes.Buffer
		code := run(t.Context(), strings.Fields(c.args), io.Discard, &progress)
		if code != 2 || !strings.Contains(progress.String(), c.want) {
			t.Errorf("%s: exit %d, %q; want 2 and %q", c.args, code, progress.String(), c.want)
		}
	}
}
