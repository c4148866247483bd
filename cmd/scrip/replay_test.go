package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestReplay: claims on standard output, in files and in tables. What is written is shown by package replay, and wrong usage by
// TestWrongUsage.
func TestReplay(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "replayed", "--codes", "100")
	for n := range 5 {
		p.must("claim", "replayed", "--customer", fmt.Sprint("replay-", n))
	}
	got := p.run("replay", "--campaign", "replayed", "--type", "coupon.claimed")
	if got.code != 0 || strings.Count(got.out, "\n") != 5 || !strings.HasPrefix(got.out, `{"lane":`) || got.err != "" {
		t.Errorf("claims: %+v", got)
	}
	got = p.run("replay", "--customer", "replay-1", "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(got.out)).ReadAll()
	if err != nil || got.code != 0 || len(rows) != 2 || rows[1][3] != "coupon.claimed" {
		t.Errorf("a customer: %+v, %v", got, err)
	}
	if got := p.run("replay", "--since", "2031-01-01T00:00:00Z"); got.code != 0 || got.out != "" {
		t.Errorf("the future: %+v", got)
	}
	p.expect(cli.ExitUsage, "--lane: there is no lane 4096; the log has lanes 0 to 3", "replay", "--lane", "4096")

	dir := t.TempDir()
	for _, format := range []string{"ndjson", "parquet"} {
		file := filepath.Join(dir, "out."+format)
		sum := p.must("replay", "--campaign", "replayed", "--out", file, "--format", format)
		if info, err := os.Stat(file); err != nil || info.Size() == 0 || sum["status"] != "replayed" || sum["events"] != 6.0 || sum["to"] != file {
			t.Errorf("%s: %v, %v", format, sum, err)
		}
	}
	parts := filepath.Join(dir, "parts")
	for _, events := range []float64{6, 0} {
		if sum := p.must("replay", "--campaign", "replayed", "--format", "parquet", "--partition", "day", "--out", parts); sum["events"] != events {
			t.Errorf("partitions: %v", sum)
		}
	}
	p.expect(cli.ExitFailed, "no space left on device", "replay", "--out", "/dev/full")

	// Tables, in the server's own database.
	if sum := p.must("replay", "--campaign", "replayed", "--format", "postgres", "--name", "copy_1"); sum["to"] != "schema copy_1" || sum["events"] != 6.0 {
		t.Errorf("summary %v", sum)
	}
	p.must("replay", "--sql", "example:claims_by_hour")
	p.row("5", "SELECT sum(claims)::text FROM claims_by_hour.hour WHERE campaign = 'replayed'")
	for _, name := range []string{"claims_by_hour", "never_redeem", "time_to_redeem"} {
		p.expect(cli.ExitDone, "-- scrip: fold\n", "replay", "--sql", "example:"+name, "--print")
	}
	bad := filepath.Join(dir, "bad.sql")
	for text, want := range map[string]string{"UPDATE scrip.campaign\nSET status = 'X';\n": "denied for view campaign", "UPDATE\nSET code;\n": bad + ":3: syntax error"} {
		streamtest.Must(t, os.WriteFile(bad, []byte("-- scrip: fold\n"+text), 0o600))
		p.expect(cli.ExitFailed, want, "replay", "--sql", bad, "--reset")
	}
	p.expect(cli.ExitUsage, "--name: schema scrip is reserved", "replay", "--format", "postgres", "--name", "scrip")
}

// TestReplayFollowed: the program follows the log into a file until SIGTERM, and ends with 0. Package replay shows that no line is lost
// or doubled where it is killed.
func TestReplayFollowed(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "followed", "--codes", "1000")
	file := filepath.Join(t.TempDir(), "all.ndjson")
	cmd := exec.Command(e2e.Binary(), "replay", "--data", p.Data, "--follow", "--campaign", "followed", "--out", file, "--name", "all")
	cmd.Stderr = os.Stderr
	streamtest.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	p.must("claim", "followed", "--customer", "follow-ann")
	streamtest.Eventually(t, "the claim is in the file", func() bool {
		raw, _ := os.ReadFile(file)
		return strings.Contains(string(raw), "coupon.claimed")
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v ended with %v", cmd.Args, err)
	}
}
