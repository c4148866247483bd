package report

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// at is a run with that rate.
func at(rate float64, done int) Run { return Run{Rate: rate, Done: done, InFlight: 32} }

func TestMediansAndRatios(t *testing.T) {
	table := &Table{Head: Head{Name: "claim-hot", Durability: Always, N: 1000, Load: "0.1 0.2 0.3"}, About: "…", Unit: "claims", Systems: []System{
		{Name: "scrip", Recipe: "ours", Runs: []Run{at(300_000, 1000), at(100_000, 1000), at(290_000, 1000)}},
		{Name: "redis", Recipe: "Lua", Runs: []Run{at(58_000, 0), at(60_000, 0), at(56_000, 0)}},
		{Name: "limit", Recipe: "bare", Runs: []Run{at(1_000_000, 0), at(900_000, 0)}},
	}}
	Compare(table.Systems)
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
	if err := Write(&out, table); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"SYSTEM  CLAIMS/S         LEAST-MOST  SCRIP IS  IN FLIGHT  P50  P99  P99.9  SERVER CPU  CLIENT CPU  MEMORY  RECIPE",
		"scrip    290,000    100,000-300,000         -         32    -    -      -       0.0us       0.0us       -  ours",
		"redis     58,000      56,000-60,000      5.0x         32    -    -      -           -           -       -  Lua",
		"limit    950,000  900,000-1,000,000     0.31x         32    -    -      -           -           -       -  bare",
	}
	if !strings.HasSuffix(out.String(), strings.Join(want, "\n")+"\n") {
		t.Errorf("the table is\n%s\nwant\n%s", out.String(), strings.Join(want, "\n"))
	}
	if !strings.Contains(out.String(), "durability: always (on disk before the answer)") || !strings.Contains(out.String(), "medians of 3") {
		t.Errorf("the settings are missing:\n%s", out.String())
	}
}

func TestABusyMachineIsReported(t *testing.T) {
	table := &Table{Unit: "claims", Systems: []System{{Name: "scrip", Runs: []Run{at(1, 1000)}}}}
	for _, others := range []float64{1, 1e6} {
		table.Systems[0].Runs[0].OthersCPU, table.Systems[0].Runs[0].Watched = others, 1000
		var out bytes.Buffer
		if err := Write(&out, table); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Contains(out.String(), "BUSY MACHINE"), others > 1; got != want {
			t.Errorf("%v s of others in 1000 s: busy %v", others, got)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for got, want := range map[string]string{
		Thousands(0): "0", Thousands(999): "999", Thousands(1000): "1,000", Thousands(1234567.6): "1,234,568", Thousands(-1234): "-1,234",
		ratioText(0): "-", ratioText(0.305): "0.30x", ratioText(0.034): "0.034x", ratioText(1.5): "1.5x", ratioText(9.97): "10x", ratioText(23.4): "23x", ratioText(1234): "1,234x",
		Micro(7): "7us", Micro(1500): "1.5ms", Micro(15_400): "15ms", Micro(1_234_000): "1234ms", Micro(12_340_000): "12.3s",
		perOperation(2, 1_000_000): "2.0us", perOperation(2, 0): "-", mebibytes(1 << 30): "1,024MiB", mebibytes(0): "-",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSecondsAreReadable: from microseconds to minutes.
func TestSecondsAreReadable(t *testing.T) {
	for s, want := range map[float64]string{0.000_004: "4us", -0.0015: "-1.5ms", 0.75: "750ms", 12.34: "12.3s", 900: "900.0s"} {
		if got := Seconds(s); got != want {
			t.Errorf("%f is %q, want %q", s, got, want)
		}
	}
}

// TestHistogram compares with numbers known in advance: 1 to 10,000 ms.
func TestHistogram(t *testing.T) {
	l := NewLatencies()
	for i := 1; i <= 10_000; i++ {
		l.Record(time.Duration(i)*time.Millisecond, 1)
	}
	near := func(got int64, want time.Duration) bool {
		w := want.Microseconds()
		return got >= w-w/500 && got <= w+w/500 // three digits
	}
	got := l.Result()
	if !near(got.P50, 5*time.Second) || !near(got.P99, 9900*time.Millisecond) || !near(got.P999, 9990*time.Millisecond) || !near(got.Max, 10*time.Second) {
		t.Errorf("%+v", got)
	}
	edges := NewLatencies()
	edges.Record(0, 1)
	edges.Record(time.Hour, 1)
	if got := edges.Result(); got.P50 != leastLatency || !near(got.Max, mostLatency*time.Microsecond) {
		t.Errorf("outside of the bounds: %+v", got)
	}
	many := NewLatencies()
	many.Record(time.Millisecond, 999)
	many.Record(time.Second, 1)
	if got := many.Result(); !near(got.P99, time.Millisecond) || !near(got.Max, time.Second) {
		t.Errorf("a batch counts as often as it has operations: %+v", got)
	}
}
