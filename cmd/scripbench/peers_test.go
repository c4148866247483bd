//go:build peers

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

// What starts every peer takes minutes, so these tests are asked for by go test -tags peers, which make soak does.

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

func TestAnOpenLoopKeepsItsRate(t *testing.T) {
	o := small(t)
	o.recipes = []recipe{recipes[0]}
	o.rate = 4000
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

// TestEveryCommand: each measurement, small, with all of its systems. The runs check within that no answer is wrong: that every
// coupon is expired and every customer reached once, none early, that nothing is lost over starts, and that tables are right.
func TestEveryCommand(t *testing.T) {
	for _, c := range []struct {
		args    string
		needles []string
	}{
		{"restart --n 400 --campaigns 40", []string{"40 campaigns, 400 coupons claimed", "ready after kill -9", "on disk before"}},
		{"tables --n 3000", []string{"3,000 coupons", "live projection", "scrip rebuild", bareCopy, bareRead, "scrip verify"}},
		{"expire --n 5000 --runs 1", []string{"expire: 5,000 coupons", "on disk before", "appendfsync always", "synchronous_commit on", "pg-set"}},
		{"remind --n 2500 --runs 1 --campaigns 3 --claims 200", []string{"remind: 2,500 customers", "3 campaigns", "river-500", "last line on the reminder stream", "claims beside, scrip only, at"}},
		{"pending --n 3000 --campaigns 5", []string{"3,000 reminders of 5 campaigns", "on disk before", "ready after kill -9", "all known after", "300 subscriptions since the start"}},
	} {
		t.Run(strings.Fields(c.args)[0], func(t *testing.T) {
			var out, progress bytes.Buffer
			args := append(strings.Fields(c.args), "--durability", "always", "--scrip", scripBinary, "--dir", openDir(t))
			if code := run(t.Context(), args, &out, &progress); code != 0 {
				t.Fatalf("exit %d: %s", code, progress.String())
			}
			contains(t, out.String(), c.needles...)
		})
	}
}
