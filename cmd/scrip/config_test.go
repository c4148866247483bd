package main

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
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
		{[]string{"config", "set", "reminder.batch", "1", "2"}, `no further "2"`},
		{[]string{"config", "set", "reminder.batch", "1", "--by", ""}, "expected 1 to 64 bytes"},
		{[]string{"config", "set", "reminder.batch", "1", "--by", "a\nb"}, "printable"},
		{[]string{"config", "get", "a", "b"}, `no further "b"`},
		{[]string{"config", "history", "--limit", "many"}, "whole number"},
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

// TestSettings: set, shown and traced; what is refused is not stored.
func TestSettings(t *testing.T) {
	p := shared(t)
	if got := p.run("config", "set", "reminder.batch", "0200", "--by", "Ann, on call"); got.code != 0 || !strings.HasPrefix(got.out, "reminder.batch: default → 200 (change ") ||
		!strings.HasSuffix(got.out, ", by local:Ann, on call)\n") {
		t.Errorf("%+v", got)
	}
	if got := p.run("config", "set", "reminder.batch", "300"); got.code != 0 || !strings.HasPrefix(got.out, "reminder.batch: 200 → 300 (change ") || !strings.Contains(got.out, "@") {
		t.Errorf("who by default: %+v", got)
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{cli.ExitRefused, `reminder.batch can not be "0": it must be a whole number from 1 to 500, such as 200, or default`, []string{"set", "reminder.batch", "0"}},
		{cli.ExitRefused, "there is no setting", []string{"set", "reminder.bacth", "1"}},
		{cli.ExitRefused, "there is no campaign nowhere, so nothing was set", []string{"set", "reminder.pause.nowhere", "true"}},
		{cli.ExitRefused, "there is no setting", []string{"get", "reminder.size"}},
		{cli.ExitDone, "reminder.batch        300", []string{"get"}},
		{cli.ExitDone, `{"setting":"reminder.pause.other","value":"false","default":true}`, []string{"get", "reminder.pause.other", "-o", "json"}},
		{cli.ExitDone, "reminder.batch  200      300", []string{"history"}},
		{cli.ExitDone, `"left_out":1`, []string{"history", "reminder.batch", "--limit", "1", "-o", "json"}},
		{cli.ExitDone, "300 → default", []string{"set", "reminder.batch", "default"}},
	} {
		p.expect(c.code, c.want, append([]string{"config"}, c.args...)...)
	}
}
