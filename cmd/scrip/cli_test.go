package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// started is what time it is in these tests: theirs and that of the servers that they ask are the same day.
var started = time.Now()

// still is a clock on which it stays that time.
type still struct{ wall.Clock }

func (still) Now() time.Time { return started }

// result is what one run of the program left.
type result struct {
	code     int
	out, err string
}

// scrip runs the program in process, with nothing in the environment but env (NAME=value).
func scrip(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return scripWith(t, strings.NewReader(""), env, args...)
}

func scripWith(t *testing.T, in *strings.Reader, env []string, args ...string) result {
	t.Helper()
	return scripAt(t, still{wall.Machine}, in, env, args...)
}

// scripNow runs it with a clock that goes.
func scripNow(t *testing.T, args ...string) result {
	t.Helper()
	return scripAt(t, wall.Machine, strings.NewReader(""), nil, args...)
}

func scripAt(t *testing.T, clock wall.Clock, in *strings.Reader, env []string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	vars := map[string]string{}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		vars[name] = value
	}
	m := &Main{In: in, Out: &out, Err: &errOut, Clock: clock,
		Env: func(name string) (string, bool) { v, ok := vars[name]; return v, ok }}
	if in == nil {
		m.TerminalIn = true
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	code := m.Run(ctx, args)
	return result{code, out.String(), errOut.String()}
}

// TestWrongUsage: no request is sent, the exit code is 2, and the error names the valid usage.
func TestWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"nonsense", `no command "nonsense"`},
		{"serv", "did you mean serve?"},
		{"campaign", "needs a command: create, update, pause, resume, end, list, show"},
		{"campaign creat x", "did you mean create?"},
		{"codes", "import, export"},
		{"claim", "needs CAMPAIGN"},
		{"claim summer", "needs --customer ID"},
		{"claim summer winter --customer alice", `no further "winter"`},
		{"claim summer --customer", "needs an argument: --customer"},
		{"claim summer --customer alice --colour red", "unknown flag: --colour"},
		{"claim summer --customer alice --attributes {", "must be JSON"},
		{"claim summer --customer alice -o yaml", "must be text or json"},
		{"claim summer --customer alice --timeout soon", "must be a duration such as"},
		{"campaign create summer", "needs --codes N"},
		{"campaign create summer --codes -1", "whole number"},
		{"campaign create summer --codes 1 --max-redemptions 0", "from 1 to"},
		{"campaign create summer --codes 1 --opens tomorrow", "RFC 3339 time such as 2026-11-27T00:00:00Z, or a time from now such as +10m"},
		{"campaign create summer --codes 1 --opens +-5m", "or a time from now"},
		{"campaign create summer --codes 1 --valid-for 3days", "must be a duration such as 90s"},
		{"campaign create summer --codes 1 --valid-for 1ms", "--valid-for: must lie between 1s and"},
		{"campaign create summer --codes 1 --priority urgent", "--priority: must be high, normal or low"},
		{"campaign update summer", "give at least one setting"},
		{"redeem ABCD-EFGH-JKLM", "needs --order ID"},
		{"redeem --order 1", "needs CODE, or --campaign and --n"},
		{"void --n 17", "needs --campaign"},
		{"void ABCD-EFGH-JKLM --campaign summer --n 17", "not both"},
		{"coupon show --campaign summer --n 0", "whole number from 1"},
		{"redeem ABCD-EFGH-JKLM 7KQ2-9F3M-XW4T --order 1", "takes one CODE"},
		{"void ABCD-EFGH-JKLM 7KQ2 9F3M XW4T", "takes one CODE"},
		{"extend ABCD-EFGH-JKLM", "needs --expires TIME"},
		{"remind summer --customer a --kind opens", "needs --before DURATION"},
		{"remind summer --customer a --kind birthday --before 1m", "--kind: must be opens or expires"},
		{"codes import partner /does/not/exist.csv", "there is no file"},
		{"codes import partner /", "is not a file"},
		{"codes import partner a b", "no further"},
		{"demo --codes 100 --customers 100", "must be greater than"},
		{"serve extra", `takes no "extra"`},
		{"serve --roles lanes,cook", `"cook" is not a role`},
		{"serve --roles projector", "give --nats URL"},
		{"serve --roles scheduler --nats nats://127.0.0.1:1", "give lanes,scheduler"},
		{"serve --nats-listen 0.0.0.0:4222", "SCRIP_CREDENTIALS"},
		{"serve --http-listen 0.0.0.0:8080", "--http-listen"},
		{"serve --nats-listen 4222", "must be HOST:PORT"},
		{"serve --lanes 0", "from 1 to"},
		{"serve --replicas 3", "give --nats URL"},
		{"serve --sync never", "must be always or interval"},
		{"serve --nats nats://127.0.0.1:1 --sync always", "sync_interval: always"},
		{"serve --credentials secret", "USER:PASSWORD"},
		{"serve --postgres localhost", "postgres://"},
		{"serve --rebase one", "LANE=SEQ"},
		{"serve --http-trusted-proxies 10.0.0.1", "must be networks such as"},
		{"serve --skip-message x", "must be LANE=SEQ such as 2=1047"},
		{"serve --log-level loud", "must be debug"},
		{"customer show ann --limit 1001", "must be a whole number from 1 to 1000"},
		{"config", "needs a command: get, set, changes"},
		{"config set", "needs KEY and VALUE"},
		{"config set reminder.batch", "needs VALUE"},
		{"config set reminder.batch 1 2", `no further "2"`},
		{`config set reminder.batch 1 --by ""`, "expected 1 to 64 bytes"},
		{`config set reminder.batch 1 --by "a\nb"`, "printable"},
		{"config changes --limit many", "whole number"},
		{"config chang", "did you mean changes?"},
		{"access", "needs a command: create, list, show, revoke, rotate"},
		{"access create --role support", "needs NAME"},
		{"access create bob --role producer --rate -1", "whole number"},
		{"audit --since yesterday", "RFC 3339"},
		{"backup", "needs NAME"},
		{"restore /nowhere --nats nats://127.0.0.1:1 --data x", "not both"},
		{"restore /nowhere --replicas 3", "--nats"},
		{"deadletter retry", "needs ID"},
		{"webhook create", "needs URL"},
		{"rebuild --undo --drop-previous", "takes one of"},
		{"rebuild coupons", `there is "tables"`},
		{"replay extra", `takes no "extra"`},
		{"replay --campaign a.b", "--campaign: \"a.b\" is not a campaign name: 1 to 64 of A-Z"},
		{"replay --type reminder.due", "reminders.due records the firing"},
		{"replay --since yesterday", "+10m or -24h"},
		{"replay --since --24h", "+10m or -24h"},
		{"replay --since -1h --until -2h", "--until: "},
		{"replay --lane -1", "number of a lane"},
		{"replay --lane 0 --from 1:5", "--from: lane 1 is not among"},
		{"replay --from 5", "such as 0:1000"},
		{"replay --from 0:0", "such as 0:1000"},
		{"replay --from 0:5 --from 0:6", "once per lane"},
		{"replay --from 0:5 --to 0:4", "--to: 0:4 is before --from 0:5"},
		{"replay --customer=", "omit the flag"},
		{"replay --format xml", "must be ndjson or csv or parquet or postgres"},
		{"replay --out=", "must be a file, or -"},
		{"replay --follow --to 0:4", "--follow: it has no end"},
		{"replay --follow --format parquet --out x", "--follow: a Parquet file cannot be appended to"},
		{"replay --format csv --partition day --out x", "--partition: only valid with --format parquet"},
		{"replay --format parquet --partition day", "--partition: files need a directory; give --out DIR"},
		{"replay --format parquet --partition day --out x --name n", "--name: a data set has its checkpoint in its directory"},
		{"replay --format parquet --partition week --out x", "must be day"},
		{"replay --follow --out x", "it needs --name NAME"},
		{"replay --name daily", "--name: a replay to standard output has no checkpoint"},
		{"replay --name daily --format parquet --out x", "--format: a Parquet file cannot be added to"},
		{"replay --name Daily --out x", "--name: \"Daily\" must start with a-z"},
		{"replay --reset", "--reset: without --name or --sql"},
		{"replay --print", "--print: only valid with --sql"},
		{"replay --format postgres", "--name: missing"},
		{"replay --format postgres --name x --out y", "--out: events go to table events"},
		{"replay --format postgres --name x --postgres localhost:x/y", "--postgres: must be a URL"},
		{"replay --sql example:never_redeem --out x", "omit --format and --out"},
		{"replay --sql example:never_redeem --type coupon.voided", "--type: "},
		{"replay --sql /does/not/exist.sql", "there is no file /does/not/exist.sql"},
		{"replay --sql example:nonsense", "claims_by_hour, never_redeem, time_to_redeem"},
	} {
		args := strings.Fields(c.args)
		for i, a := range args {
			if text, err := strconv.Unquote(a); err == nil {
				args[i] = text
			}
		}
		got := scrip(t, []string{"SCRIP_DATA=" + t.TempDir()}, args...)
		if got.code != cli.ExitUsage || !strings.Contains(got.err, c.want) || got.out != "" || !strings.Contains(got.err, "--help'") {
			t.Errorf("scrip %s: exit %d\n stdout %q\n stderr %q\n want exit 2, %q and a hint to --help", c.args, got.code, got.out, got.err, c.want)
		}
	}
}

// TestVariables: a variable sets a flag, and the flag wins; a bad one is named. A variable with _FILE names a file with the value, which
// is on no command line. Customers, ids and filters are never read from the environment; the database is.
func TestVariables(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	streamtest.Must(t, os.WriteFile(secret, []byte("nonsense\n"), 0o600))
	for _, c := range []struct {
		env, args string
		code      int
		want      string
	}{
		{"SCRIP_OUTPUT=json", "version", cli.ExitDone, `{"version":`},
		{"SCRIP_OUTPUT=json", "version -o text", cli.ExitDone, "scrip "},
		{"SCRIP_OUTPUT=yaml", "version", cli.ExitUsage, "variable SCRIP_OUTPUT"},
		{"SCRIP_TIMEOUT=soon", "claim summer --customer a", cli.ExitUsage, "variable SCRIP_TIMEOUT"},
		{"SCRIP_LANES=many", "serve", cli.ExitUsage, "variable SCRIP_LANES"},
		{"SCRIP_SYNC=never", "serve", cli.ExitUsage, "variable SCRIP_SYNC"},
		{"SCRIP_ROLES=cook", "serve", cli.ExitUsage, "variable SCRIP_ROLES"},
		{"SCRIP_INSECURE=perhaps", "serve", cli.ExitUsage, "variable SCRIP_INSECURE"},
		{"SCRIP_CREDENTIALS_FILE=" + secret, "serve", cli.ExitUsage, "USER:PASSWORD"},
		{"SCRIP_CODE_KEY_FILE=" + secret + ".gone", "serve", cli.ExitUsage, "SCRIP_CODE_KEY_FILE"},
		{"SCRIP_TIMEOUT_FILE=" + secret, "serve", cli.ExitUsage, "nonsense"},
		{"SCRIP_CUSTOMER=alice SCRIP_ID=1", "claim summer", cli.ExitUsage, "needs --customer ID"},
		{"SCRIP_CAMPAIGN=a.b SCRIP_FORMAT=xml SCRIP_POSTGRES=localhost:x/y", "replay", cli.ExitFailed, "no server runs"},
		{"SCRIP_POSTGRES=localhost:x/y", "replay --sql example:never_redeem", cli.ExitUsage, "--postgres"},
	} {
		got := scrip(t, append(strings.Fields(c.env), "SCRIP_DATA="+t.TempDir()), strings.Fields(c.args)...)
		if got.code != c.code || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("%s scrip %s: %+v, want exit %d and %q", c.env, c.args, got, c.code, c.want)
		}
	}
}

// TestNoServer checks the errors where no server runs.
func TestNoServer(t *testing.T) {
	empty, stale := t.TempDir(), t.TempDir()
	// No process has the highest number that a pid can be.
	streamtest.Must(t, os.WriteFile(filepath.Join(stale, "scrip.json"), []byte(`{"pid":`+strconv.Itoa(1<<31-1)+`,"nats_url":"nats://127.0.0.1:1"}`), 0o600))
	for _, c := range []struct{ at, want string }{
		{"--data " + empty, "scrip serve"}, {"--data " + empty, empty}, {"--nats nats://127.0.0.1:1", "is `scrip serve` running there?"}, {"--data " + stale, "has crashed or was killed"},
	} {
		failed(t, nil, c.want, append([]string{"claim", "summer", "--customer", "alice"}, strings.Fields(c.at)...)...)
	}
}

// failed runs a command that has to fail with exit code 1 and a text.
func failed(t *testing.T, env []string, want string, args ...string) {
	t.Helper()
	if got := scrip(t, env, args...); got.code != cli.ExitFailed || !strings.Contains(got.err, want) || got.out != "" {
		t.Errorf("scrip %v: %+v, want exit 1 and %q", args, got, want)
	}
}

func TestHelp(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", ""}, {"--help", ""}, {"help", ""}, {"help claim", ""}, {"serve --help", ""}, {"campaign create -h", ""},
		{"config --help", "a duration from 1s to 8760h, default 5m"}, {"config set --help", "reminder.pause.CAMPAIGN"},
		{"backup --help", "scrip_meta.dead_letter"}, // the state of dead letters is not in a backup
		{"deadletter discard --help", "(see scrip backup --help)"}, {"deadletter retry --help", "This holds per id"},
	} {
		got := scrip(t, nil, strings.Fields(c.args)...)
		if got.code != 0 || !strings.Contains(got.out, "Usage:") || !strings.Contains(got.out, c.want) || got.err != "" {
			t.Errorf("scrip %s: %+v, want %q", c.args, got, c.want)
		}
	}
}

// TestSettings: set, shown and traced. What is refused is shown by TestEveryActionHasACommand and by package settings.
func TestSettings(t *testing.T) {
	p := shared(t)
	if got := p.run("config", "set", "reminder.batch", "200", "--by", "Ann, on call"); got.code != 0 || !strings.HasPrefix(got.out, "reminder.batch: default → 200 (change ") ||
		!strings.HasSuffix(got.out, ", by local:Ann, on call)\n") {
		t.Errorf("%+v", got)
	}
	if got := p.run("config", "set", "reminder.batch", "300"); got.code != 0 || !strings.HasPrefix(got.out, "reminder.batch: 200 → 300 (change ") || !strings.Contains(got.out, "@") {
		t.Errorf("who by default: %+v", got)
	}
	for want, args := range map[string]string{
		"reminder.batch        300": "get", `{"setting":"reminder.pause.other","value":false,"default":true}`: "get reminder.pause.other -o json",
		"reminder.batch  200      300": "changes", `"value":300,"was":200`: "changes reminder.batch --limit 1 -o json",
	} {
		p.expect(cli.ExitDone, want, append([]string{"config"}, strings.Fields(args)...)...)
	}
	p.expect(cli.ExitDone, "300 → default", "config", "set", "reminder.batch", "default")
}

// TestNoInputFromATerminal: an import without a file must not wait for codes typed on a terminal.
func TestNoInputFromATerminal(t *testing.T) {
	got := scripWith(t, nil, nil, "codes", "import", "partner")
	if got.code != cli.ExitUsage || !strings.Contains(got.err, "FILE") {
		t.Errorf("%+v", got)
	}
}
