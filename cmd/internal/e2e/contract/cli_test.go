package contract

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
)

// ran is a command line that has ended.
type ran struct {
	code     int
	out, err string
}

// run runs a command line, which finds the server by the data directory, given as a variable.
func (r *rig) run(t *testing.T, args ...string) ran {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), e2e.Binary(), args...)
	cmd.Dir = t.TempDir() // no ./data there
	// The default of 10 s is too short for machines under load.
	cmd.Env = append(os.Environ(), "SCRIP_TIMEOUT="+patience.String(), "SCRIP_DATA="+r.proc.Data)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("scrip %s: %v", strings.Join(args, " "), err)
	}
	return ran{cmd.ProcessState.ExitCode(), out.String(), problems.String()}
}

// json runs a command line with -o json that must exit with code, and returns what it prints.
func (r *rig) json(t *testing.T, code int, args ...string) []byte {
	t.Helper()
	got := r.run(t, append(args, "-o", "json")...)
	if got.code != code || got.err != "" {
		t.Fatalf("scrip %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got.code, code, got.out, got.err)
	}
	return []byte(strings.TrimSuffix(got.out, "\n"))
}

// TestTheDescriptor: scrip.json has all that clients need, and the key of the codes is for its owner alone.
func TestTheDescriptor(t *testing.T) {
	r := server(t)
	raw, err := os.ReadFile(filepath.Join(r.proc.Data, "scrip.json"))
	if err != nil {
		t.Fatal(err)
	}
	match(t, bytes.TrimSpace(raw), fmt.Sprintf(`{"pid":%d,"nats_url":"~has:@127.0.0.1:","http_url":"~has:@127.0.0.1:","postgres_url":"~has:postgres://","lanes":4,"sync":"always"}`, r.proc.PID()))
	if info, err := os.Stat(filepath.Join(r.proc.Data, "code.key")); err != nil || info.Mode().Perm() != 0o600 || info.Size() != 64+1 {
		t.Errorf("code.key: %v, %v; want 64 hex digits, mode 0600", info, err)
	}
}

// TestEveryVerb: -o json prints what a request would be answered, exit codes are 0 and 3, --id is taken.
func TestEveryVerb(t *testing.T) {
	r := server(t)
	c := r.name()
	is := func(code int, pattern string, args ...string) []byte {
		t.Helper()
		out := r.json(t, code, args...)
		match(t, out, fill(pattern, "$c", c))
		return out
	}
	is(0, `{"id":"create","status":"created","campaign":"$c"}`, "campaign", "create", c, "--codes", "3", "--per-customer", "2", "--opens", "2020-01-01T00:00:00Z",
		"--closes", "+1h", "--expires", "+2h", "--max-redemptions", "2", "--reminders", "7", "--prefix", "SUMMER", "--category", "food", "--priority", "low", "--benefit", `{"percent":10}`, "--id", "create")
	match(t, r.events(t, c, "campaign.created", 1)[0], fill(`{"type":"campaign.created","campaign":"$c","at":"~time","id":"create","number":"~n","codes":3,"per_customer":2,"opens_at":"2020-01-01T00:00:00Z",
		"closes_at":"~time","expires_at":"~time","max_redemptions":2,"reminders":7,"prefix":"SUMMER","category":"food","priority":"low","benefit":{"percent":10},"by":"~has:local:"}`, "$c", c))
	code, _ := parse(t, is(0, `{"id":"a","status":"claimed","campaign":"$c","n":1,"code":"~code","expires_at":"~time","?customer_id":"ann"}`, "claim", c, "--customer", "ann", "--id", "a"))["code"].(string)
	is(0, `{"id":"~uuid7","status":"claimed","campaign":"$c","n":2,"code":"~code","expires_at":"~time","?customer_id":"ann"}`, "claim", "--customer", "ann", c) // flags before, too
	is(3, `{"id":"~uuid7","status":"refused","refusal":"claim_limit_reached","message":"~text","campaign":"$c"}`, "claim", c, "--customer", "ann")
	const coupon = `"campaign":"$c","n":1,"code":"~code","expires_at":"~time"`
	is(0, `{"id":"~uuid7","status":"reminder_set","campaign":"$c","?n":2,"?customer_id":"ann","?kind":"expires","?before":"~text","?due_at":"~time"}`,
		"remind", c, "--customer", "ann", "--kind", "expires", "--before", "1m")
	is(0, `{"id":"u","status":"reminder_cancelled","campaign":"$c","?n":2,"?customer_id":"ann","?kind":"expires","?before":"~text"}`,
		"unremind", c, "--customer", "ann", "--kind", "expires", "--before", "60s", "--id", "u")
	is(3, `{"id":"~uuid7","status":"refused","refusal":"too_late","message":"~text","campaign":"$c"}`, "remind", c, "--customer", "ann", "--kind", "opens", "--before", "1m")
	is(0, `{"?id":"~any","status":"valid",`+coupon+`,"benefit":{"percent":10}}`, "coupon", "validate", code)
	words := strings.Fields(strings.ReplaceAll(strings.ToLower(code), "-", " "))
	is(0, `{"?id":"~any","status":"valid",`+coupon+`,"benefit":{"percent":10}}`, append([]string{"coupon", "validate"}, words...)...)
	is(0, `{"id":"r","status":"redeemed",`+coupon+`,"?order_id":"4711","redeemed_count":1,"benefit":{"percent":10}}`, "redeem", strings.ToLower(code), "--order", "4711", "--id", "r")
	is(0, `{"id":"~uuid7","status":"redeemed",`+coupon+`,"?order_id":"4711","redeemed_count":1,"benefit":{"percent":10},"repeat":true}`, "redeem", code, "--order", "4711", "--campaign", c)
	is(0, `{"id":"~uuid7","status":"rolled_back",`+coupon+`,"?order_id":"4711"}`, "rollback", code, "--order", "4711")
	is(0, `{"id":"~uuid7","status":"extended",`+coupon+`}`, "extend", code, "--expires", "+3h")
	is(0, `{"id":"~uuid7","status":"voided",`+coupon+`}`, "void", code, "--reason", "test")
	is(3, `{"id":"~uuid7","status":"refused","refusal":"voided","message":"~text","campaign":"$c"}`, "redeem", code, "--order", "4712")
	is(3, `{"?id":"~any","status":"refused","refusal":"voided","message":"~text",`+coupon+`,"benefit":{"percent":10},"coupon_status":"voided"}`, "coupon", "validate", code)
	is(0, `{"id":"~uuid7","status":"updated","campaign":"$c"}`, "campaign", "update", c, "--codes", "4")
	is(0, `{"id":"~uuid7","status":"paused","campaign":"$c"}`, "campaign", "pause", c)
	is(3, `{"id":"~uuid7","status":"refused","refusal":"campaign_paused","message":"~text","campaign":"$c"}`, "claim", c, "--customer", "bob")
	is(0, `{"id":"~uuid7","status":"resumed","campaign":"$c"}`, "campaign", "resume", c)
	is(0, `{"id":"e","status":"ended","campaign":"$c"}`, "campaign", "end", c, "--id", "e")
	is(3, `{"status":"refused","refusal":"code_not_found","message":"~text"}`, "coupon", "show", "ABCD-EFGH-JKLM")
	is(3, `{"status":"refused","refusal":"campaign_not_found","message":"~text","campaign":"absent"}`, "campaign", "show", "absent")

	// What only looks.
	r.caught(t)
	for _, look := range [][]string{{"campaign", "show", c}, {"campaign", "list"}, {"coupon", "show", code}, {"customer", "show", "ann"}, {"codes", "export", c}, {"status"}, {"version"}} {
		look = append(look, "--id", "x")
		for line := range bytes.Lines(r.json(t, 0, look...)) {
			parse(t, bytes.TrimSuffix(line, []byte("\n")))
		}
		if text := r.run(t, look...); text.code != 0 || text.out == "" || text.err != "" {
			t.Errorf("scrip %s: %+v", strings.Join(look, " "), text)
		}
	}
	if show := parse(t, r.json(t, 0, "coupon", "show", code)); show["status"] != "voided" || show["code"] != code {
		t.Errorf("coupon show: %v", show)
	}
	export := r.run(t, "codes", "export", c)
	if first, _, _ := strings.Cut(export.out, "\n"); first != "campaign,n,code,customer_id,status,claimed_at,expires_at,redeemed_count,redeemed_at" ||
		!strings.Contains(export.out, "\n"+c+",1,"+code+",ann,voided,") {
		t.Errorf("codes export:\n%s", export.out)
	}
}
