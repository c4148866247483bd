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
			o.durability = string(d)
			b := o.newBench()
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
					p := newPlan(w, w.name+"-"+r.name, n, 0)
					m, err := o.once(t.Context(), b, r, p)
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
					case m.InFlight < 1 || w.style == alone && m.InFlight != 1:
						t.Errorf("%s, %s: %d in flight", w.name, r.name, m.InFlight)
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

// TestEveryCommand: each measurement, small, with all of its systems. The runs check within that no answer is wrong: that every
// coupon is expired and every customer reached once, none early, that nothing is lost over starts, and that tables are right.
func TestEveryCommand(t *testing.T) {
	for _, c := range []struct {
		args    string
		needles []string
	}{
		{"restart --n 400", []string{"starts with 400 coupons", "40 coupons since the start", "ready after kill -9", "on disk before"}},
		{"tables --n 3000", []string{"3,000 coupons", "live projection", "WHERE code", "scrip rebuild", bareCopy, bareKeys, "scrip verify"}},
		{"expire --n 5000 --runs 1", []string{"expire: 5,000 coupons", "on disk before", "appendfsync always", "synchronous_commit on", "pg-set"}},
		{"remind --n 2500 --runs 1", []string{"remind: 2,500 customers", "river-5000", "last line on the reminder stream"}},
		{"pending --n 3000", []string{"3,000 reminders of 60 campaigns", "on disk before", "ready after kill -9", "all known after", "300 reminders since the start"}},
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
