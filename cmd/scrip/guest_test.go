package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
)

// keyURL makes a key and returns its id and the NATS URL with it.
func (p *process) keyURL(name, role string, more ...string) (id, natsURL string) {
	p.t.Helper()
	made := p.must(append([]string{"access", "create", name, "--role", role}, more...)...)
	u, err := url.Parse(p.ready().NATSURL)
	if err != nil {
		p.t.Fatal(err)
	}
	u.User = url.User(made["secret"].(string))
	return made["id"].(string), u.String()
}

// TestOperatorsWithAKey: what an operator with a key sees, on a machine without the data directory, is what the servers'
// credentials show. Commands on the log itself name the credentials that they need, and where those are.
func TestOperatorsWithAKey(t *testing.T) {
	p := shared(t)
	id, operator := p.keyURL("guest-olga", "operator", "--codes")
	_, support := p.keyURL("guest-sue", "support")
	keyed := func(args ...string) result {
		t.Helper()
		return scrip(t, nil, append(args, "--nats", operator)...)
	}
	wait(t, "the key opens", startLimit, func() bool { return keyed("access", "list").code == 0 })
	p.must("campaign", "create", "guests", "--codes", "100")
	p.must("config", "set", "reminder.rate", "200")
	p.must("config", "set", "reminder.rate", "300")
	p.must("config", "set", "reminder.pause.guests", "true")
	p.parked(p.nats(), "scrip.cmd.guests", `{"id":"a1","type":"claim","customer":"ann"}`, 1)
	p.parked(p.nats(), "scrip.cmd.guests", `{"id":"a2","type":"claim","customer":"bob"}`, 1)

	var mine, theirs struct {
		Ready       bool
		Log         string
		Lanes       int
		Dead        map[string]int `json:"dead_letters"`
		Lane        []struct{ Holder string }
		Server      []struct{ Settings string }
		DeadUnknown string `json:"dead_letters_unknown"`
	}
	wait(t, "the status is ready, with and without a key", startLimit, func() bool {
		with, without := keyed("status", "-o", "json"), p.run("status", "-o", "json")
		if err := json.Unmarshal([]byte(with.out), &mine); err != nil {
			t.Fatalf("%+v: %v", with, err)
		}
		if err := json.Unmarshal([]byte(without.out), &theirs); err != nil {
			t.Fatalf("%+v: %v", without, err)
		}
		return with.code == 0 && without.code == 0
	})
	if a, b := fmt.Sprintf("%+v", mine), fmt.Sprintf("%+v", theirs); a != b || mine.Dead["commands"] < 2 || len(mine.Lane) != mine.Lanes {
		t.Errorf("with the key the status is\n%s\nand without\n%s", a, b)
	}
	if got := keyed("status"); got.code != 0 || !strings.Contains(got.out, "LANE") || !strings.Contains(got.out, " commands, 0 events") {
		t.Errorf("%+v", got)
	}
	// The rest is equal to the letter.
	for _, args := range []string{
		"config get", "config get -o json", "config get reminder.rate", "config get reminder.rate -o json", "config get reminder.pause.other -o json",
		"config get reminder.colour", "config history", "config history -o json", "config history reminder.rate --limit 1", "config history reminder.colour",
		"deadletter list", "deadletter list -o json", "deadletter list --stream events", "deadletter list --state all --lane 0 --since -24h", "deadletter list --limit 1",
	} {
		with, without := keyed(strings.Fields(args)...), p.run(strings.Fields(args)...)
		if with.out != without.out || with.code != without.code {
			t.Errorf("scrip %s with the key: %+v\nwithout: %+v", args, with, without)
		}
	}
	if got := keyed("deadletter", "list", "--before", "never"); got.code != cli.ExitRefused || !strings.Contains(got.out, "end of the previous page") {
		t.Errorf("%+v", got)
	}
	if got := scrip(t, nil, "status", "--nats", support, "--timeout", "500ms"); got.code != cli.ExitFailed || strings.Contains(got.out, "LANE") {
		t.Errorf("with the key of support: %+v", got)
	}

	for _, args := range []string{"replay", "verify", "rebuild", "backup " + filepath.Join(t.TempDir(), "b") + " --without-key", "key seal",
		"deadletter show SCRIP_CMD_0/1/1", "deadletter retry SCRIP_CMD_0/1/1", "deadletter discard SCRIP_CMD_0/1/1"} {
		got := keyed(strings.Fields(args)...)
		for _, want := range []string{"credentials of the servers", "key " + id + " of role operator", "scrip.json", "NATS_USER", "--nats-creds"} {
			if got.code != cli.ExitFailed || !strings.Contains(got.err, want) || strings.Contains(got.err, operator) {
				t.Errorf("scrip %s: %+v, without %q", args, got, want)
			}
		}
	}
	for _, command := range []string{"replay", "verify", "rebuild", "backup"} {
		if got := p.run(command, "--help"); !strings.Contains(got.out, "credentials of the servers") {
			t.Errorf("the help of scrip %s does not name what it needs", command)
		}
	}
}

// TestExportsAreRecorded: an export and a replay in clear leave an entry in the audit stream, with who did it; one that is
// masked, or does not happen, leaves none.
func TestExportsAreRecorded(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "exported", "--codes", "10")
	p.must("campaign", "create", "hidden", "--codes", "10")
	code := p.must("claim", "exported", "--customer", "export-ann")["code"].(string)
	p.row("1", `SELECT count(*)::text FROM scrip.coupon WHERE campaign = 'exported'`)
	_, operator := p.keyURL("export-olga", "operator")
	_, limited := p.keyURL("export-otto", "operator", "--campaign", "exported")
	_, support := p.keyURL("export-sue", "support")
	tables := p.ready().PostgresURL
	wait(t, "the keys open", startLimit, func() bool {
		return scrip(t, nil, "coupon", "show", code, "--campaign", "exported", "--nats", limited).code == 0 && scrip(t, nil, "access", "list", "--nats", operator).code == 0
	})
	entries := func() string {
		t.Helper()
		var page struct {
			Entries []struct{ Actor, Kind, Action, About, Via string }
		}
		got := p.run("audit", "-o", "json")
		if err := json.Unmarshal([]byte(got.out), &page); err != nil {
			t.Fatalf("%+v: %v", got, err)
		}
		var all []string
		for _, e := range page.Entries {
			if e.Kind == "export" || e.Kind == "lookup" {
				all = append(all, strings.Join([]string{strings.Split(e.Actor, "@")[0], e.Kind, e.Action, e.About}, " "))
			}
		}
		return strings.Join(all, "\n")
	}
	self := strings.Split("local:"+userAtHost(), "@")[0]
	had := entries()
	mask := filepath.Join(t.TempDir(), "mask.key")
	for _, c := range []struct {
		args []string
		code int
		want string // the new entry
	}{
		{[]string{"codes", "export", "exported", "--data", p.data}, 0, self + " export coupons.csv exported"},
		{[]string{"codes", "export", "exported", "--data", p.data, "--mask-codes", mask}, 0, self + " export coupons.csv exported"},
		{[]string{"codes", "export", "exported", "--nats", operator, "--postgres", tables}, 0, "export-olga export coupons.csv exported"},
		{[]string{"codes", "export", "exported", "--nats", limited, "--postgres", tables}, 0, "export-otto export coupons.csv exported"},
		{[]string{"codes", "export", "hidden", "--nats", limited, "--postgres", tables}, cli.ExitFailed, ""},
		{[]string{"codes", "export", "exported", "--nats", support, "--postgres", tables, "--timeout", "500ms"}, cli.ExitFailed, ""},
		{[]string{"codes", "export", "nobody", "--data", p.data}, cli.ExitRefused, ""},
		{[]string{"replay", "--campaign", "exported", "--data", p.data}, 0, self + " export events --campaign exported"},
		{[]string{"replay", "--data", p.data, "--mask-codes", mask}, 0, ""},
		{[]string{"coupon", "show", code, "--data", p.data}, 0, self + " lookup coupon exported 1"},
		{[]string{"customer", "show", "export-ann", "--data", p.data}, 0, self + " lookup customer export-ann"},
		{[]string{"customer", "show", "export-ann", "--nats", support}, 0, ""},
	} {
		got := scrip(t, nil, c.args...)
		now := entries()
		if added := strings.TrimPrefix(strings.TrimPrefix(now, had), "\n"); got.code != c.code || added != c.want {
			t.Errorf("scrip %q: exit %d, recorded %q, want %d and %q\n%s", c.args, got.code, added, c.code, c.want, got.err)
		}
		if got.code != 0 && strings.Contains(got.out, code) || strings.Contains(now, code) {
			t.Errorf("scrip %q: %s\nrecorded: %s", c.args, got.out, now)
		}
		had = now
	}
}
