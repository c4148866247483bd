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
		{"--since yesterday", "-24h or +10m"},
		{"--since --24h", "-24h or +10m"},
		{"--until -1", "-24h or +10m"},
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
		{"--name Daily --out x", "--name: \"Daily\" must begin with a-z"},
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

// TestReplay: from claims to files and tables.
func TestReplay(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t))
	p.must("campaign", "create", "summer", "--codes", "100")
	p.must("campaign", "create", "winter", "--codes", "100")
	first := p.must("claim", "summer", "--customer", "alice")
	for n := range 5 {
		p.must("claim", "summer", "--customer", fmt.Sprint("s", n))
		p.must("claim", "winter", "--customer", fmt.Sprint("w", n))
	}
	p.must("redeem", first["code"].(string), "--order", "o1")

	// Standard output.
	got := p.run("replay", "--campaign", "summer", "--type", "coupon.claimed")
	if got.code != 0 || strings.Count(got.out, "\n") != 6 || !strings.HasPrefix(got.out, `{"lane":`) || got.err != "" {
		t.Errorf("summer's claims: %+v", got)
	}
	got = p.run("replay", "--customer", "alice", "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(got.out)).ReadAll()
	if err != nil || got.code != 0 || len(rows) != 3 || rows[1][3] != "coupon.claimed" || rows[2][3] != "coupon.redeemed" {
		t.Errorf("alice: %+v, %v", got, err)
	}
	if got := p.run("replay", "--since", "2031-01-01T00:00:00Z"); got.code != 0 || got.out != "" {
		t.Errorf("the future: %+v", got)
	}
	if got := p.run("replay", "--lane", "4096"); got.code != cli.ExitUsage || !strings.Contains(got.err, "--lane: there is no lane 4096; the log has lanes 0 to 3") {
		t.Errorf("a lane that is not there: %+v", got)
	}

	// Files.
	dir := t.TempDir()
	file := filepath.Join(dir, "out.ndjson")
	if sum := p.must("replay", "--out", file); sum["status"] != "replayed" || sum["events"] != 14.0 || sum["to"] != file {
		t.Errorf("summary %v", sum)
	}
	if sum := p.must("replay", "--out", filepath.Join(dir, "out.parquet"), "--format", "parquet"); sum["events"] != 14.0 {
		t.Errorf("summary %v", sum)
	}
	for _, path := range []string{file, filepath.Join(dir, "out.parquet")} {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", path, info, err)
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
	small := filepath.Join(dir, "small.csv")
	cmd := exec.Command("bash", "-c", `ulimit -f 1; exec "$0" replay --data "$1" --format csv --out "$2"`, program, p.data, small)
	output, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != cli.ExitFailed || !strings.Contains(string(output), "make room") {
		t.Errorf("no room: %v\n%s", err, output)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*small*")); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("left %v", left)
	}

	// Tables, with the server's own database.
	if sum := p.must("replay", "--format", "postgres", "--name", "copy_1"); sum["to"] != "schema copy_1" || sum["events"] != 14.0 {
		t.Errorf("summary %v", sum)
	}
	p.row("11", "SELECT count(*)::text FROM copy_1.events WHERE type = 'coupon.claimed'")
	p.must("replay", "--sql", "example:claims_by_hour")
	p.row("summer 6 1, winter 5 0", `SELECT string_agg(campaign || ' ' || c || ' ' || r, ', ' ORDER BY campaign) FROM (SELECT campaign, sum(claims) c, sum(redemptions) r FROM claims_by_hour.hour GROUP BY 1) x`)
	p.must("replay", "--sql", "example:never_redeem", "--name", "collectors")
	p.row("10", "SELECT count(*)::text FROM collectors.collector")
	bad := filepath.Join(dir, "bad.sql")
	if err := os.WriteFile(bad, []byte("-- scrip: fold\nUPDATE scrip.coupon_row\nSET code = 'X';\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.run("replay", "--sql", bad); got.code != cli.ExitFailed || !strings.Contains(got.err, "denied for table coupon_row") || !strings.Contains(got.err, "its own schema bad only") {
		t.Errorf("writing outside: %+v", got)
	}
	if err := os.WriteFile(bad, []byte("-- scrip: fold\nUPDATE\nSET code;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.run("replay", "--sql", bad, "--reset"); got.code != cli.ExitFailed || !strings.Contains(got.err, bad+":3: syntax error") {
		t.Errorf("a syntax error: %+v", got)
	}
	if got := p.run("replay", "--format", "postgres", "--name", "scrip"); got.code != cli.ExitUsage || !strings.Contains(got.err, "--name: schema scrip is reserved") {
		t.Errorf("schema scrip: %+v", got)
	}
}

// TestReplayFollowedAndKilled: many kill -9 during claims; no line is lost or doubled, in a file and in a live table.
func TestReplayFollowedAndKilled(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t))
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p.must("campaign", "create", "summer", "--codes", "1000")
	file := filepath.Join(t.TempDir(), "all.ndjson")
	for round := range 4 {
		var running []*exec.Cmd
		for _, args := range [][]string{{"--out", file, "--name", "all"}, {"--sql", "example:claims_by_hour"}} {
			cmd := exec.Command(program, append([]string{"replay", "--data", p.data, "--follow"}, args...)...)
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			running = append(running, cmd)
		}
		for n := range 10 {
			p.must("claim", "summer", "--customer", fmt.Sprint(round, "-", n))
		}
		wait(t, "lines in the file", stopLimit, func() bool {
			raw, _ := os.ReadFile(file)
			return strings.Count(string(raw), "coupon.claimed") == 10*(round+1)
		})
		p.row(fmt.Sprint(10*(round+1)), "SELECT sum(claims)::text FROM claims_by_hour.hour")
		for _, cmd := range running {
			signal := syscall.SIGKILL
			if round == 3 {
				signal = syscall.SIGTERM
			}
			_ = cmd.Process.Signal(signal)
			_ = cmd.Wait()
			if round == 3 && cmd.ProcessState.ExitCode() != 0 {
				t.Errorf("%v ended with %s", cmd.Args, cmd.ProcessState)
			}
		}
		// As if it had been killed between writing lines and saving its state.
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
	p.must("replay", "--out", file, "--name", "all")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := p.run("replay")
	if lines := strings.Split(string(raw), "\n"); len(lines) != strings.Count(want.out, "\n")+1 {
		t.Errorf("%d lines, want %d", len(lines)-1, strings.Count(want.out, "\n"))
	}
	for line := range strings.Lines(want.out) {
		if strings.Count(string(raw), line) != 1 {
			t.Errorf("%d times: %s", strings.Count(string(raw), line), line)
		}
	}
}
