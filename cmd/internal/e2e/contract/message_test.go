package contract

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

func claimLine(id, customer string) string {
	return fmt.Sprintf(`{"id":"%s","type":"claim","customer_id":"%s"}`, id, customer)
}

// padded is a claim of exactly n bytes.
func padded(id string, n int) string {
	line := claimLine(id, id)
	return line[:len(line)-1] + strings.Repeat(" ", n-len(line)) + "}"
}

// TestTheAcknowledgement says "ordered and kept": the stream of the campaign's lane, and the command's place in it.
func TestTheAcknowledgement(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":9`)
	var last uint64
	for i, subject := range []string{"scrip.cmd." + c, fmt.Sprintf("scrip.lane.%d.cmd.%s", r.lane(c), c), fmt.Sprintf("scrip.lane.%d.cmd", r.lane(c)), "scrip.admin." + c} {
		line := fmt.Sprintf(`{"id":"i%d","type":"claim","campaign":"%s","customer_id":"x%d"}`, i, c, i)
		if strings.HasPrefix(subject, "scrip.admin") {
			line = fmt.Sprintf(`{"id":"i%d","type":"pause_campaign"}`, i)
		}
		// Without Scrip-Reply nobody is answered, and all is done.
		ack := r.publish(t, &nats.Msg{Subject: subject, Data: []byte(line)})
		if want := fmt.Sprintf("SCRIP_CMD_%d", r.lane(c)); ack.Stream != want || ack.Seq <= last {
			t.Errorf("%s was acknowledged as %+v, after %d; want a later one of %s", subject, ack, last, want)
		}
		last = ack.Seq
	}
	received := r.events(t, c, 5)
	match(t, received[4], `{"type":"campaign.paused","campaign":"`+c+`","at":"~time","id":"i3"}`)
}

// TestHalfGoodHalfBad: good lines are done, bad ones refused, answered one by one in order; empty lines are skipped.
func TestHalfGoodHalfBad(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":2`)
	ack, outcomes := r.post(t, "scrip.cmd."+c, strings.Join([]string{
		claimLine("1", "ann"), "", `{"id":"2","type":"claim"}`, "nonsense", "   ", claimLine("5", "bob"), claimLine("6", "cleo"),
		`{"id":"7","type":"create_campaign","codes":1}`, claimLine("8", "ann") + "\r", "", "",
	}, "\n"))
	patterns := []string{
		`{"id":"1","status":"claimed","campaign":"$c","n":1,"code":"~code","?customer_id":"ann"}`,
		`{"id":"2","status":"refused","refusal":"invalid","message":"~has:customer_id","campaign":"$c"}`,
		`{"status":"refused","refusal":"invalid","message":"~has:JSON","campaign":"$c"}`,
		`{"id":"5","status":"claimed","campaign":"$c","n":2,"code":"~code","?customer_id":"bob"}`,
		`{"id":"6","status":"refused","refusal":"sold_out","message":"~text","campaign":"$c"}`,
		`{"id":"7","status":"refused","refusal":"invalid","message":"~has:create_campaign","campaign":"$c"}`,
		`{"id":"8","status":"claimed","campaign":"$c","n":1,"code":"~code","?customer_id":"ann","repeat":true}`,
	}
	for i := range patterns {
		patterns[i] = fill(patterns[i], "$c", c)
	}
	if len(outcomes) != len(patterns) {
		t.Fatalf("%d outcomes, want %d:\n%s", len(outcomes), len(patterns), bytes.Join(outcomes, []byte("\n")))
	}
	for i, pattern := range patterns {
		match(t, outcomes[i], pattern)
	}
	// One dead letter for each invalid line; the refusals are counted.
	letters := r.rows(t, `SELECT stream, lane, sequence, line, reason, payload, at FROM scrip.dead_letter WHERE lane = $1 AND sequence = $2 ORDER BY line`, r.lane(c), ack.Seq)
	where := fmt.Sprintf(`"stream":"%s","lane":%d,"sequence":%d,"at":"~text"`, ack.Stream, r.lane(c), ack.Seq)
	matchRows(t, letters,
		`{`+where+`,"line":3,"reason":"~has:customer_id","payload":"{\"id\":\"2\",\"type\":\"claim\"}"}`,
		`{`+where+`,"line":4,"reason":"~has:JSON","payload":"nonsense"}`,
		`{`+where+`,"line":8,"reason":"~has:create_campaign","payload":"~has:create_campaign"}`)
	match(t, r.eventsOf(t, c, "command.rejected", 3)[1],
		fmt.Sprintf(`{"type":"command.rejected","campaign":"%s","at":"~time","?id":"~any","sequence":%d,"line":4,"reason":"~has:JSON","payload":"nonsense"}`, c, ack.Seq))
	match(t, r.eventsOf(t, c, "commands.refused", 1)[0], `{"type":"commands.refused","campaign":"`+c+`","at":"~time","counts":{"sold_out":1}}`)
	matchRows(t, r.rows(t, `SELECT reason, refused FROM scrip.refusal_stats WHERE campaign = $1 ORDER BY reason`, c),
		`{"reason":"invalid","refused":3}`, `{"reason":"sold_out","refused":1}`)
}

// TestSeveralCampaignsInOneMessage: an id belongs to its campaign, and means the same command within it.
func TestSeveralCampaignsInOneMessage(t *testing.T) {
	r := server(t)
	a := r.campaign(t, `"codes":9`)
	b := r.nameOn(r.lane(a))
	r.create(t, b, `"codes":9`)
	const line = `{"id":"same","type":"claim","campaign":"$c","customer_id":"ann","attributes":{}}`
	_, outcomes := r.post(t, fmt.Sprintf("scrip.lane.%d.cmd", r.lane(a)), strings.Join([]string{fill(line, "$c", a), fill(line, "$c", b), fill(line, "$c", a)}, "\n"))
	if len(outcomes) != 3 {
		t.Fatalf("%s", outcomes)
	}
	for i, c := range []string{a, b, a} {
		pattern := `{"id":"same","status":"claimed","campaign":"` + c + `","n":1,"code":"~code","?customer_id":"ann"`
		if i == 2 {
			pattern += `,"repeat":true`
		}
		match(t, outcomes[i], pattern+"}")
	}
	for _, c := range []string{a, b} { // attributes that say nothing are left out
		match(t, r.eventsOf(t, c, "coupon.claimed", 1)[0], `{"type":"coupon.claimed","campaign":"`+c+`","at":"~time","id":"same","n":1,"code":"~code","customer_id":"ann"}`)
	}
}

// TestLimitsOfMessages: what is just within them is done; what is beyond is one invalid, however many lines it has.
func TestLimitsOfMessages(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":100000,"per_customer":0`)
	many := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, claimLine(fmt.Sprintf("m%d-%d", n, i), "ann"))
		}
		return strings.Join(all, "\n")
	}
	full := func(id string, size int) string { // 16 lines of at most 16 KiB
		var all []string
		for i := range 16 {
			n := size / 16
			if i < 15 {
				n-- // the newline
			} else {
				n = size - 15*(size/16)
			}
			all = append(all, padded(fmt.Sprintf("%s-%d", id, i), n))
		}
		return strings.Join(all, "\n")
	}
	const kib = 1 << 10
	for _, m := range []struct {
		name, payload string
		done          int    // outcomes; 0 = one refusal for the whole
		says          string // of the refusal
	}{
		{"one line", claimLine("one", "ann"), 1, ""},
		{"trailing newline", claimLine("newline", "ann") + "\n", 1, ""},
		{"newlines all around", "\n\n" + claimLine("around", "ann") + "\n\r\n \n", 1, ""},
		{"1,000 lines", many(1000), 1000, ""},
		{"1,000 lines and empty ones", strings.ReplaceAll(many(1000), "\n", "\n\n"), 1000, ""},
		{"1,001 lines", many(1001), 0, "1001 lines, at most 1000"},
		{"empty", "", 0, "no command lines"},
		{"nothing but newlines", "\n\n\n", 0, "no command lines"},
		{"a line of 16 KiB", padded("16k", 16*kib), 1, ""},
		{"a line of 16 KiB + 1", padded("16k1", 16*kib+1), 0, "16385 bytes, at most 16384"},
		{"256 KiB", full("256k", 256*kib), 16, ""},
		{"256 KiB + 1", full("256k1", 256*kib) + "\n", 0, "262145 bytes, at most 262144"},
		{"600 KiB", many(6000) + strings.Repeat("\n", 100*kib), 0, "at most 262144"},
	} {
		ack, outcomes := r.post(t, "scrip.cmd."+c, m.payload)
		if ack.Seq == 0 || len(outcomes) != max(m.done, 1) {
			t.Errorf("%s: %d outcomes, want %d: %.300s", m.name, len(outcomes), max(m.done, 1), outcomes[0])
			continue
		}
		if m.done == 0 {
			match(t, outcomes[0], `{"status":"refused","refusal":"invalid","message":"~has:`+m.says+`","campaign":"`+c+`"}`)
			continue
		}
		for i, outcome := range outcomes {
			if a := parse(t, outcome); a["status"] != "claimed" {
				t.Errorf("%s, line %d: %s", m.name, i, outcome)
			}
		}
	}
	// A message refused as a whole had no effect (the second 1,000 lines were repeats), and is one dead letter that does
	// not quote all of it.
	matchRows(t, r.rows(t, `SELECT claimed FROM scrip.campaign WHERE campaign = $1`, c), fmt.Sprintf(`{"claimed":%d}`, 3+1000+1+16))
	for _, letter := range r.rows(t, `SELECT payload FROM scrip.dead_letter WHERE payload LIKE $1`, `%"m1001-0"%`) {
		if len(letter) > 4*kib {
			t.Errorf("the dead letter quotes %d bytes", len(letter))
		}
	}
}

// TestSubjectsSayWhatMayBeSent: a line whose type, campaign or lane disagrees with its subject is invalid.
func TestSubjectsSayWhatMayBeSent(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":5`)
	lane := r.lane(c)
	here, away := r.nameOn(lane), r.nameOn((lane+1)%r.desc.Lanes)
	multi, due := fmt.Sprintf("scrip.lane.%d.cmd", lane), fmt.Sprintf("scrip.lane.%d.due", lane)
	const expire = `{"id":"x","type":"expire","campaign":"$c","through":"2020-01-01T00:00:00Z"}`
	const remindDue = `{"id":"x","type":"remind_due","campaign":"$c","kind":"opens","due_at":"2020-01-01T00:00:00Z","through_r":1}`
	for _, wrong := range []struct{ subject, line, says string }{
		{"scrip.cmd.$c", `{"id":"x","type":"create_campaign","codes":1}`, "type: "},
		{"scrip.cmd.$c", `{"id":"x","type":"update_campaign","codes":9}`, "type: "},
		{"scrip.cmd.$c", `{"id":"x","type":"pause_campaign"}`, "type: "},
		{"scrip.cmd.$c", `{"id":"x","type":"resume_campaign"}`, "type: "},
		{"scrip.cmd.$c", `{"id":"x","type":"end_campaign"}`, "type: "},
		{"scrip.cmd.$c", `{"id":"x","type":"import_codes","codes":["ABC"]}`, "type: "},
		{"scrip.cmd.$c", `{"id":"x","type":"void","code":"ABC"}`, "type: "},
		{"scrip.cmd.$c", `{"id":"x","type":"extend","code":"ABC","expires_at":"2031-01-01T00:00:00Z"}`, "type: "},
		{"scrip.cmd.$c", expire, "type: "},
		{"scrip.cmd.$c", remindDue, "type: "},
		{"scrip.admin.$c", `{"id":"x","type":"claim","customer_id":"ann"}`, "type: "},
		{"scrip.admin.$c", `{"id":"x","type":"redeem","code":"ABC","order_id":"o"}`, "type: "},
		{"scrip.admin.$c", expire, "type: "},
		{multi, expire, "type: "},
		{multi, remindDue, "type: "},
		{due, `{"id":"x","type":"claim","campaign":"$c","customer_id":"ann"}`, "type: "},
		{due, `{"id":"x","type":"pause_campaign","campaign":"$c"}`, "type: "},
		{"scrip.cmd.$c", `{"id":"x","type":"claim","campaign":"$here","customer_id":"ann"}`, "campaign: "},
		{"scrip.admin.$c", `{"id":"x","type":"pause_campaign","campaign":"$here"}`, "campaign: "},
		{multi, `{"id":"x","type":"claim","campaign":"$away","customer_id":"ann"}`, "campaign: "},
		{multi, `{"id":"x","type":"claim","customer_id":"ann"}`, "campaign: "},
		{due, `{"id":"x","type":"expire","campaign":"$away","through":"2020-01-01T00:00:00Z"}`, "campaign: "},
		{fmt.Sprintf("scrip.lane.%d.cmd.%s", lane, away), `{"id":"x","type":"claim","customer_id":"ann"}`, "campaign: "},
	} {
		outcome := r.one(t, fill(wrong.subject, "$c", c), fill(wrong.line, "$c", c, "$here", here, "$away", away))
		if a := parse(t, outcome); a["refusal"] != "invalid" || a["id"] != "x" || !strings.HasPrefix(fmt.Sprint(a["message"]), wrong.says) {
			t.Errorf("%s %s: %s, want invalid and %q", wrong.subject, wrong.line, outcome, wrong.says)
		}
	}
	match(t, r.one(t, "scrip.cmd.b%c", `{"id":"x","type":"claim","customer_id":"ann"}`), `{"id":"x","status":"refused","refusal":"invalid","message":"~has:campaign: "}`)
	for _, line := range []string{`{"id":"x","type":"claim","customer_id":"ann"}`, `{"id":"x","type":"remind","customer_id":"ann","kind":"opens","before":"1m"}`} {
		match(t, r.one(t, "scrip.cmd."+here, line), `{"id":"x","status":"refused","refusal":"campaign_not_found","message":"~has:`+here+`","campaign":"`+here+`"}`)
	}
	matchRows(t, r.rows(t, `SELECT status, codes, claimed FROM scrip.campaign WHERE campaign = $1`, c), `{"status":"active","codes":5,"claimed":0}`)
}

// TestOutcomesGoToInboxesOnly: anything else in Scrip-Reply is ignored and counted, and the command is done.
func TestOutcomesGoToInboxesOnly(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":99,"per_customer":0`)
	all, err := r.nc.SubscribeSync("foo.>")
	if err != nil {
		t.Fatal(err)
	}
	before := r.refusedReplies(t)["outcome"]
	bad := []string{"scrip.evt.0", fmt.Sprintf("scrip.evt.%d", r.lane(c)), "scrip.cmd." + c, "foo.bar", "_INBOX", "_INBOX.", "_INBOX.*", "_INBOX.>", "_INBOX.a..b",
		"_INBOXES.a", "_inbox.a", "$JS.API.STREAM.PURGE.SCRIP_CMD_0", "$JS.API.STREAM.INFO.SCRIP_EVT_0", "_INBOX.a b"}
	for i, reply := range bad {
		r.publish(t, &nats.Msg{Subject: "scrip.cmd." + c, Header: nats.Header{"Scrip-Reply": {reply}}, Data: []byte(claimLine(fmt.Sprint("i", i), "ann"))})
	}
	// Inboxes are: of everybody, and of users who have a prefix of their own.
	for i, inbox := range []string{"_INBOX.contract." + c, "_INBOX_alice." + c, "_INBOX_alice.deep.er." + c} {
		_, outcomes := r.postTo(t, "scrip.cmd."+c, claimLine(fmt.Sprint("good", i), "ann"), inbox)
		match(t, outcomes[0], fmt.Sprintf(`{"id":"good%d","status":"claimed","campaign":"%s","n":%d,"code":"~code","?customer_id":"ann"}`, i, c, len(bad)+1+i))
	}
	if msg, err := all.NextMsg(1); err == nil { // answers left long before those to the inboxes
		t.Errorf("an outcome was published on %s", msg.Subject)
	}
	if after := r.refusedReplies(t)["outcome"]; after-before != float64(len(bad)) {
		t.Errorf("%v of %d were counted", after-before, len(bad))
	}
	for _, msg := range r.subscriber.on(fmt.Sprintf("scrip.evt.%d", r.lane(c))) {
		if msg.Header.Get("Scrip-Format") != "1" {
			t.Errorf("something else than a step stands on %s: %s", msg.Subject, msg.Data)
		}
	}
}
