package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
)

// TestReportsAreMadePrintable: a report may contain control characters.
func TestReportsAreMadePrintable(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b]0;b\a\nc"
	var out strings.Builder
	m := &Main{Out: &out}
	err := m.printStatus(&status.Status{
		PerLane:   []status.Lane{{Holder: evil, State: evil, Error: evil, Tables: evil}},
		PerServer: []status.Server{{Server: evil, Roles: []string{evil}, Settings: evil}},
		Checks:    map[string]status.Result{evil: {Detail: map[string]any{"Error": evil}}}, Note: evil, Sync: evil, NATS: evil, HTTP: evil, NoDeadLetters: evil,
	})
	if n := strings.Count(out.String(), "a?]0;b? c"); err != nil || n != 14 || strings.ContainsAny(out.String(), "\x1b\a") {
		t.Errorf("shown %d times, %v: %q", n, err, out.String())
	}
}

// TestUnknownIsNotCurrent: of tables that no projector works on it is not known how late they are, which is not 0.
func TestUnknownIsNotCurrent(t *testing.T) {
	t.Parallel()
	zero, some := uint64(0), uint64(7)
	for _, c := range []struct {
		lane status.Lane
		want string // BEHIND LATE
	}{
		{status.Lane{}, `standby +- +-\s`},
		{status.Lane{Current: -1, LagSeconds: 5}, `standby +- +5 s`},
		{status.Lane{Behind: &zero}, `standby +0 +0 s`},
		{status.Lane{Behind: &some, LagSeconds: 3, Current: 2}, `standby +7 +3 s, current again in about 2 s`},
	} {
		var out strings.Builder
		m := &Main{Out: &out}
		c.lane.Tables = "standby"
		if err := m.printStatus(&status.Status{PerLane: []status.Lane{c.lane}}); err != nil || !regexp.MustCompile(c.want).MatchString(out.String()) {
			t.Errorf("%+v: %v, %s; want %s", c.lane, err, out.String(), c.want)
		}
	}
}
