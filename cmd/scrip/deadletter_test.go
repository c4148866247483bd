package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// parked publishes a command message as a producer would, and waits until the read tables have the dead letter of its
// line, whose id it returns.
func (p *process) parked(subject, message string, line int) string {
	p.t.Helper()
	ack, err := p.nats().Publish(p.t.Context(), subject, []byte(message))
	streamtest.Must(p.t, err)
	p.row("1", "SELECT count(*)::text FROM scrip.dead_letter WHERE stream = $1 AND sequence = $2 AND line = $3", ack.Stream, int64(ack.Sequence), line)
	return fmt.Sprintf("%s.%d.%d", ack.Stream, ack.Sequence, line)
}

// TestDeadLetters: what its commands print and their exit codes, from a bad line and an event that the tables cannot apply to
// both being settled. What is retried, kept and refused is shown by package readmodel and by the service.
func TestDeadLetters(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "letters", "--codes", "100")
	padding := strings.Repeat("long ", 800)
	original := `{"id":"a1","type":"claim","customer":"ann","note":"` + padding + `"}`
	bad := p.parked("scrip.cmd.letters", original, 1)
	pause := p.parked("scrip.cmd.letters", `{"id":"a2","type":"claim","customer_id":"bob"}`+"\n\n"+`{"id":"a3","type":"pause_campaign"}`, 3)
	number := p.parked("scrip.cmd.letters", `{"id":"a4","type":"redeem","n":1,"order_id":"o"}`, 1)
	whole := p.parked("scrip.cmd.letters", strings.Repeat(`{"type":"claim"}`+"\n", 1001), 0)

	// An event that the tables cannot apply: its coupon is not in them.
	coupon := p.must("claim", "letters", "--customer", "letters-dee")
	p.row("1", "SELECT count(*)::text FROM scrip.coupon WHERE customer_id = 'letters-dee'")
	if _, err := p.postgres().Exec(t.Context(), "DELETE FROM "+p.tables()+".coupon_claim WHERE customer_id = 'letters-dee'"); err != nil {
		t.Fatal(err)
	}
	p.must("redeem", coupon["code"].(string), "--order", "4711")
	p.row("1", "SELECT count(*)::text FROM scrip.dead_letter WHERE stream LIKE 'SCRIP_EVT%'")
	p.expect(cli.ExitDone, "dead letters  4 commands, 1 events", "status")
	first := p.must("deadletter", "list", "--limit", "3")
	rest := p.must("deadletter", "list", "--limit", "3", "--after", first["next"].(string))
	if len(first["items"].([]any)) != 3 || len(rest["items"].([]any)) != 2 || rest["next"] != nil {
		t.Errorf("pages: %v and %v", first, rest)
	}
	event := p.must("deadletter", "list", "--stream", "events")["items"].([]any)[0].(map[string]any)["id"].(string)
	if shown := p.must("deadletter", "show", bad); shown["original"] != original || len(shown["payload"].(string)) > 1100 || shown["state"] != "open" {
		t.Errorf("show: %v", shown)
	}
	lines := filepath.Join(t.TempDir(), "lines.ndjson")
	if err := os.WriteFile(lines, []byte(`{"id":"f1","type":"claim","campaign":"letters","customer_id":"fay"}`+"\n"+`{"type":"claim","customer_id":"gus"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mended := `{"id":"a1","type":"claim","customer_id":"ann"}`
	for _, step := range []struct {
		code int
		want string
		args []string
	}{
		{cli.ExitDone, "unknown field; remove it", []string{"list"}},
		{cli.ExitDone, strings.TrimSpace(padding), []string{"show", bad}},
		{cli.ExitDone, "an event that the read tables could not apply", []string{"show", event}},
		{cli.ExitDone, "refused as a whole", []string{"show", whole}},
		{cli.ExitRefused, "still not a command: customer: unknown field", []string{"retry", bad}},
		{cli.ExitRefused, "line 1 has an id; leave out", []string{"retry", bad, "--payload", mended, "--id", "other"}},
		{cli.ExitDone, "claimed", []string{"retry", bad, "--payload", mended}},
		{cli.ExitDone, `"repeat":true`, []string{"retry", bad, "--payload", mended, "-o", "json"}},
		{cli.ExitRefused, "it was retried, which cannot be undone", []string{"discard", bad, "--note", "noise"}},
		{cli.ExitDone, "retried", []string{"show", bad}},
		{cli.ExitRefused, "may not send pause_campaign", []string{"retry", pause}},
		{cli.ExitRefused, "to send it with your rights", []string{"retry", number}},
		{cli.ExitDone, "claimed", []string{"retry", whole, "--file", lines}},
		{cli.ExitRefused, "`scrip rebuild`", []string{"retry", event}},
		{cli.ExitDone, "discarded: 3", []string{"discard", pause, number, event, "--note", "seen"}},
		{cli.ExitDone, "seen", []string{"show", pause}},
		{cli.ExitDone, "reopened: 1", []string{"discard", "--undo", event}},
		{cli.ExitRefused, `{"status":"refused","refusal":"not_found","message":"`, []string{"show", "SCRIP_CMD_0.999.1", "-o", "json"}},
		{cli.ExitDone, "discarded: 0", []string{"discard", "--all", "--stream", "commands"}},
		{cli.ExitRefused, "belong to all", []string{"discard", bad, "--lane", "1"}},
		{cli.ExitUsage, "one of --payload and --file", []string{"retry", bad, "--payload", "x", "--file", "y"}},
		{cli.ExitUsage, "there is no file", []string{"retry", bad, "--file", "/nowhere"}},
		{cli.ExitUsage, "has no line", []string{"retry", bad, "--payload", " "}},
	} {
		p.expect(step.code, step.want, append([]string{"deadletter"}, step.args...)...)
	}
	p.must("rebuild") // the event is applied in its place
	p.expect(cli.ExitDone, "dead letters  none", "status")
}

// TestLetterOfAKeyWithoutCodes: where the line is kept back the text has the reason for it; an empty line has none.
func TestLetterOfAKeyWithoutCodes(t *testing.T) {
	for subject, want := range map[string]string{"": "your key does not see both", "scrip.lane.0.cmd.summer": "summer\n  state    open\n\n\n"} {
		var out bytes.Buffer
		letter := readmodel.ShownLetter{Letter: readmodel.Letter{Reason: "unknown field", State: readmodel.Open}, Subject: subject}
		streamtest.Must(t, (&Main{Out: &out}).printLetter(letter))
		if !strings.Contains(out.String(), want) {
			t.Errorf("subject %q: %s", subject, out.String())
		}
	}
}

// TestHistory: a coupon and a customer as people see them, in pages. What is in a history is shown by package readmodel.
func TestHistory(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "history", "--codes", "100", "--per-customer", "0", "--expires", "2031-01-01T00:00:00Z")
	code := p.must("claim", "history", "--customer", "history-ann")["code"].(string)
	p.must("redeem", code, "--order", "4711")
	p.must("extend", "--campaign", "history", "--n", "1", "--expires", "2033-01-01T00:00:00.123Z")
	p.row("2033-01-01 00:00:00.123+00", "SELECT expires_at::text FROM scrip.coupon WHERE customer_id = 'history-ann'")
	first := p.must("customer", "show", "history-ann", "--limit", "2")
	rest := p.must("customer", "show", "history-ann", "--limit", "2", "--after", first["next"].(string))
	if len(first["history"].([]any)) != 2 || len(rest["history"].([]any)) != 1 || first["next"] == nil || rest["next"] != nil {
		t.Errorf("pages: %v and %v", first, rest)
	}
	p.expect(cli.ExitDone, "there is more: --after ", "coupon", "show", "--campaign", "history", "--n", "1", "--limit", "2")
	p.expect(cli.ExitDone, "named by n 1, until 2033-01-01T00:00:00.123Z\n", "coupon", "show", code)
	p.expect(cli.ExitDone, "expires   2033-01-01T00:00:00.123Z", "coupon", "show", code)
	p.expect(cli.ExitDone, "2033-01-01T00:00:00.123Z\n", "customer", "show", "history-ann")
	p.expect(cli.ExitRefused, "after: must be the value of next", "coupon", "show", code, "--after", "bogus")
	p.expect(cli.ExitDone, "customer nobody has no coupons\nthe read tables have no events of this customer\n", "customer", "show", "nobody")
}
