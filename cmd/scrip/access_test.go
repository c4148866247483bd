package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// TestKeysFromTheCommandLine: the journey of a key, from its making to its end, on a server as two commands start it.
func TestKeysFromTheCommandLine(t *testing.T) {
	p := shared(t)
	made := p.run("access", "create", "ann", "--role", "support", "--campaign", "winter,summer")
	secret := strings.TrimSpace(made.out)
	if role, _, err := access.ParseKey(secret); made.code != 0 || err != nil || role != access.Support || !strings.Contains(made.err, "role support, campaigns summer,winter; it is not shown again") || strings.Contains(made.err, secret) {
		t.Fatalf("%+v", made)
	}
	_, id, _ := access.ParseKey(secret)
	listed := p.run("access", "list")
	if listed.code != 0 || !strings.Contains(listed.out, id+"  ann   support  campaigns summer,winter") || !strings.Contains(listed.out, "by local:") || strings.Contains(listed.out, secret) {
		t.Errorf("%+v", listed)
	}
	rotated := p.run("access", "rotate", "ann", "--overlap", "1h", "-o", "json")
	var next struct {
		ID, Name, Secret, Replaces string
		Role                       access.Role
	}
	if err := json.Unmarshal([]byte(rotated.out), &next); err != nil || rotated.code != 0 || next.Replaces != id || next.Name != "ann" || next.Role != access.Support || next.Secret == "" || next.Secret == secret {
		t.Errorf("%+v %v", rotated, err)
	}
	if got := p.run("access", "revoke", id); got.code != 0 || !strings.HasPrefix(got.out, "key "+id+" of ann, role support, ended at ") {
		t.Errorf("%+v", got)
	}
	if got := p.run("access", "list"); strings.Contains(got.out, id) || !strings.Contains(got.out, next.ID) {
		t.Errorf("%+v", got)
	}
	if got := p.run("access", "list", "--all", "-o", "json"); !strings.Contains(got.out, `"id":"`+id+`"`) || !strings.Contains(got.out, `"replaced_by":"`+next.ID+`"`) {
		t.Errorf("%+v", got)
	}

	// Wrong usage, and refusals.
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"access"}, cli.ExitUsage, "needs a command: create, list, revoke, rotate"},
		{[]string{"access", "create", "bob"}, cli.ExitUsage, "needs --role"},
		{[]string{"access", "create", "--role", "support"}, cli.ExitUsage, "needs NAME"},
		{[]string{"access", "create", "bob", "--role", "admin"}, cli.ExitRefused, "role"},
		{[]string{"access", "rotate", "ann", "--overlap", "721h"}, cli.ExitRefused, "720h"},
		{[]string{"access", "create", "ann", "--role", "support"}, cli.ExitRefused, "scrip access rotate " + next.ID},
		{[]string{"access", "create", "bob", "--role", "sender", "--campaign", "summer"}, cli.ExitRefused, "campaigns: "},
		{[]string{"access", "create", "bob", "--role", "support", "--public"}, cli.ExitRefused, "public "},
		{[]string{"access", "create", "bob", "--role", "producer", "--rate", "-1"}, cli.ExitUsage, "whole number"},
		{[]string{"access", "revoke", "nobody"}, cli.ExitRefused, "see `scrip access list`"},
		{[]string{"access", "rotate", id}, cli.ExitRefused, "scrip access create"},
		{[]string{"audit", "--kind", "theft"}, cli.ExitRefused, "kind"},
		{[]string{"audit", "--since", "yesterday"}, cli.ExitUsage, "RFC 3339"},
	} {
		if got := p.run(c.args...); got.code != c.code || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("scrip %q: %+v, want exit %d and %q", c.args, got, c.code, c.want)
		}
	}

	// Who did it: in the settings, the audit stream, and the history of a coupon.
	if got := p.run("config", "set", "reminder.rate", "100", "--by", "carl"); got.code != 0 || !strings.Contains(got.out, "by local:carl)") {
		t.Errorf("%+v", got)
	}
	audit := p.run("audit")
	for _, want := range []string{"keys      create", "keys      rotate", "keys      revoke", "settings  set     reminder.rate default → 100", "local:carl"} {
		if !strings.Contains(audit.out, want) {
			t.Errorf("no %q in\n%s", want, audit.out)
		}
	}
	if strings.Contains(audit.out, next.Secret) || strings.Contains(p.log.String(), next.Secret) {
		t.Error("a key is in the audit stream or the server's log")
	}
	if old := p.run("audit", "--until=-87600h", "-o", "json"); old.code != cli.ExitDone || strings.Contains(old.out, `"at"`) {
		t.Errorf("of ten years ago: %+v", old)
	}
	if got := p.run("audit", "--since=-87600h", "--kind", "settings", "--actor", "local:carl", "--limit", "1", "-o", "json"); strings.Count(got.out, `"at"`) != 1 || !strings.Contains(got.out, `"action":"set"`) {
		t.Errorf("%+v", got)
	}
	// The key of an operator opens profiles and details; others do not. Its log-in is recorded once.
	operator := strings.TrimSpace(p.run("access", "create", "olga", "--role", "operator").out)
	for _, c := range []struct {
		key    string
		status int
	}{{operator, 200}, {next.Secret, 401}, {secret, 401}, {"sk_operator_", 401}} {
		wait(t, "the answer to a key", startLimit, func() bool {
			req, err := http.NewRequest(http.MethodGet, natsx.WithoutUser(p.ready().HTTPURL)+"/debug/pprof/", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+c.key)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode == c.status
		})
	}
	at, err := url.Parse(p.ready().NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.User(operator)
	for range 2 {
		if got := scrip(t, nil, "access", "list", "--nats", at.String()); got.code != 0 || !strings.Contains(got.out, "olga") {
			t.Errorf("with the key of an operator: %+v", got)
		}
	}
	if got := scrip(t, nil, "config", "set", "reminder.rate", "50", "--nats", at.String(), "--by", "forged"); got.code != 0 || !strings.Contains(got.out, "by olga)") {
		t.Errorf("%+v", got)
	}
	wait(t, "the log-in is recorded", startLimit, func() bool {
		return strings.Count(p.run("audit", "--kind", "login", "-o", "json").out, `"actor":"olga"`) == 1
	})
	at.User = url.User(next.Secret)
	if got := scrip(t, nil, "access", "list", "--nats", at.String(), "--timeout", "500ms"); got.code != cli.ExitFailed || strings.Contains(got.out, "olga") {
		t.Errorf("with the key of support: %+v", got)
	}
	_, ready := p.readiness()
	if c := ready.Checks["access"]; !c.OK || c.Needed {
		t.Errorf("%+v", c)
	}
}
