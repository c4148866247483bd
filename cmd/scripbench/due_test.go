package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

// contains checks that a text has everything.
func contains(t *testing.T, text string, needles ...string) {
	t.Helper()
	for _, needle := range needles {
		if !strings.Contains(text, needle) {
			t.Errorf("%q is missing in:\n%s", needle, text)
		}
	}
}

// TestDueCommandLine goes from flags to JSON.
func TestDueCommandLine(t *testing.T) {
	var out, progress bytes.Buffer
	args := []string{"remind", "--n", "600", "--runs", "2", "--systems", "redis-pop", "--durability", "interval", "--scrip", scripBinary, "--dir", openDir(t), "-o", "json"}
	if code := run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit %d: %s", code, progress.String())
	}
	r := readTables(t, out.Bytes())
	if len(r.Results) != 1 || r.Results[0].FileName() != "remind-interval" || len(r.Results[0].Systems) != 1 ||
		len(r.Results[0].Systems[0].Runs) != 2 || r.Results[0].Systems[0].Median.Done != 600 {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct{ args, want string }{
		{"expire --systems mysql", "redis-zset"},
		{"expire --runs 0", "--runs must be at least 1"},
		{"remind --n 0", "--n must be at least 1"},
	} {
		var progress bytes.Buffer
		code := run(t.Context(), strings.Fields(c.args), io.Discard, &progress)
		if code != 2 || !strings.Contains(progress.String(), c.want) {
			t.Errorf("%s: exit %d, %q; want 2 and %q", c.args, code, progress.String(), c.want)
		}
	}
}

// TestALedgerKeepsNoWrongAnswer: a customer who was reached twice, early or not at all, or is unknown, fails the run.
func TestALedgerKeepsNoWrongAnswer(t *testing.T) {
	const n = 66
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Minute)
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	for name, c := range map[string]struct {
		at      time.Time
		reached [][]int
		want    string // "" = nothing is wrong
	}{
		"all":              {past, [][]int{all[:10], all[30:], all[10:30]}, ""},
		"one is left out":  {past, [][]int{all[:65]}, "65 of 66"},
		"one twice":        {past, [][]int{all, {64}}, "1 more than once"},
		"twice in a batch": {past, [][]int{all[:60], {60, 60, 61, 62, 63, 64, 65}}, "1 more than once"},
		"strangers":        {past, [][]int{all, {66, -1}}, "2 unknown"},
		"too early":        {future, [][]int{all}, "66 early"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(n)
			l.at = c.at
			for _, customers := range c.reached {
				l.reach(time.Now(), report.Each(customers, customerID)...)
			}
			var m report.Run
			err := l.judge(t.Context(), &m)
			switch {
			case c.want == "" && (err != nil || m.First < 60 || m.Seconds < m.First || m.Latency.P50 < 1e6):
				t.Errorf("%+v, %v", m, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			if err := l.wait(ended, &m); name == "one is left out" && err == nil {
				t.Error("it did not wait for the last")
			}
		})
	}
}

// TestCustomers: ids are made and read back.
func TestCustomers(t *testing.T) {
	for _, i := range []int{0, 7, 59_999_999} {
		for _, before := range []string{"", "remind-3:"} {
			if n := numberOf(before + customerID(i)); n != i {
				t.Errorf("%s%s is %d", before, customerID(i), n)
			}
		}
	}
	for _, wrong := range []string{"", "7", "customer-", "customer-7x", "customer--7", "customer-1234567890123"} {
		if n := numberOf(wrong); n != -1 {
			t.Errorf("%q is taken for %d", wrong, n)
		}
	}
}

// TestAimed: an instant that came too near while a system was filled is moved, and not for ever.
func TestAimed(t *testing.T) {
	times := 0
	at, err := aimed(-time.Hour, func(_ time.Time, again bool) error {
		if again != (times > 0) {
			t.Errorf("time %d, again %v", times, again)
		}
		times++
		return nil
	})
	if err == nil || times != aimTries {
		t.Errorf("%v after %d times: %v", at, times, err)
	}
	if at, err = aimed(0, func(time.Time, bool) error { return nil }); err != nil || time.Until(at) < settled || at.Nanosecond() != 0 {
		t.Errorf("%v, %v", at, err)
	}
	broken := errors.New("broken")
	if _, err = aimed(0, func(time.Time, bool) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}
