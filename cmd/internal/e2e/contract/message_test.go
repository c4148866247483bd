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

// TestOutcomesGoToInboxesOnly: anything else in Scrip-Reply is ignored and counted, and the command is done.
func TestOutcomesGoToInboxesOnly(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":99,"per_customer":0`)
	before := r.refusedReplies(t)["outcome"]
	bad := []string{"scrip.evt.0", fmt.Sprintf("scrip.evt.%d", r.lane(c)), "scrip.cmd." + c, "foo.bar", "_INBOX", "_INBOX.", "_INBOX.*", "_INBOX.>", "_INBOX.a..b",
		"_INBOXES.a", "_inbox.a", "$JS.API.STREAM.PURGE.SCRIP_CMD_0", "$JS.API.STREAM.INFO.SCRIP_EVT_0", "_INBOX.a b"}
	for i, reply := range bad {
		r.publish(t, &nats.Msg{Subject: "scrip.cmd." + c, Header: nats.Header{"Scrip-Reply": {reply}}, Data: []byte(claimLine(fmt.Sprint("i", i), "ann"))})
	}
	// Inboxes are. Those of users with keys have a prefix of their own, see TestTheSDKWorksWithAKey in streams/access/natsauth.
	for i, inbox := range []string{"_INBOX.contract." + c, "_INBOX.deep.er." + c} {
		_, outcomes := r.postTo(t, "scrip.cmd."+c, claimLine(fmt.Sprint("good", i), "ann"), inbox)
		match(t, outcomes[0], fmt.Sprintf(`{"id":"good%d","status":"claimed","campaign":"%s","n":%d,"code":"~code","?customer_id":"ann"}`, i, c, len(bad)+1+i))
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

// TestRequestsMakeTheirIDs: the type is implied, the id optional.
func TestRequestsMakeTheirIDs(t *testing.T) {
	r := server(t)
	c := r.name()
	match(t, r.request(t, "scrip.campaign.create", `{"campaign":"`+c+`","codes":3,"opens_at":"2020-01-01T00:00:00Z"}`), `{"id":"~uuid7","status":"created","campaign":"`+c+`"}`)
	first := r.request(t, "scrip.claim."+c, `{"customer_id":"ann"}`)
	match(t, first, `{"id":"~uuid7","status":"claimed","campaign":"`+c+`","n":1,"code":"~code","?customer_id":"ann"}`)
	again := r.request(t, "scrip.claim."+c, `{"customer_id":"ann"}`) // the same customer, whatever the id
	match(t, again, `{"id":"~uuid7","status":"claimed","campaign":"`+c+`","n":1,"code":"~code","?customer_id":"ann","repeat":true}`)
	if a, b := parse(t, first), parse(t, again); a["id"] == b["id"] || a["code"] != b["code"] {
		t.Errorf("%s, then %s: want other ids and the same code", first, again)
	}
	// The type may be given, if it is the right one; refusals also have a generated id.
	match(t, r.request(t, "scrip.claim."+c, `{"type":"claim","campaign":"`+c+`","customer_id":"bob"}`), `{"id":"~uuid7","status":"claimed","campaign":"`+c+`","n":2,"code":"~code","?customer_id":"bob"}`)
	match(t, r.request(t, "scrip.claim.absent", `{"customer_id":"ann"}`), `{"id":"~uuid7","status":"refused","refusal":"campaign_not_found","message":"~has:absent","campaign":"absent"}`)
	match(t, r.request(t, "scrip.remind."+c, `{"customer_id":"ann","kind":"opens","before":"1m"}`), `{"id":"~uuid7","status":"refused","refusal":"too_late","message":"~text","campaign":"`+c+`"}`)
	match(t, r.request(t, "scrip.unremind."+c, `{"customer_id":"cleo","kind":"expires","before":"1m"}`), `{"id":"~uuid7","status":"refused","refusal":"not_holder","message":"~text","campaign":"`+c+`"}`)
}
