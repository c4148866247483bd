package main

import (
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
