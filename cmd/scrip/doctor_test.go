package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/doctor"
)

// TestDoctor: beside a server that is well nothing fails, and the rights of its credentials are tried without an effect.
func TestDoctor(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t))
	d := p.ready()
	got := p.run("doctor", "--as", d.NATSURL, "-o", "json")
	var rights, clocks int
	for line := range strings.Lines(got.out) {
		var f doctor.Finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		switch {
		case f.Level == doctor.Fail && (f.Check == "disk" || f.Check == "space" || f.Check == "memory"): // of the machine of the test
		case f.Level == doctor.Fail:
			t.Errorf("%+v", f)
		case f.Check == "rights" && strings.Contains(f.What, "claim"):
			rights++
		case f.Check == "clock":
			clocks++
		}
	}
	if rights != 1 || clocks != 2 {
		t.Errorf("%d findings about rights, %d about clocks\n%s", rights, clocks, got.out)
	}
	if list := p.run("campaign", "list"); strings.Contains(list.out, "scrip-doctor") {
		t.Errorf("it had an effect:\n%s", list.out)
	}
	if got := p.run("doctor", "--nats", "nats://127.0.0.1:1"); got.code != cli.ExitFailed || !strings.Contains(got.out, "fail") || !strings.Contains(got.out, "--nats") {
		t.Errorf("exit %d\n%s%s", got.code, got.out, got.err)
	}
}
