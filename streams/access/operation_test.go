package access

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestTheTableOfOperationsIsComplete: each operation has a name, roles with operators among them, and endpoints of its own;
// each command that people or producers may send has one.
func TestTheTableOfOperationsIsComplete(t *testing.T) {
	names, endpoints := map[string]bool{}, map[string]bool{}
	for o := range Operations() {
		if o.String() == "" || names[o.String()] {
			t.Errorf("operation %d has the name %q", o, o)
		}
		names[o.String()] = true
		if len(o.Roles()) == 0 || !slices.Contains(o.Roles(), Operator) {
			t.Errorf("%s may be done by %v", o, o.Roles())
		}
		for _, r := range o.Roles() {
			if !slices.Contains(Keyed, r) {
				t.Errorf("%s may be done by %v, which has no keys", o, r)
			}
		}
		for _, e := range o.Endpoints() {
			if endpoints[e] || OperationOn(e) != o {
				t.Errorf("endpoint %s is of %v", e, OperationOn(e))
			}
			endpoints[e] = true
		}
	}
	for c := range wire.Commands() {
		o := OperationOf(c)
		switch {
		case c.Spec().Scope == wire.ScopeScheduler:
			if o != NoOperation {
				t.Errorf("%s is an operation of people", c)
			}
		case o == NoOperation:
			t.Errorf("command %s has no operation", c)
		case o.Endpoints()[0] != c.Spec().Endpoint:
			t.Errorf("%s has endpoints %q, its command %q", o, o.Endpoints(), c.Spec().Endpoint)
		}
	}
	if NoOperation.String() != "none" || numOperations.Roles() != nil || numOperations.Endpoints() != nil || OperationOn("") != NoOperation || OperationOn("nothing") != NoOperation {
		t.Error("what is no operation has a row")
	}
}

// TestWhoMayDoWhat is the table of roles, written a second time by hand.
func TestWhoMayDoWhat(t *testing.T) {
	may := map[Role]string{
		Producer: "claim redeem rollback coupon.validate remind unremind coupon.show customer.show campaign.show campaign.list reminder.list optouts.change optouts.read coupon.list",
		Sender:   "reminders.read",
		Analyst:  "events.read tables.read console.open",
		Support:  "rollback coupon.validate void extend coupon.show customer.show campaign.show campaign.list reminder.list optouts.change optouts.read coupon.list campaign.statistics jobs.read jobs.stop due.read console.open command.show",
		Server:   "", NoRole: "",
	}
	for role, list := range may {
		allowed := strings.Fields(list)
		for o := range Operations() {
			if got, want := (Principal{Role: role}).May(o, "summer"), slices.Contains(allowed, o.String()); got != want {
				t.Errorf("%s %s: %t", role, o, got)
			}
			if !(Principal{Role: Operator}).May(o, "") {
				t.Errorf("an operator may not do %s", o)
			}
		}
	}
	public := Principal{Role: Producer, Public: true}
	scoped := Principal{Role: Support, Campaigns: []string{"summer", "winter"}}
	for o := range Operations() {
		if got := public.May(o, "summer"); got != (o == OpClaim || o == OpValidate) {
			t.Errorf("public %s: %t", o, got)
		}
		if scoped.May(o, "") != (o == OpShowCustomer || o == OpListCampaigns || o == OpListCoupons || o == OpReadJobs || o == OpStopJobs || o == OpOpenConsole || o == OpFindCommand) || scoped.May(o, "spring") {
			t.Errorf("a scoped key may do %s elsewhere", o)
		}
	}
	if !scoped.May(OpVoid, "winter") || scoped.May(OpClaim, "winter") || (Principal{Role: Operator, Campaigns: []string{}}).May(OpVoid, "summer") {
		t.Error("a scope is not applied")
	}
	if (Principal{Role: Producer, Name: "x"}).By() != "" || (Principal{Role: Support, Name: "x"}).By() != "x" || Local("ann@ops1").By() != "local:ann@ops1" {
		t.Error("by is not of people")
	}
}

func TestRolesByName(t *testing.T) {
	for _, r := range Keyed {
		if got, err := ParseRole(r.String()); err != nil || got != r {
			t.Errorf("%s: %v %v", r, got, err)
		}
	}
	for _, bad := range []string{"", "server", "none", "Producer", "admin"} {
		if r, err := ParseRole(bad); err == nil || r != NoRole || !strings.HasPrefix(err.Error(), "role is ") {
			t.Errorf("%q: %v %v", bad, r, err)
		}
	}
}

func TestNames(t *testing.T) {
	for _, good := range []string{"a", "checkout-eu", "Ann, on call", "Zoë", strings.Repeat("x", MaxName)} {
		if err := CheckName(good); err != nil || !wire.ValidBy(good) {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", " a", "a ", "a\nb", "a\x00", "\xff", "local:ann", "\u202eevil", strings.Repeat("x", MaxName+1)} {
		if err := CheckName(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	for _, odd := range []string{"", "ann@ops1", "a\nb\x00", "\xff\xfe", " x ", strings.Repeat("é", 100), "\u202eevil"} {
		if name := LocalName(odd); !wire.ValidBy(name) || !strings.HasPrefix(name, "local:") {
			t.Errorf("%q becomes %q", odd, name)
		}
	}
}

func TestRequesters(t *testing.T) {
	const real = `{"start":"2026-11-27T00:00:00Z","host":"127.0.0.1","id":7,"acc":"OPS","user":"01h8z3qk","name":"x","lang":"go","ver":"1.55.0","rtt":1000}`
	if r, err := ParseRequester(real); err != nil || r != (Requester{"OPS", "01h8z3qk"}) {
		t.Errorf("%+v %v", r, err)
	}
	forged := `{"name":"\",\"acc\":\"OPS\",\"user\":\"01h8z3qk\",\"x\":\"","acc":"SHOP","user":"eve"}`
	if r, err := ParseRequester(forged); err != nil || r != (Requester{"SHOP", "eve"}) {
		t.Errorf("%+v %v", r, err)
	}
	for _, bad := range []string{"", "{}", `{"acc":"OPS"}`, `{"user":"x"}`, `{"acc":"","user":"x"}`, `{"acc":"OPS","user":"a\"b"}`, `{"acc":"OPS","user":"x`, `not json`} {
		if r, err := ParseRequester(bad); err == nil {
			t.Errorf("%s: %+v", bad, r)
		}
	}
}

// TestAudience: a sender delivers under the name that its own starts with; other roles under none.
func TestAudience(t *testing.T) {
	for name, want := range map[string]string{
		"mobile": "mobile", "mobile, Berlin": "mobile", "push_eu-1 (new)": "push_eu-1", "Ωmega": "", " x": "", "a.b": "a", "*": "",
	} {
		if got := (Principal{Name: name, Role: Sender}).Audience(); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
		if got := (Principal{Name: name, Role: Producer}).Audience(); got != "" {
			t.Errorf("a producer %q: %q", name, got)
		}
	}
}
