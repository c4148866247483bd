package main

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestInvalidSettings: no request is sent, the exit code is 2, and the error names the valid values.
func TestInvalidSettings(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"config"}, "needs a command: get, set, history"},
		{[]string{"config", "set"}, "needs KEY and VALUE"},
		{[]string{"config", "set", "reminder.batch"}, "needs VALUE"},
		{[]string{"config", "set", "reminder.colour"}, "there is no setting"},
		{[]string{"config", "set", "reminder.batch", "1", "2"}, `no further "2"`},
		{[]string{"config", "set", "reminder.batch", "0"}, `reminder.batch can not be "0": it must be a whole number from 1 to 500, such as 200, or default`},
		{[]string{"config", "set", "reminder.rate", "fast"}, "from 0 to 1000000"},
		{[]string{"config", "set", "reminder.concurrency", "65"}, "from 1 to 64"},
		{[]string{"config", "set", "reminder.grace", "300"}, "a duration from 1s to 8760h, such as 15m, or default"},
		{[]string{"config", "set", "expiry.pause.summer", "yes"}, "true or false"},
		{[]string{"config", "set", "expiry.pause.sum mer", "true"}, "letters, digits, _ and -"},
		{[]string{"config", "set", "reminder.bacth", "1"}, "did you mean reminder.batch? the settings are reminder.batch, reminder.rate, reminder.concurrency, reminder.grace, deadletter.quote, clock.tolerance, clock.accepted, http.rate, http.burst, expiry.pause.CAMPAIGN, reminder.pause.CAMPAIGN"},
		{[]string{"config", "set", "reminder.batch", "1", "--by", ""}, "name the author"},
		{[]string{"config", "set", "reminder.batch", "1", "--by", "a\nb"}, "printable"},
		{[]string{"config", "get", "reminder.size"}, "there is no setting"},
		{[]string{"config", "get", "a", "b"}, `no further "b"`},
		{[]string{"config", "history", "--limit", "0"}, "from 1 to"},
		{[]string{"config", "hist"}, "did you mean history?"},
	} {
		got := scrip(t, []string{"SCRIP_DATA=" + t.TempDir()}, c.args...)
		if got.code != cli.ExitUsage || !strings.Contains(got.err, c.want) || got.out != "" || !strings.Contains(got.err, "--help'") {
			t.Errorf("scrip %q: exit %d\n stdout %q\n stderr %q\n want exit 2 and %q", c.args, got.code, got.out, got.err, c.want)
		}
	}
	for _, args := range [][]string{{"config", "--help"}, {"config", "set", "--help"}} {
		if got := scrip(t, nil, args...); got.code != 0 || !strings.Contains(got.out, "a duration from 1s to 8760h, default 5m") || !strings.Contains(got.out, "reminder.pause.CAMPAIGN") {
			t.Errorf("scrip %q: %+v", args, got)
		}
	}
}

// TestSettingsWithoutLanes: numbers can be set, shown and traced while no lane has an owner; a pause, whose campaign
// cannot be looked up, is not stored.
func TestSettingsWithoutLanes(t *testing.T) {
	ns := streamtest.Start(t)
	js := ns.JetStream(t)
	ask := func(args ...string) result { return scrip(t, nil, append(args, "--nats", ns.ClientURL())...) }
	if got := ask("config", "get"); got.code != cli.ExitFailed || !strings.Contains(got.err, "there is no log") {
		t.Errorf("without a log: %+v", got)
	}
	if _, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 2, KeyFingerprint: "k", CmdMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if got := ask("config", "history"); got.code != 0 || got.out != "CHANGE  AT  SETTING  WAS  VALUE  BY  IGNORED\n" {
		t.Errorf("before any change: %+v", got)
	}
	got := ask("config", "set", "reminder.pause.summer", "true", "--timeout", "600ms")
	if got.code != cli.ExitFailed || !strings.Contains(got.err, "the campaign summer could not be looked up, so nothing was set") {
		t.Errorf("a pause: %+v", got)
	}
	if got := ask("config", "set", "reminder.batch", "0200", "--by", "Ann, on call"); got.code != 0 || got.out != "reminder.batch: default → 200 (change 1, by Ann, on call)\n" {
		t.Errorf("%+v", got)
	}
	if got := ask("config", "set", "reminder.batch", "300"); got.code != 0 || !strings.HasPrefix(got.out, "reminder.batch: 200 → 300 (change 2, by ") || !strings.Contains(got.out, "@") {
		t.Errorf("who by default: %+v", got)
	}
	// An invalid change, written by hand or by another version.
	kv, err := js.KeyValue(t.Context(), "SCRIP_CONFIG")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Create(t.Context(), "change.0000000003", []byte("\x1b[2Jnonsense")); err != nil {
		t.Fatal(err)
	}
	if got := ask("config", "set", "reminder.grace", "90m", "--by", "ann", "-o", "json"); got.code != 0 ||
		got.out != `{"change":4,"revision":4,"setting":"reminder.grace","value":"1h30m0s","was":"default","by":"local:ann","at":"2026-11-27T12:00:00.123456789Z"}`+"\n" {
		t.Errorf("%+v", got)
	}
	got = ask("config", "get")
	for _, want := range []string{"reminder.batch        300      no", "reminder.rate         0        yes      -", "reminder.grace        1h30m0s  no       ann", "2026-11-27T12:00:00.123456789Z  4", "ignored changes: 1"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in\n%s", want, got.out)
		}
	}
	if got := ask("config", "get", "reminder.pause.summer", "-o", "json"); got.code != 0 || got.out != `{"setting":"reminder.pause.summer","value":"false","default":true}`+"\n" {
		t.Errorf("%+v", got)
	}
	got = ask("config", "history")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if len(lines) != 5 || !strings.Contains(lines[1], "Ann, on call") || !strings.Contains(lines[2], "reminder.batch  200      300") ||
		!strings.Contains(lines[3], "?[2Jnonsense") || !strings.Contains(lines[3], "not understood") || strings.Contains(got.out, "\x1b") {
		t.Errorf("%s", got.out)
	}
	if got := ask("config", "history", "reminder.batch", "--limit", "1", "-o", "json"); !strings.Contains(got.out, `"left_out":1`) || !strings.Contains(got.out, `"value":"300"`) || strings.Contains(got.out, `"value":"200"`) {
		t.Errorf("%+v", got)
	}
	if got := ask("config", "history", "reminder.colour"); got.code != cli.ExitUsage {
		t.Errorf("%+v", got)
	}
	if got := ask("config", "set", "reminder.grace", "default", "--by", "ann"); got.code != 0 || !strings.Contains(got.out, "1h30m0s → default") {
		t.Errorf("%+v", got)
	}
	if got := ask("config", "get"); !strings.Contains(got.out, "5m0s   yes      ann") || !strings.Contains(got.out, "--reminder-grace") {
		t.Errorf("%+v", got)
	}
}
