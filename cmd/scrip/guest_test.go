package main

import (
	"encoding/json"
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

// TestOperatorsWithAKey: on a machine without the data directory, an operator with a key does what the servers' credentials do.
// Commands on the log itself name the credentials that they need, and where those are.
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
	p.parked(p.nats(), "scrip.cmd.guests", `{"id":"a1","type":"claim","customer":"ann"}`, 1)
	for _, c := range []struct{ args, want string }{
		{"status", "LANE"}, {"config get", "reminder.rate"}, {"deadletter list", "customer: unknown field"}, {"verify --campaign guests", "equal"},
		{"backup guests --without-key", "backup taken"}, {"webhook list", "WEBHOOK"}, {"job list", "guest-olga"},
	} {
		if got := keyed(strings.Fields(c.args)...); got.code != cli.ExitDone || !strings.Contains(got.out, c.want) {
			t.Errorf("scrip %s: %+v", c.args, got)
		}
	}
	if got := scrip(t, nil, "status", "--nats", support, "--timeout", "500ms"); got.code != cli.ExitFailed || strings.Contains(got.out, "LANE") {
		t.Errorf("with the key of support: %+v", got)
	}
	for _, args := range []string{"replay", "key seal"} {
		got := keyed(strings.Fields(args)...)
		for _, want := range []string{"credentials of the servers", "key " + id + " of role operator", "scrip.json", "NATS_USER", "--nats-creds"} {
			if got.code != cli.ExitFailed || !strings.Contains(got.err, want) || strings.Contains(got.err, operator) {
				t.Errorf("scrip %s: %+v, without %q", args, got, want)
			}
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
