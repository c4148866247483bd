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
)

// TestReplayWrongUsage: no request is sent; the error names the flag and the valid usage.
func TestReplayWrongUsage(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	claims := write("claims.sql", "-- scrip: types coupon.claimed\n-- scrip: fold\nSELECT 1;\n")
	commit := write("commits.sql", "-- scrip: fold\nSELECT 1;\nCOMMIT;\n")
	for _, c := range []struct{ args, want string }{
		{"extra", `takes no "extra"`},
		{"--campaign a.b", "--campaign: \"a.b\" is not a campaign name: 1 to 64 of A-Z"},
		{"--type coupon.gilded", "give one of campaign.created"},
		{"--type reminder.due", "reminders.due records the firing"},
		{"--since yesterday", "+10m or -24h"},
		{"--since --24h", "+10m or -24h"},
		{"--until -1", "+10m or -24h"},
		{"--since -1h --until -2h", "--until: "},
		{"--lane one", "number of a lane"},
		{"--lane -1", "number of a lane"},
		{"--lane 0 --from 1:5", "--from: lane 1 is not among"},
		{"--from 5", "such as 0:1000"},
		{"--from 0:0", "such as 0:1000"},
		{"--from 0:5 --from 0:6", "once per lane"},
		{"--from 0:5 --to 0:4", "--to: 0:4 is before --from 0:5"},
		{"--customer=", "omit the flag"},
		{"--format xml", "must be ndjson or csv or parquet or postgres"},
		{"--out=", "must be a file, or -"},
		{"--follow --until +1h", "--follow: it has no end"},
		{"--follow --to 0:4", "--follow: it has no end"},
		{"--follow --format parquet --out x", "--follow: a Parquet file cannot be appended to"},
		{"--follow --out x", "it needs --name NAME"},
		{"--name daily", "--name: a replay to standard output has no checkpoint"},
		{"--name daily --format parquet --out x", "--format: a Parquet file cannot be added to"},
		{"--name Daily --out x", "--name: \"Daily\" must start with a-z"},
		{"--reset", "--reset: without --name or --sql"},
		{"--print", "--print: only valid with --sql"},
		{"--format postgres", "--name: missing"},
		{"--format postgres --name x --out y", "--out: events go to table events"},
		{"--format postgres --name x --postgres localhost:x/y", "--postgres: must be a URL"},
		{"--sql " + claims + " --out x", "omit --format and --out"},
		{"--sql /does/not/exist.sql", "there is no file /does/not/exist.sql"},
		{"--sql example:nonsense", "claims_by_hour, never_redeem, time_to_redeem"},
		{"--sql " + commit, commit + ":3: COMMIT is not allowed"},
		{"--sql " + claims + " --type coupon.voided", "--type: "},
	} {
		got := scrip(t, []string{"SCRIP_DATA=" + t.TempDir()}, append([]string{"replay"}, strings.Fields(c.args)...)...)
		if got.code != cli.ExitUsage || !strings.Contains(got.err, c.want) || got.out != "" {
			t.Errorf("scrip replay %s: exit %d\n stdout %q\n stderr %q\n want exit 2 and %q", c.args, got.code, got.out, got.err, c.want)
		}
	}
	// Filters are never read from the environment; the database is.
	got := scrip(t, []string{"SCRIP_CAMPAIGN=a.b", "SCRIP_FORMAT=xml", "SCRIP_POSTGRES=localhost:x/y", "SCRIP_DATA=" + t.TempDir()}, "replay")
	if got.code != cli.ExitFailed || !strings.Contains(got.err, "no server runs") {
		t.Errorf("variables: %+v", got)
	}
	got = scrip(t, []string{"SCRIP_POSTGRES=localhost:x/y"}, "replay", "--sql", claims)
	if got.code != cli.ExitUsage || !strings.Contains(got.err, "--postgres") {
		t.Errorf("SCRIP_POSTGRES: %+v", got)
	}
	for _, name := range []string{"claims_by_hour", "never_redeem", "time_to_redeem"} {
		if got := scrip(t, nil, "replay", "--sql", "example:"+name, "--print"); got.code != 0 || !strings.Contains(got.out, "-- scrip: fold\n") {
			t.Errorf("--print: %+v", got)
		}
	}
}

// TestReplay: claims on standard output, in files and in tables. What is written is shown by package replay.
func TestReplay(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "replayed", "--codes", "100")
	for n := range 5 {
		p.must("claim", "replayed", "--customer", fmt.Sprint("replay-", n))
	}
	of := []string{"--campaign", "replayed"}
	got := p.run("replay", of[0], of[1], "--type", "coupon.claimed")
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
	if got := p.run("replay", "--lane", "4096"); got.code != cli.ExitUsage || !strings.Contains(got.err, "--lane: there is no lane 4096; the log has lanes 0 to 3") {
		t.Errorf("a lane that is not there: %+v", got)
	}

	dir := t.TempDir()
	for _, format := range []string{"ndjson", "parquet"} {
		file := filepath.Join(dir, "out."+format)
		sum := p.must("replay", of[0], of[1], "--out", file, "--format", format)
		if info, err := os.Stat(file); err != nil || info.Size() == 0 || sum["status"] != "replayed" || sum["events"] != 6.0 || sum["to"] != file {
			t.Errorf("%s: %v, %v", format, sum, err)
		}
	}
	if got := p.run("replay", "--out", "/dev/full"); got.code != cli.ExitFailed || !strings.Contains(got.err, "no space left on device") {
		t.Errorf("a full device: %+v", got)
	}
	// A file that is limited as a full disk would: the real program, an error, and nothing left.
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", `ulimit -f 1; exec "$0" replay --data "$1" --format csv --out "$2"`, program, p.data, filepath.Join(dir, "small.csv"))
	output, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != cli.ExitFailed || !strings.Contains(string(output), "make room") {
		t.Errorf("no room: %v\n%s", err, output)
	}
	for _, pattern := range []string{"*small*", ".*"} {
		if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	}

	// Tables, in the server's own database.
	if sum := p.must("replay", of[0], of[1], "--format", "postgres", "--name", "copy_1"); sum["to"] != "schema copy_1" || sum["events"] != 6.0 {
		t.Errorf("summary %v", sum)
	}
	p.must("replay", "--sql", "example:claims_by_hour")
	p.row("5", "SELECT sum(claims)::text FROM claims_by_hour.hour WHERE campaign = 'replayed'")
	bad := filepath.Join(dir, "bad.sql")
	for _, c := range []struct{ sql, want string }{
		{"UPDATE scrip.coupon_row\nSET code = 'X';\n", "denied for table coupon_row"},
		{"UPDATE\nSET code;\n", bad + ":3: syntax error"},
	} {
		if err := os.WriteFile(bad, []byte("-- scrip: fold\n"+c.sql), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := p.run("replay", "--sql", bad, "--reset"); got.code != cli.ExitFailed || !strings.Contains(got.err, c.want) {
			t.Errorf("%s: %+v", c.sql, got)
		}
	}
	if got := p.run("replay", "--format", "postgres", "--name", "scrip"); got.code != cli.ExitUsage || !strings.Contains(got.err, "--name: schema scrip is reserved") {
		t.Errorf("schema scrip: %+v", got)
	}
}

// TestReplayFollowedAndKilled: the program follows the log into a file, is killed (-9) between writing lines and saving its state,
// goes on, and ends with 0 after SIGTERM. No line is lost or doubled. Package replay has the moments of such a death.
func TestReplayFollowedAndKilled(t *testing.T) {
	p := shared(t)
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p.must("campaign", "create", "followed", "--codes", "1000")
	file := filepath.Join(t.TempDir(), "all.ndjson")
	of := []string{"--campaign", "followed", "--out", file, "--name", "all"}
	for round, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		cmd := exec.Command(program, append([]string{"replay", "--data", p.data, "--follow"}, of...)...)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		for n := range 5 {
			p.must("claim", "followed", "--customer", fmt.Sprint(round, "-", n))
		}
		wait(t, "lines in the file", stopLimit, func() bool {
			raw, _ := os.ReadFile(file)
			return strings.Count(string(raw), "coupon.claimed") == 5*(round+1)
		})
		_ = cmd.Process.Signal(signal)
		_ = cmd.Wait()
		if signal == syscall.SIGTERM && cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("%v ended with %s", cmd.Args, cmd.ProcessState)
		}
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(`{"lane":0,"sequence":1,"li`); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p.must(append([]string{"replay"}, of...)...)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := p.run("replay", "--campaign", "followed")
	if string(raw) != want.out {
		t.Errorf("the file has\n%s\nwant\n%s", raw, want.out)
	}
}
