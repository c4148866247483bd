package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

// small are options for runs that are over in a moment.
func small(t *testing.T) options {
	t.Helper()
	return options{recipes: recipes, scrip: scripBinary, base: openDir(t), callers: 32, n: 1000, runs: 1, warmup: 100, limit: time.Minute, seed: 1, progress: t.Output()}
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

// few is the workload with fewer campaigns.
func few(w workload) workload {
	w.campaigns = min(w.campaigns, 50)
	return w
}

// TestEverySystemDoesEveryWorkload: once checks that codes are distinct, that no claim is refused while there are coupons,
// and that the server holds what was answered. The test adds that no operation is left out.
func TestEverySystemDoesEveryWorkload(t *testing.T) {
	for _, d := range []report.Durability{report.Always, report.Interval} {
		t.Run(string(d), func(t *testing.T) {
			o := small(t)
			b := o.newBench(d)
			if err := b.missing(recipes); err != nil {
				t.Fatal(err)
			}
			// One set of servers for all workloads; bench itself takes new ones for each.
			t.Cleanup(func() {
				if err := b.down(); err != nil {
					t.Error(err)
				}
				if left, _ := os.ReadDir(o.base); len(left) != 0 {
					t.Errorf("%d directories are left", len(left))
				}
			})
			list, needed := workloads, recipes
			if d == report.Interval { // only the servers' settings differ
				list, needed = list[:1], o.fitting(list[0])
			}
			if err := b.up(t.Context(), o.base, needed); err != nil {
				t.Fatal(err)
			}
			for _, w := range list {
				w := few(w)
				for _, r := range o.fitting(w) {
					if why := b.leftOut[r.server(b)]; why != nil {
						t.Logf("%s: %v", r.name, why)
						continue
					}
					n := o.n
					if w.style == alone {
						n = 100
					}
					p := newPlan(w, w.name+"-"+r.name, n, o.seed)
					m, inFlight, err := o.once(t.Context(), b, r, p, pace{n: n, limit: o.limit})
					switch {
					case err != nil:
						t.Fatalf("%s, %s: %v", w.name, r.name, err)
					case m.Done != n:
						t.Errorf("%s, %s: %d operations done, want %d", w.name, r.name, m.Done, n)
					case m.Done-m.Refused != p.coupons() && w.campaigns == 1:
						t.Errorf("%s, %s: %d coupons given out, there were %d", w.name, r.name, m.Done-m.Refused, p.coupons())
					case w.share == 0 && m.Refused != 0:
						t.Errorf("%s, %s: %d refused", w.name, r.name, m.Refused)
					case m.Rate <= 0 || m.Latency.P50 <= 0 || m.Latency.Max < m.Latency.P99 || m.Latency.P99 < m.Latency.P50:
						t.Errorf("%s, %s: no sensible numbers: %+v", w.name, r.name, m)
					case inFlight < 1 || w.style == alone && inFlight != 1:
						t.Errorf("%s, %s: %d in flight", w.name, r.name, inFlight)
					case m.Memory <= 0:
						t.Errorf("%s, %s: a server without memory", w.name, r.name)
					case w.style == overHTTP && r.name == report.Subject && m.ProcessCPU < 0.01:
						t.Errorf("%s, %s: %v s of CPU time for %d claims", w.name, r.name, m.ProcessCPU, n)
					}
				}
			}
		})
	}
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

// TestTheCommandLine goes from flags to table, JSON, files and plot.
func TestTheCommandLine(t *testing.T) {
	results := t.TempDir()
	var out, progress bytes.Buffer
	args := []string{"run", "sold-out", "lonely-claim", "--n", "1000", "--runs", "2", "--warmup", "50", "--systems", "scrip,redis", "--durability", "interval",
		"--scrip", scripBinary, "--dir", openDir(t), "--results", results, "--callers", "8", "-o", "json"}
	if code := run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit %d: %s", code, progress.String())
	}
	var r report.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Tables) != 2 || r.Tables[0].Workload != "sold-out" || len(r.Tables[0].Systems) != 2 || len(r.Tables[0].Systems[1].Runs) != 2 {
		t.Fatalf("%+v", r.Tables)
	}
	ours, theirs := r.Tables[0].Systems[0].Median, r.Tables[0].Systems[1]
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
		date + "-run-interval.json":         {`"workload":"sold-out"`},
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
	chart := filepath.Join(results, "chart.svg")
	if code := run(t.Context(), []string{"plot", "--workload", "sold-out", chart, filepath.Join(results, date+"-run-interval.json")}, io.Discard, &progress); code != 0 {
		t.Fatalf("plot: exit %d: %s", code, progress.String())
	}
	text, err := os.ReadFile(chart)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(text), "<svg", "sold-out, interval", "redis")
	if strings.Contains(string(text), "lonely-claim") {
		t.Errorf("not only the workload that --workload names:\n%s", text)
	}
}

func TestAnOpenLoopKeepsItsRate(t *testing.T) {
	o := small(t)
	o.recipes = []recipe{recipes[0]}
	o.rate = rate{perSecond: 4000, text: "4000 a second"}
	var tables []*report.Table
	for _, name := range []string{"claim-hot", "claim-request"} {
		list, err := named(workloads, workloadName, []string{name}, "%q, %s")
		if err != nil {
			t.Fatal(err)
		}
		done := func(r report.Result) error { tables = append(tables, r.(*report.Table)); return nil }
		if err := o.workloads(t.Context(), report.Interval, list, done); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range tables {
		m := table.Systems[0].Median
		if m.Done != o.n || m.Rate > 4000*1.01 {
			t.Errorf("%s: %d done at %v a second, want %d at no more than 4000", table.Workload, m.Done, m.Rate, o.n)
		}
		if table.OpenLoop == "" || table.Systems[0].Ratio != 0 {
			t.Errorf("%s: %+v", table.Workload, table)
		}
	}
}

func TestGrowth(t *testing.T) {
	o := small(t)
	o.n = 500
	g, err := o.growth(t.Context(), report.Interval, []int{100, 4000}, []int{1, 20})
	if err != nil {
		t.Fatal(err)
	}
	sizes := func(levels []report.Level) (s []int) {
		for _, l := range levels {
			s = append(s, l.Size)
			if l.Rates.Rate <= 0 || l.Rates.Done != o.n || l.OfFirst <= 0 {
				t.Errorf("%+v", l)
			}
		}
		return s
	}
	if !slices.Equal(sizes(g.Claimed), []int{100, 4000}) || !slices.Equal(sizes(g.Campaigns), []int{1, 20}) {
		t.Errorf("%+v", g)
	}
	var out strings.Builder
	if err := report.Write(&out, g); err != nil {
		t.Fatal(err)
	}
	contains(t, out.String(), "CLAIMED IN ONE CAMPAIGN", "4,000", "100%", "may lose")
	out.Reset()
	if err := (&report.Report{Growth: g}).Chart(&out); err != nil {
		t.Fatal(err)
	}
	contains(t, out.String(), "growth, interval", "4,000")
	// 2,500 are claimed after the windows at 1,000, which is further than the next level.
	if list := o.grow(1000+report.GrowthRuns*o.n, 1100); list != nil {
		t.Errorf("levels that overlap: %d plans", len(list))
	}
}

// TestRestart: that coupons are still their customers' after each start is checked within.
func TestRestart(t *testing.T) {
	o := small(t)
	o.n, o.beside = 500, 300*time.Millisecond
	r, err := o.restart(t.Context(), report.Always, []heldSize{{1, 3000}, {40, 10}})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range r.Rows {
		if h.FillRate <= 0 || h.Empty <= 0 || h.Again <= 0 || h.Without.P50 <= 0 || h.ReadyAfterStop <= 0 || h.ReadyAfterKill <= 0 {
			t.Errorf("%+v", h)
		}
	}
	var out strings.Builder
	if err := report.Write(&out, r); err != nil {
		t.Fatal(err)
	}
	contains(t, out.String(), "40 campaigns, 400 coupons claimed", "ready after kill -9", "on disk before")
	for _, wrong := range []string{"", "1", "x3", "0x5", "1x-1"} {
		if _, err := parseHeld(wrong); err == nil {
			t.Errorf("--held %q is taken", wrong)
		}
	}
}

// TestTables: scrip verify, which the run ends with, checks that tables are right after a rebuild.
func TestTables(t *testing.T) {
	o := small(t)
	// A rebuild yields to claims: at a rate that fills a loaded machine it would not end.
	o.n, o.beside, o.besideRate = 3000, 300*time.Millisecond, 300
	r, err := o.tables(t.Context(), report.Always)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := report.Write(&out, r); err != nil {
		t.Fatal(err)
	}
	contains(t, out.String(), "3,000 coupons", "live projection", "scrip rebuild of emptied tables, beside claims", bareCopy, bareRead, "scrip verify")
	for i, row := range r.Rows { // the live projection may have had any number left
		if row.Lines < o.n && i > 0 || row.Seconds <= 0 {
			t.Errorf("%+v", row)
		}
	}
	if r.Before.P50 <= 0 || r.During.P50 <= 0 {
		t.Errorf("%+v", r)
	}
}

func TestMissingProgramsAreReported(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	t.Setenv("SCRIP_PG_BIN", empty)
	var out, progress bytes.Buffer
	code := run(context.Background(), []string{"run", "claim-hot", "--dir", t.TempDir()}, &out, &progress)
	if code != 1 {
		t.Errorf("exit %d", code)
	}
	contains(t, progress.String(), "make build", "--scrip PATH", "apt-get install -y redis-server", "apt-get install postgresql", "--systems")
}

func TestUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"run claim-cold", "claim-hot"},
		{"run --systems mysql", "redis-x16"},
		{"run --durability never", "always or interval"},
		{"run --rate fast", "50%"},
		{"run --rate 120%", "50%"},
		{"run --callers 0", "--callers must be at least 1"},
		{"run --runs 0", "--runs must be at least 1"},
		{"run -o xml", "table or json"},
		{"run --for 0s", "--for"},
		{"run --nonsense", "nonsense"},
		{"growth --durability always,interval", "at one"},
		{"plot --workload claim-cold a b", "claim-hot"},
	} {
		var progress bytes.Buffer
		code := run(t.Context(), strings.Fields(c.args), io.Discard, &progress)
		if code != 2 || !strings.Contains(progress.String(), c.want) {
			t.Errorf("%s: exit %d, %q; want 2 and %q", c.args, code, progress.String(), c.want)
		}
	}
}
