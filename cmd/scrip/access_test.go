package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// keyURL makes a key and returns its id, and the NATS URL with it once it opens NATS.
func (p *process) keyURL(name, role string, more ...string) (id, natsURL string) {
	p.t.Helper()
	made := p.must(append([]string{"access", "create", name, "--role", role}, more...)...)
	u, err := url.Parse(p.ready().NATSURL)
	streamtest.Must(p.t, err)
	u.User = url.User(made["secret"].(string))
	streamtest.Eventually(p.t, "the key opens NATS", func() bool {
		nc, err := nats.Connect(u.String())
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
	return made["id"].(string), u.String()
}

// TestKeysFromTheCommandLine: the journey of a key, from its making to its end. The key is on standard output once, and nowhere else.
func TestKeysFromTheCommandLine(t *testing.T) {
	p := shared(t)
	made := p.run("access", "create", "ann", "--role", "support", "--campaign", "winter,summer")
	secret := strings.TrimSpace(made.out)
	role, id, err := access.ParseKey(secret)
	if made.code != 0 || err != nil || role != access.Support || !strings.Contains(made.err, "role support, campaigns summer,winter; it is not shown again") || strings.Contains(made.err, secret) {
		t.Fatalf("%+v", made)
	}
	listed := p.run("access", "list")
	if listed.code != 0 || !strings.Contains(listed.out, id+"  ann   support  campaigns summer,winter") || !strings.Contains(listed.out, "by local:") {
		t.Errorf("%+v", listed)
	}
	next := p.must("access", "rotate", "ann", "--overlap", "1h")
	if next["replaces"] != id || next["name"] != "ann" || next["role"] != "support" || next["secret"] == secret {
		t.Errorf("%+v", next)
	}
	p.expect(cli.ExitDone, "key "+id+" of ann, role support, ended at ", "access", "revoke", id)
	if got := p.run("access", "list"); strings.Contains(got.out, id) || !strings.Contains(got.out, next["id"].(string)) {
		t.Errorf("%+v", got)
	}
	p.expect(cli.ExitDone, `"replaced_by":"`+next["id"].(string)+`"`, "access", "list", "--all", "-o", "json")
	p.expect(cli.ExitUsage, "needs --role", "access", "create", "bob")
	p.expect(cli.ExitRefused, "scrip access rotate "+next["id"].(string), "access", "create", "ann", "--role", "support")
	p.expect(cli.ExitRefused, "scrip access create", "access", "rotate", id)

	// Who did it: in the settings, and the audit stream.
	p.expect(cli.ExitDone, "by local:carl)", "config", "set", "reminder.rate", "100", "--by", "carl")
	audit := p.run("audit")
	for _, want := range []string{"keys      create", "keys      rotate", "keys      revoke", "settings  set     reminder.rate default → 100", "local:carl"} {
		if !strings.Contains(audit.out, want) {
			t.Errorf("no %q in\n%s", want, audit.out)
		}
	}
	for _, key := range []string{secret, next["secret"].(string)} {
		if strings.Contains(listed.out+audit.out+p.Output(), key) {
			t.Error("a key is in the list, the audit stream or the server's log")
		}
	}
	if old := p.run("audit", "--until=-87600h", "-o", "json"); old.code != cli.ExitDone || strings.Contains(old.out, `"at"`) {
		t.Errorf("of ten years ago: %+v", old)
	}
	got := p.run("audit", "--since=-87600h", "--kind", "settings", "--actor", "local:carl", "--limit", "1", "-o", "json")
	if strings.Count(got.out, `"at"`) != 1 || !strings.Contains(got.out, `"action":"set"`) {
		t.Errorf("%+v", got)
	}
}

// TestOperatorsWithAKey: on a machine without the data directory, an operator with a key does what the servers' credentials do, and
// its log-in is recorded once. Commands on the log itself name the credentials that they need, and where those are.
func TestOperatorsWithAKey(t *testing.T) {
	p := shared(t)
	id, operator := p.keyURL("guest-olga", "operator")
	_, support := p.keyURL("guest-sue", "support")
	for _, c := range []struct {
		code       int
		want, args string
	}{
		{cli.ExitDone, "reminder.rate", "config get"}, {cli.ExitDone, "guest-sue", "access list"}, {cli.ExitDone, "by guest-olga)", "config set reminder.rate 50 --by forged"},
		{cli.ExitFailed, "credentials of the servers", "replay"}, {cli.ExitFailed, "credentials of the servers", "key seal"},
	} {
		got := scrip(t, nil, append(strings.Fields(c.args), "--nats", operator)...)
		if got.code != c.code || !strings.Contains(got.out+got.err, c.want) || strings.Contains(got.err, operator) {
			t.Errorf("scrip %s: %+v, want exit %d and %q", c.args, got, c.code, c.want)
		}
		for _, hint := range []string{"key " + id + " of role operator", "scrip.json", "NATS_USER", "--nats-creds"} {
			if got.code != cli.ExitDone && !strings.Contains(got.err, hint) {
				t.Errorf("scrip %s: no %q in %s", c.args, hint, got.err)
			}
		}
	}
	// What a role may not do fails at once: nothing answers on such a subject.
	for _, line := range []string{"status", "deadletter list", "redeem MUS3-V5JE-SQKN --order 1", "config set reminder.rate 50"} {
		got := scrip(t, nil, append(strings.Fields(line), "--nats", support, "--timeout", "1h")...)
		if got.code != cli.ExitFailed || got.out != "" || !strings.Contains(got.err, "not allowed, nothing was done: key ") || !strings.Contains(got.err, " of role support") {
			t.Errorf("%s with the key of support: %+v", line, got)
		}
	}
	// The key of an operator who is limited to no campaigns opens profiles and details; others do not.
	_, limited := p.keyURL("guest-lia", "operator", "--campaign", "guests")
	for natsURL, want := range map[string]int{operator: http.StatusOK, support: http.StatusUnauthorized, limited: http.StatusUnauthorized} {
		u, err := url.Parse(natsURL)
		streamtest.Must(t, err)
		req, err := http.NewRequest(http.MethodGet, natsx.WithoutUser(p.ready().HTTPURL)+"/debug/pprof/", nil)
		streamtest.Must(t, err)
		req.Header.Set("Authorization", "Bearer "+u.User.Username())
		resp, err := http.DefaultClient.Do(req)
		streamtest.Must(t, err)
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("profiles with a key: %d, want %d", resp.StatusCode, want)
		}
	}
	streamtest.Eventually(t, "the log-in is recorded", func() bool {
		return strings.Count(p.run("audit", "--kind", "login", "-o", "json").out, `"actor":"guest-olga"`) == 1
	})
}

// TestExportsAreRecorded: an export and a replay in clear leave an entry in the audit stream, with who did it; one that is
// masked, or does not happen, leaves none.
func TestExportsAreRecorded(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "exported", "--codes", "10")
	p.must("campaign", "create", "hidden", "--codes", "10")
	code := p.must("claim", "exported", "--customer", "export-ann")["code"].(string)
	p.row("1", `SELECT count(*)::text FROM scrip.coupon WHERE campaign = 'exported'`)
	_, limited := p.keyURL("export-otto", "operator", "--campaign", "exported")
	tables := p.ready().PostgresURL
	entries := func() string {
		t.Helper()
		var page struct {
			Items []struct{ Actor, Kind, Action, About string }
		}
		got := p.run("audit", "--limit", "1000", "-o", "json")
		if err := json.Unmarshal([]byte(got.out), &page); err != nil {
			t.Fatalf("%+v: %v", got, err)
		}
		var all []string
		for _, e := range page.Items {
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
		args string
		code int
		want string // the new entry
	}{
		{"codes export exported --data " + p.Data, 0, self + " export codes exported"},
		{"codes export exported --mask-codes " + mask + " --data " + p.Data, 0, self + " export codes exported"},
		{"codes export exported --nats " + limited + " --postgres " + tables, 0, "export-otto export codes exported"},
		{"codes export hidden --nats " + limited + " --postgres " + tables, cli.ExitFailed, ""},
		{"codes export nobody --data " + p.Data, cli.ExitRefused, ""},
		{"replay --campaign exported --data " + p.Data, 0, self + " export events --campaign exported"},
		{"replay --mask-codes " + mask + " --data " + p.Data, 0, ""},
		{"coupon show " + code + " --data " + p.Data, 0, self + " lookup coupon exported 1"},
		{"customer show export-ann --data " + p.Data, 0, self + " lookup customer export-ann"},
	} {
		got := scrip(t, nil, strings.Fields(c.args)...)
		now := entries()
		if added := strings.TrimSuffix(strings.TrimSuffix(now, had), "\n"); got.code != c.code || added != c.want {
			t.Errorf("scrip %s: exit %d, recorded %q, want %d and %q\n%s", c.args, got.code, added, c.code, c.want, got.err)
		}
		if got.code != 0 && strings.Contains(got.out, code) || strings.Contains(now, code) {
			t.Errorf("scrip %s: %s\nrecorded: %s", c.args, got.out, now)
		}
		had = now
	}
}
