package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

// TestLookUpGoals: ratios are of medians, by both doors; a goal is the coupon without its history alone.
func TestLookUpGoals(t *testing.T) {
	system := func(name string, p50 int64) report.System {
		return report.System{Name: name, Median: report.Run{Done: 1, Latency: report.Latency{P50: p50, Max: p50}}}
	}
	all := []report.System{system(lonelyHTTPName, 1000), system(lonelySDKName, 800), system(couponName, 900), system("customer", 2000)}
	var got []string
	for _, g := range lookUpGoals(all) {
		got = append(got, fmt.Sprintf("%.3f %s %s", g.Is, g.Wanted(), g.Result()))
	}
	if want := "[0.900 at most 1 met 2.000 - - 1.125 at most 1 missed 2.500 - -]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if goals := lookUpGoals(all[2:]); len(goals) != 0 {
		t.Errorf("without a claim: %+v", goals)
	}
	var out bytes.Buffer
	if err := report.Write(&out, &report.Table{Unit: lonely.unit, Systems: all, Goals: lookUpGoals(all)}); err != nil {
		t.Fatal(err)
	}
	contains(t, out.String(), "median: coupon 900us / claim-http 1.0ms", "0.90  at most 1  met", "2.00          -  -")
}

// TestLookUpCommandLine measures all recipes in one run.
func TestLookUpCommandLine(t *testing.T) {
	var out, progress bytes.Buffer
	args := []string{"lookup-http", "--n", "20", "--runs", "2", "--scrip", scripBinary, "--dir", openDir(t), "-o", "json"}
	if code := run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit %d: %s", code, progress.String())
	}
	r := readTables(t, out.Bytes())
	if len(r.Results) != 1 || len(r.Results[0].Systems) != len(lookUps) || len(r.Results[0].Goals) != 2*(len(lookUps)-2) {
		t.Fatalf("%+v", r)
	}
	for _, s := range r.Results[0].Systems {
		if s.Median.Done != 20 || s.Median.InFlight != 1 || s.Median.Latency.P50 == 0 || len(s.Runs) != 2 {
			t.Errorf("%+v", s)
		}
	}
}
