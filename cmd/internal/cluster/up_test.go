package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/cmd/internal/process"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestCommandLine: what `make cluster` starts reports a child that was killed, starts it again, and stops all at Ctrl-C.
func TestCommandLine(t *testing.T) {
	folder, up := filepath.Join(projtest.Dir(t), "c"), filepath.Join(programs, "up")
	flags := []string{"-data", folder, "-compose", compose, "-scrip", e2e.Binary(), "-nats-server", filepath.Join(programs, "nats-server"), "-port", "0", "-set", "SCRIP_LANES=2"}
	runner, err := process.Start(process.Command{Program: up, Args: flags, Env: os.Environ(), Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = runner.StopWithin(0)
		e2e.EndPostgres(filepath.Join(folder, "postgres"))
	})
	output := func(want string) {
		t.Helper()
		streamtest.Eventually(t, "the runner prints "+want, func() bool {
			if !runner.Alive() {
				t.Fatalf("the runner ended: %s\n%s", runner.Ended(), runner.Output())
			}
			return strings.Contains(runner.Output(), want)
		})
	}
	command := func(words ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), up, append([]string{"-data", folder}, words...)...).CombinedOutput()
		return string(out), err
	}
	output("\nready. ")
	before, err := command("status")
	if err != nil || strings.Count(before, " up ") != 7 {
		t.Fatalf("status: %v\n%s", err, before)
	}
	for _, name := range []string{"nats-2", "scrip-3", "postgres"} {
		if out, err := command("kill", name); err != nil || !strings.Contains(out, name+": down") {
			t.Fatalf("kill %s: %v\n%s", name, err, out)
		}
		output(name + " ended: ")
		output("start " + name)
		if out, err := command("start", name); err != nil || !strings.Contains(out, name+": up") {
			t.Fatalf("start %s: %v\n%s", name, err, out)
		}
	}
	for _, c := range []struct{ line, want string }{
		{"start nats-1", "runs already"},
		{"kill nats-9", "no service; the services are nats-1, nats-2, nats-3, postgres, scrip-1"},
		{"burn nats-1", "no command; the commands are status, and start"},
		{"cut nats-1", "start it with -cut"},
		{"nats-1", "must be a command and the name of a service"},
	} {
		if out, err := command(strings.Fields(c.line)...); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n%s\nwant %q", c.line, err, out, c.want)
		}
	}
	second, err := exec.CommandContext(t.Context(), up, flags...).CombinedOutput()
	if err == nil || !strings.Contains(string(second), "runs on "+folder+" already") {
		t.Errorf("a second runner: %v\n%s", err, second)
	}

	running, err := command("status")
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if exit := runner.Wait(); exit != 0 {
		t.Fatalf("the runner ended with %d\n%s", exit, runner.Output())
	}
	for line := range strings.Lines(running) {
		if fields := strings.Fields(line); fields[0] != "SERVICE" && alive(fields[2]) {
			t.Errorf("%s still runs after Ctrl-C", fields[0])
		}
	}
	if out, err := command("status"); err == nil || !strings.Contains(out, "no cluster runs on") {
		t.Errorf("status after the end: %v\n%s", err, out)
	}
}

func alive(pid string) bool {
	out, err := exec.Command("ps", "-p", pid, "-o", "stat=").Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}
