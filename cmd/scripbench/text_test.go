package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMediansAndRatios(t *testing.T) {
	table := Table{Workload: "claim-hot", About: "…", Unit: "claims", Durability: always, N: 1000, Load: "0.1 0.2 0.3", Systems: []System{
		{Name: "scrip", InFlight: 32768, Recipe: "ours", Runs: []Measure{{Rate: 300_000, Done: 1000}, {Rate: 100_000, Done: 1000}, {Rate: 290_000, Done: 1000, spent: spent{ServerCPU: 0.005}}}},
		{Name: "redis", InFlight: 256, Recipe: "Lua", Runs: []Measure{{Rate: 58_000}, {Rate: 60_000}, {Rate: 56_000}}},
		{Name: "limit", Recipe: "bare", Runs: []Measure{{Rate: 1_000_000}, {Rate: 900_000}}},
	}}
	table.compare()
	if got := table.Systems[0].Median.Rate; got != 290_000 {
		t.Errorf("median %v", got)
	}
	if got := table.Systems[2].Median.Rate; got != 950_000 {
		t.Errorf("median of two %v", got)
	}
	if table.Systems[0].Ratio != 0 || table.Systems[1].Ratio != 5 || ratioText(table.Systems[2].Ratio) != "0.31x" {
		t.Errorf("ratios %v %v %v", table.Systems[0].Ratio, table.Systems[1].Ratio, table.Systems[2].Ratio)
	}
	var out bytes.Buffer
	if err := tableText(&out, table); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"SYSTEM  CLAIMS/S         LEAST-MOST  SCRIP IS  IN FLIGHT  P50  P99  P99.9  SERVER CPU  CLIENT CPU  MEMORY  RECIPE",
		"scrip    290,000    100,000-300,000         -     32,768  0us  0us    0us       0.0us       0.0us       -  ours",
		"redis     58,000      56,000-60,000      5.0x        256  0us  0us    0us           -           -       -  Lua",
		"limit    950,000  900,000-1,000,000     0.31x          0  0us  0us    0us           -           -       -  bare",
	}
	if !strings.HasSuffix(out.String(), strings.Join(want, "\n")+"\n") {
		t.Errorf("the table is\n%s\nwant\n%s", out.String(), strings.Join(want, "\n"))
	}
	if !strings.Contains(out.String(), "durability: always (on disk before the answer)") || !strings.Contains(out.String(), "medians of 3") {
		t.Errorf("the settings are missing:\n%s", out.String())
	}
}

func TestABusyMachineIsReported(t *testing.T) {
	table := Table{Unit: "claims", Durability: always, Systems: []System{{Name: "scrip", Runs: []Measure{{Seconds: 1000, spent: spent{OthersCPU: 1}}}}}}
	for _, others := range []float64{1, 1e6} {
		table.Systems[0].Runs[0].OthersCPU = others
		var out bytes.Buffer
		if err := tableText(&out, table); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Contains(out.String(), "BUSY MACHINE"), others > 1; got != want {
			t.Errorf("%v s of others in 1000 s: busy %v", others, got)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for got, want := range map[string]string{
		thousands(0): "0", thousands(999): "999", thousands(1000): "1,000", thousands(1234567.6): "1,234,568", thousands(-1234): "-1,234",
		ratioText(0): "-", ratioText(0.305): "0.30x", ratioText(0.034): "0.034x", ratioText(1.5): "1.5x", ratioText(9.97): "10x", ratioText(23.4): "23x", ratioText(1234): "1,234x",
		microText(7): "7us", microText(1500): "1.5ms", microText(15_400): "15ms", microText(1_234_000): "1234ms", microText(12_340_000): "12.3s",
		perOperation(2, 1_000_000): "2.0us", perOperation(2, 0): "-", mebibytes(1 << 30): "1,024MiB", mebibytes(0): "-",
		short(10): "10", short(300_000): "300k", short(1_200_000): "1.2M",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTheMachineIsDescribed(t *testing.T) {
	m := thisMachine(t.TempDir())
	if m.Cores < 1 || m.Go == "" || m.System == "" {
		t.Errorf("%+v", m)
	}
	if _, err := os.Stat("/proc/mounts"); err == nil && (m.Filesystem == unknown || m.Memory == unknown || loadAverage() == unknown) {
		t.Errorf("%+v, load %s", m, loadAverage())
	}
}

// TestUsageSeesChildren: PostgreSQL's work is done by children of its postmaster.
func TestUsageSeesChildren(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		if got := usageOf(os.Getpid()); got != (usage{}) {
			t.Errorf("without /proc: %+v", got)
		}
		return
	}
	dir := t.TempDir()
	p, err := startProcess(dir+"/log", "sh", "-c", "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; read x' & wait")
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop(time.Second)
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if u := usageOf(p.pid()); u.cpu >= 20*time.Millisecond && u.memory > 0 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("%+v", u)
		}
		<-tick.C
	}
}

func TestTheOutputOfAServerThatEndsIsReported(t *testing.T) {
	p, err := startProcess(t.TempDir()+"/log", "sh", "-c", "echo no such luck; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	<-p.gone
	if err := p.died(); !strings.Contains(err.Error(), "no such luck") || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	if _, err := startProcess(t.TempDir()+"/log", "/nowhere/at-all"); err == nil {
		t.Error("a program that is not there was started")
	}
}
