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
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// noon is what time it is in these tests.
var noon = time.Date(2026, 11, 27, 12, 0, 0, 123456789, time.UTC)

// still is a clock on which it stays noon.
type still struct{ wall.Clock }

func (still) Now() time.Time { return noon }

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
		{"serve --log-level loud", "must be debug"},
	} {
		got := scrip(t, []string{"SCRIP_DATA=" + t.TempDir()}, strings.Fields(c.args)...)
		if got.code != cli.ExitUsage || !strings.Contains(got.err, c.want) || got.out != "" {
			t.Errorf("scrip %s: exit %d\n stdout %q\n stderr %q\n want exit 2 and %q", c.args, got.code, got.out, got.err, c.want)
		}
		if !strings.Contains(got.err, "--help'") {
			t.Errorf("scrip %s: no hint to --help: %q", c.args, got.err)
		}
	}
}

func TestABadVariableIsNamed(t *testing.T) {
	for _, c := range []struct{ env, args, want string }{
		{"SCRIP_OUTPUT=yaml", "version", "SCRIP_OUTPUT"},
		{"SCRIP_TIMEOUT=soon", "claim summer --customer a", "SCRIP_TIMEOUT"},
		{"SCRIP_LANES=many", "serve", "SCRIP_LANES"},
		{"SCRIP_SYNC=never", "serve", "SCRIP_SYNC"},
		{"SCRIP_ROLES=cook", "serve", "SCRIP_ROLES"},
		{"SCRIP_INSECURE=perhaps", "serve", "SCRIP_INSECURE"},
	} {
		got := scrip(t, []string{c.env, "SCRIP_DATA=" + t.TempDir()}, strings.Fields(c.args)...)
		if got.code != cli.ExitUsage || !strings.Contains(got.err, "variable "+c.want) {
			t.Errorf("%s scrip %s: exit %d, %q", c.env, c.args, got.code, got.err)
		}
	}
}

func TestVariableSetsFlagAndFlagWins(t *testing.T) {
	if got := scrip(t, []string{"SCRIP_OUTPUT=json"}, "version"); got.code != 0 || !strings.HasPrefix(got.out, `{"version":`) {
		t.Errorf("%+v", got)
	}
	if got := scrip(t, []string{"SCRIP_OUTPUT=json"}, "version", "-o", "text"); got.code != 0 || !strings.HasPrefix(got.out, "scrip ") {
		t.Errorf("%+v", got)
	}
	// Customers and ids are never read from the environment.
	if got := scrip(t, []string{"SCRIP_CUSTOMER=alice", "SCRIP_ID=1"}, "claim", "summer"); got.code != cli.ExitUsage {
		t.Errorf("%+v", got)
	}
}

// TestNoServer checks the errors where no server runs.
func TestNoServer(t *testing.T) {
	empty := t.TempDir()
	got := scrip(t, nil, "claim", "summer", "--customer", "alice", "--data", empty)
	if got.code != cli.ExitFailed || !strings.Contains(got.err, "scrip serve") || !strings.Contains(got.err, empty) {
		t.Errorf("no scrip.json: %+v", got)
	}
	got = scrip(t, nil, "claim", "summer", "--customer", "alice", "--nats", "nats://127.0.0.1:1")
	if got.code != cli.ExitFailed || !strings.Contains(got.err, "is `scrip serve` running there?") {
		t.Errorf("no server at --nats: %+v", got)
	}
	stale := t.TempDir()
	// No process has the highest number that a pid can be.
	if err := os.WriteFile(filepath.Join(stale, "scrip.json"), []byte(`{"pid":`+strconv.Itoa(1<<31-1)+`,"nats_url":"nats://127.0.0.1:1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got = scrip(t, nil, "campaign", "list", "--data", stale)
	if got.code != cli.ExitFailed || !strings.Contains(got.err, "has crashed or was killed") {
		t.Errorf("stale scrip.json: %+v", got)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"help"}, {"help", "claim"}, {"serve", "--help"}, {"campaign", "create", "-h"}} {
		got := scrip(t, nil, args...)
		if got.code != 0 || !strings.Contains(got.out, "Usage:") || got.err != "" {
			t.Errorf("scrip %v: %+v", args, got)
		}
	}
}

// TestNoInputFromATerminal: an import without a file must not wait for codes typed on a terminal.
func TestNoInputFromATerminal(t *testing.T) {
	got := scripWith(t, nil, nil, "codes", "import", "partner")
	if got.code != cli.ExitUsage || !strings.Contains(got.err, "FILE") {
		t.Errorf("%+v", got)
	}
}
