package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
)

// nats connects to the server's NATS.
func (p *process) nats() jetstream.JetStream {
	p.t.Helper()
	nc, err := nats.Connect(p.ready().NATSURL)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		p.t.Fatal(err)
	}
	return js
}

// parked publishes a command message as a producer would, and waits until the read tables have the dead letter of its
// line, whose id it returns.
func (p *process) parked(js jetstream.JetStream, subject, message string, line int) string {
	p.t.Helper()
	ack, err := js.Publish(p.t.Context(), subject, []byte(message))
	if err != nil {
		p.t.Fatal(err)
	}
	p.row("1", "SELECT count(*)::text FROM scrip.dead_letter WHERE stream = $1 AND sequence = $2 AND line = $3", ack.Stream, int64(ack.Sequence), line)
	return fmt.Sprintf("%s/%d/%d", ack.Stream, ack.Sequence, line)
}

// expect runs a command and expects an exit code and a text.
func (p *process) expect(code int, want string, args ...string) {
	p.t.Helper()
	if got := p.run(args...); got.code != code || !strings.Contains(got.out+got.err, want) {
		p.t.Errorf("scrip %s: exit %d, want %d and %q\n%s%s", strings.Join(args, " "), got.code, code, want, got.out, got.err)
	}
}

// TestDeadLetters: invalid command lines and an event that the tables cannot apply are counted, listed, shown completely,
// corrected and sent again, discarded; a rebuild applies the event and keeps the states of dead letters.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t))
	js := p.nats()
	p.must("campaign", "create", "sale", "--codes", "100")
	p.expect(cli.ExitDone, "dead letters  none", "status")
	p.expect(cli.ExitDone, `{"dead_letters":[]}`, "deadletter", "list", "-o", "json")

	padding := strings.Repeat("long ", 800)
	bad := p.parked(js, "scrip.cmd.sale", `{"id":"a1","type":"claim","customer":"ann","note":"`+padding+`"}`, 1)
	pause := p.parked(js, "scrip.cmd.sale", `{"id":"a2","type":"claim","customer_id":"bob"}`+"\n\n"+`{"id":"a3","type":"pause_campaign"}`, 3)
	nameless := p.parked(js, "scrip.cmd.sale", `{"type":"claim","customer_id":"cem"}`, 1)
	whole := p.parked(js, "scrip.cmd.sale", strings.Repeat(`{"type":"claim"}`+"\n", 1001), 0)

	// An event that the tables cannot apply: its coupon is not in them.
	coupon := p.must("claim", "sale", "--customer", "dee")
	p.row("1", "SELECT count(*)::text FROM scrip.coupon WHERE customer_id = 'dee'")
	if _, err := p.postgres().Exec(t.Context(), "DELETE FROM scrip.coupon_row WHERE customer_id = 'dee'"); err != nil {
		t.Fatal(err)
	}
	p.must("redeem", coupon["code"].(string), "--order", "4711")
	p.row("1", "SELECT count(*)::text FROM scrip.dead_letter WHERE stream LIKE 'SCRIP_EVT%'")
	p.expect(cli.ExitDone, "dead letters  4 commands, 1 events", "status")
	if status := p.must("status"); fmt.Sprint(status["dead_letters"]) != "map[commands:4 events:1]" {
		t.Errorf("status: %v", status["dead_letters"])
	}
	if _, metrics := p.get("/metrics"); !strings.Contains(metrics, `scrip_dead_letters_open{kind="command"} 4`) || !strings.Contains(metrics, `scrip_dead_letters_open{kind="event"} 1`) {
		t.Error("/metrics does not count the dead letters")
	}
	first := p.must("deadletter", "list", "--limit", "4")
	rest := p.must("deadletter", "list", "--limit", "4", "--before", first["next"].(string))
	if len(first["dead_letters"].([]any)) != 4 || len(rest["dead_letters"].([]any)) != 1 || first["more"] != true || rest["more"] != nil {
		t.Errorf("pages: %v and %v", first, rest)
	}
	listed := p.must("deadletter", "list", "--stream", "events")["dead_letters"].([]any)
	if len(listed) != 1 {
		t.Fatalf("events: %v", listed)
	}
	event := listed[0].(map[string]any)["id"].(string)

	shown := p.must("deadletter", "show", bad)
	if shown["original"] != `{"id":"a1","type":"claim","customer":"ann","note":"`+padding+`"}` || len(shown["payload"].(string)) > 1100 || shown["state"] != "open" {
		t.Errorf("show: %v", shown)
	}
	p.expect(cli.ExitDone, strings.TrimSpace(padding), "deadletter", "show", bad)
	p.expect(cli.ExitDone, "an event that the read tables could not apply", "deadletter", "show", event)
	p.expect(cli.ExitDone, "refused as a whole", "deadletter", "show", whole)

	lines := filepath.Join(t.TempDir(), "lines.ndjson")
	if err := os.WriteFile(lines, []byte(`{"id":"f1","type":"claim","campaign":"sale","customer_id":"fay"}`+"\n"+`{"type":"claim","customer_id":"gus"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mended := `{"id":"a1","type":"claim","customer_id":"ann"}`
	for _, step := range []struct {
		code int
		want string
		args []string
	}{
		{cli.ExitRefused, "still not a command: customer: unknown field", []string{"retry", bad}},
		{cli.ExitRefused, "line 1 is still not a command", []string{"retry", bad, "--payload", `{"type":"claim"}`}},
		{cli.ExitRefused, "only the scheduler sends expire", []string{"retry", bad, "--payload", `{"id":"x","type":"expire","through":"2026-01-01T00:00:00Z"}`}},
		{cli.ExitRefused, "id a1 of its own", []string{"retry", bad, "--payload", mended, "--id", "other"}},
		{cli.ExitRefused, "the dead letter stays open", []string{"retry", bad, "--payload", `{"id":"a9","type":"claim","campaign":"nowhere","customer_id":"ann"}`}},
		{cli.ExitDone, "claimed", []string{"retry", bad, "--payload", mended}},
		{cli.ExitDone, `"repeat":true`, []string{"retry", bad, "--payload", mended, "-o", "json"}},
		{cli.ExitRefused, "the dead letter stays retried: it was accepted before (claimed)", []string{"retry", bad, "--payload", `{"id":"a9","type":"claim","campaign":"nowhere","customer_id":"ann"}`}},
		{cli.ExitRefused, "it was retried, which cannot be undone", []string{"discard", bad, "--note", "noise"}},
		{cli.ExitRefused, "it was retried, which cannot be undone", []string{"discard", "--undo", bad}},
		{cli.ExitDone, "retried", []string{"show", bad}},
		{cli.ExitDone, "claimed", []string{"show", bad}},
		{cli.ExitRefused, "may not send pause_campaign", []string{"retry", pause}},
		{cli.ExitDone, "claimed", []string{"retry", nameless}},
		{cli.ExitDone, `"repeat":true`, []string{"retry", nameless, "-o", "json"}},
		{cli.ExitRefused, "line 1 is still not a command: customer_id: missing", []string{"retry", whole}},
		{cli.ExitDone, "claimed", []string{"retry", whole, "--file", lines}},
		{cli.ExitRefused, "`scrip rebuild`", []string{"retry", event}},
		{cli.ExitDone, "discarded: 2", []string{"discard", pause, event, "--note", "seen"}},
		{cli.ExitDone, "discarded: 1", []string{"discard", pause}},
		{cli.ExitDone, "seen", []string{"show", pause}},
		{cli.ExitDone, "reopened: 1", []string{"discard", "--undo", event}},
		{cli.ExitDone, "(see scrip backup --help)", []string{"discard", "--help"}},
		{cli.ExitDone, "This holds per id", []string{"retry", "--help"}},
		{cli.ExitRefused, "there is no such dead letter", []string{"show", "SCRIP_CMD_0/99999/1"}},
		{cli.ExitDone, "discarded: 0", []string{"discard", "--all", "--stream", "commands"}},
		{cli.ExitUsage, "not the id of a dead letter", []string{"show", "17"}},
		{cli.ExitUsage, "needs ID", []string{"retry"}},
		{cli.ExitUsage, "one of --payload and --file", []string{"retry", bad, "--payload", "x", "--file", "y"}},
		{cli.ExitUsage, "has no line", []string{"retry", bad, "--payload", " "}},
		{cli.ExitUsage, "no such file", []string{"retry", bad, "--file", "/nowhere"}},
		{cli.ExitUsage, "takes no ID", []string{"discard", "--all", bad}},
		{cli.ExitUsage, "belong to --all", []string{"discard", bad, "--lane", "1"}},
		{cli.ExitUsage, "must be commands, events", []string{"list", "--stream", "letters"}},
		{cli.ExitUsage, "must be open or retried", []string{"list", "--state", "lost"}},
		{cli.ExitFailed, "must be the end of the previous page", []string{"list", "--before", "x"}},
	} {
		p.expect(step.code, step.want, append([]string{"deadletter"}, step.args...)...)
	}
	if got := scrip(t, nil, "deadletter", "list", "--nats", p.ready().NATSURL); got.code != cli.ExitUsage || !strings.Contains(got.err, "--postgres URL") {
		t.Errorf("without the tables' URL: %+v", got)
	}
	p.row("5", "SELECT count(*)::text FROM scrip.coupon WHERE customer_id IN ('ann', 'bob', 'cem', 'fay', 'gus')")
	p.expect(cli.ExitDone, "dead letters  0 commands, 1 events", "status")

	// The event is applied in its place; what people did is still known.
	p.must("rebuild")
	p.expect(cli.ExitDone, "dead letters  none", "status")
	p.row("1", "SELECT count(*)::text FROM scrip.coupon WHERE customer_id = 'dee' AND status = 'redeemed'")
	states := map[string]string{}
	for _, l := range p.must("deadletter", "list", "--state", "all")["dead_letters"].([]any) {
		letter := l.(map[string]any)
		states[letter["id"].(string)] = fmt.Sprint(letter["state"], " ", letter["note"])
	}
	want := map[string]string{bad: "retried claimed", pause: "discarded seen", nameless: "retried claimed", whole: "retried 2 claimed"}
	if fmt.Sprint(states) != fmt.Sprint(want) {
		t.Errorf("after the rebuild:\n%v, want\n%v", states, want)
	}
	p.expect(cli.ExitDone, "equal", "verify")
}

// TestHistory: each event of a coupon is shown with its position in the log and the id of its command, newest first, and
// in pages.
func TestHistory(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t))
	js := p.nats()
	p.must("campaign", "create", "sale", "--codes", "100", "--per-customer", "0", "--expires", "2031-01-01T00:00:00Z")
	code := p.must("claim", "sale", "--customer", "ann", "--id", "one")["code"].(string)
	p.must("remind", "sale", "--customer", "ann", "--kind", "expires", "--before", "1m", "--id", "two")
	p.must("redeem", code, "--order", "4711", "--id", "three")
	p.must("rollback", code, "--order", "4711", "--id", "four")
	p.must("extend", code, "--expires", "2032-01-01T00:00:00Z", "--id", "five")
	p.must("void", code, "--reason", "fraud", "--id", "six")
	code2 := p.must("claim", "sale", "--customer", "ann", "--id", "seven")["code"].(string)
	p.row("2", "SELECT count(*)::text FROM scrip.coupon WHERE customer_id = 'ann'")

	type entry struct {
		What, ID              string
		Lane, Sequence, Line  int
		Order                 string `json:"order_id"`
		Reason, Code, Expires string
	}
	type page struct {
		Coupons []struct{ Code string }
		History []entry
		More    bool
		Next    string
	}
	show := func(args ...string) (got page) {
		t.Helper()
		r := p.run(append(args, "-o", "json")...)
		if err := json.Unmarshal([]byte(r.out), &got); r.code != cli.ExitDone || err != nil || got.More != (got.Next != "") {
			t.Fatalf("scrip %v: %+v (%v)", args, r, err)
		}
		return got
	}
	kinds := func(list []entry) (words []string) {
		for _, e := range list {
			words = append(words, e.What+" "+e.ID)
			raw, err := js.Stream(t.Context(), fmt.Sprintf("SCRIP_EVT_%d", e.Lane))
			if err != nil {
				t.Fatal(err)
			}
			message, err := raw.GetMsg(t.Context(), uint64(e.Sequence))
			if err != nil {
				t.Fatal(err)
			}
			if line := strings.Split(string(message.Data), "\n")[e.Line-1]; !strings.Contains(line, `"id":"`+e.ID+`"`) {
				t.Errorf("%+v is not at its position, which has %s", e, line)
			}
		}
		return words
	}
	// The rollback sets the reminder again that the redemption cancelled; the void cancels it.
	const coupon = "[reminder_cancelled six voided six extended five reminder_set four rolled_back four reminder_cancelled three redeemed three reminder_set two claimed one]"
	// The order of what one command does is that of the log.
	if got := fmt.Sprint(kinds(show("coupon", "show", code).History)); got != coupon {
		t.Errorf("the coupon: %s, want %s", got, coupon)
	}
	const customer = "[claimed seven reminder_cancelled six voided six extended five reminder_set four rolled_back four reminder_cancelled three redeemed three reminder_set two claimed one]"
	whole := show("customer", "show", "ann")
	if got := fmt.Sprint(kinds(whole.History)); got != customer || len(whole.Coupons) != 2 {
		t.Errorf("the customer: %s and %d coupons, want %s", got, len(whole.Coupons), customer)
	}
	var all []entry
	coupons := 0
	for before := ""; ; {
		args := []string{"customer", "show", "ann", "--limit", "3"}
		if before != "" {
			args = append(args, "--before", before)
		}
		got := show(args...)
		all, coupons = append(all, got.History...), coupons+len(got.Coupons)
		if before = got.Next; !got.More {
			break
		}
	}
	if got := fmt.Sprint(kinds(all)); got != customer || coupons != 2 {
		t.Errorf("in pages: %s and %d coupons", got, coupons)
	}
	p.expect(cli.ExitDone, "there is more: --before '", "coupon", "show", code, "--limit", "2")
	p.expect(cli.ExitDone, "until 2032-01-01T00:00:00Z", "coupon", "show", code)
	p.expect(cli.ExitRefused, "before: must be the next of an answer", "customer", "show", "ann", "--before", "yesterday")
	p.expect(cli.ExitRefused, "before: must be the next of an answer", "coupon", "show", code, "--before", "bogus")
	p.expect(cli.ExitDone, "customer nobody has no coupons\nthe read tables have no events of this customer\n", "customer", "show", "nobody")
	p.must("extend", code2, "--expires", "2033-01-01T00:00:00.123Z")
	p.expect(cli.ExitDone, "expires   2033-01-01T00:00:00.123Z", "coupon", "show", code2)
	p.expect(cli.ExitDone, "2033-01-01T00:00:00.123Z\n", "customer", "show", "ann")
	p.expect(cli.ExitUsage, "must be a whole number from 1 to 500", "customer", "show", "ann", "--limit", "501")
}
