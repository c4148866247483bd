package natsauth_test

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
)

// TestEveryRoleHasAnAccount: and every account a role.
func TestEveryRoleHasAnAccount(t *testing.T) {
	used := map[string]bool{}
	for kind, p := range kinds {
		p.ID = "01234567"
		perms, ok := natsauth.Of(p, lanes)
		if !ok || len(perms.Publish) == 0 || len(perms.Subscribe) != 1 {
			t.Errorf("%s: %+v", kind, perms)
		}
		used[perms.Account] = true
	}
	if len(used) != len(natsauth.Guests()) {
		t.Errorf("the accounts in use are %v", used)
	}
	for _, p := range []access.Principal{{}, {ID: "01234567", Role: access.Server}, {ID: "01234567"}, {ID: "a.b", Role: access.Producer}, {Role: access.Operator}} {
		if perms, ok := natsauth.Of(p, lanes); ok {
			t.Errorf("%+v may log in: %+v", p, perms)
		}
	}
}

// TestNoRowIsDangerous: nothing that guests import changes streams or consumers, is a wildcard of several tokens, or matches a
// subject that only servers publish to. The subject of an endpoint proves the account of a request, so no other account imports it,
// and none imports one on which the servers' own requests arrive. In an account that imports subjects of the log each user may
// publish to all of them: a reply subject would otherwise be a way around a user's permissions.
func TestNoRowIsDangerous(t *testing.T) {
	for _, row := range natsauth.Rows() {
		if strings.Contains(row.Subject, ">") {
			t.Errorf("%s: wildcard", row.Subject)
		}
		if name, ok := strings.CutPrefix(row.Subject, "$JS."); ok && name != "API.STREAM.INFO.*" && name != "API.STREAM.MSG.GET.*" {
			t.Errorf("%s is more than reading", row.Subject)
		}
		for _, closed := range []string{"scrip.evt.", "scrip.rmd.", "scrip.admin.", "scrip.push.", "$KV.", "$O.", "$SYS.", "_INBOX", "_R_"} {
			if strings.HasPrefix(row.Subject, closed) {
				t.Errorf("%s is for servers", row.Subject)
			}
		}
		if strings.HasPrefix(row.Subject, "scrip.lane.") && row.Subject != "scrip.lane.*.shop" {
			t.Errorf("%s is for servers", row.Subject)
		}
		if access.OperationOn(strings.TrimPrefix(row.Subject, "scrip.")) != access.NoOperation {
			t.Errorf("%v import %s", row.Account, row.Subject)
		}
		if endpoint, ok := strings.CutPrefix(row.Local, "scrip."); ok && row.Subject != access.GuestSubject(row.Account, endpoint) {
			t.Errorf("%s of %v arrives on %s", row.Local, row.Account, row.Subject)
		}
		log := strings.HasPrefix(row.Subject, "scrip.cmd.") || strings.HasPrefix(row.Subject, "scrip.lane.")
		if log && row.Account != access.AccountShop {
			t.Errorf("%s is imported by %v", row.Subject, row.Account)
		}
	}
}

// TestTheTextIsStable: a change of the accounts by reload drops requests for a moment, so the text changes with the table and
// with nothing else.
func TestTheTextIsStable(t *testing.T) {
	c := natsauth.Config{Lanes: 16, Users: []natsauth.User{{Name: "$NATS_USER", Password: `a"b\c$d`}}, Issuer: "$NATS_ISSUER", Separate: true}
	text := natsauth.Render(c)
	for range 5 {
		if natsauth.Render(c) != text {
			t.Fatal("it differs from one time to the next")
		}
	}
	for _, want := range []string{"user: $NATS_USER, password: \"a\\\"b\\\\c$d\"", "issuer: $NATS_ISSUER", "partition(16,1)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %s:\n%s", want, text)
		}
	}
	c.Separate = false
	if text := natsauth.Render(c); strings.Contains(text, ": $") {
		t.Errorf("a value has become a variable:\n%s", text)
	}
}
