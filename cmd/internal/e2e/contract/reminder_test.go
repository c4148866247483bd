package contract

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// remind sets a reminder and compares when it is due.
func (r *rig) remind(t *testing.T, c, customer, before, due string) {
	t.Helper()
	match(t, r.request(t, "scrip.remind."+c, fmt.Sprintf(`{"id":"set-%s","customer_id":"%s","kind":"opens","before":"%s"}`, customer, customer, before)),
		fill(`{"id":"set-$w","status":"reminder_set","campaign":"$c","?customer_id":"$w","?kind":"opens","?before":"~text","?due_at":"~z:$t"}`, "$w", customer, "$c", c, "$t", due))
}

// wantStatus sends a request and compares its status or refusal.
func (r *rig) wantStatus(t *testing.T, subject, body, want string) {
	t.Helper()
	answer := parse(t, r.request(t, subject, body))
	got := fmt.Sprint(answer["status"])
	if answer["refusal"] != nil {
		got = fmt.Sprint(answer["refusal"])
	}
	if answer["repeat"] == true {
		got += " repeat"
	}
	if got != want {
		t.Errorf("%s %s: %v, want %s", subject, body, answer, want)
	}
}

// states reads the reminders of a campaign, by customer.
func (r *rig) states(t *testing.T, c string) [][]byte {
	t.Helper()
	return r.rows(t, `SELECT customer_id, kind, due_at, state FROM scrip.reminder WHERE campaign = $1 ORDER BY customer_id`, c)
}

// before is the instant so long before another one.
func before(at string, d time.Duration) string {
	return instant(at).Add(-d).UTC().Format(time.RFC3339Nano)
}

// TestReminderBeforeTheOpening fires once, exactly so long before it: on the log, on scrip.rmd.<lane>, in the tables.
// A cancelled one does not.
func TestReminderBeforeTheOpening(t *testing.T) {
	r := server(t)
	due := before(farAway, 1500*time.Millisecond)
	c := r.campaign(t, `"codes":9,"opens_at":"`+farAway+`"`)
	r.remind(t, c, "ann", "1.5s", due)
	r.remind(t, c, "bob", "1500ms", due)
	r.remind(t, c, "cleo", "1.5s", due)
	match(t, r.events(t, c, "", 2)[1], fill(`{"type":"reminder.set","campaign":"$c","at":"~time","id":"set-ann","r":1,"customer_id":"ann","kind":"opens","before":"1.5s","due_at":"~z:$t"}`, "$c", c, "$t", due))
	r.wantStatus(t, "scrip.remind."+c, `{"customer_id":"ann","kind":"opens","before":"1.5s"}`, "reminder_set repeat")
	match(t, r.request(t, "scrip.unremind."+c, `{"id":"off","customer_id":"bob","kind":"opens","before":"1.5s"}`),
		fill(`{"id":"off","status":"reminder_cancelled","campaign":"$c","?customer_id":"bob","?kind":"opens","?before":"1.5s"}`, "$c", c))
	match(t, r.events(t, c, "reminder.cancelled", 1)[0],
		fill(`{"type":"reminder.cancelled","campaign":"$c","at":"~time","id":"off","r":2,"?customer_id":"bob","?kind":"opens","?before":"1.5s"}`, "$c", c))
	r.wantStatus(t, "scrip.unremind."+c, `{"customer_id":"bob","kind":"opens","before":"1.5s"}`, "reminder_cancelled repeat")
	row := func(who, state string) string {
		return fill(`{"customer_id":"$w","kind":"opens","due_at":"~at:$t","state":"$s"}`, "$w", who, "$t", due, "$s", state)
	}
	matchRows(t, r.states(t, c), row("ann", "pending"), row("bob", "cancelled"), row("cleo", "pending"))
	r.wantStatus(t, "scrip.claim."+c, `{"customer_id":"ann"}`, "claim_not_open")

	due = before(r.soon(t, c, "opens_at", 3*time.Second), 1500*time.Millisecond)
	cancelled := `{"customer_id":"bob","kind":"opens","due_at":"~text","state":"cancelled"}`
	var lines [][]byte
	streamtest.Eventually(t, "two reminders have fired", func() bool {
		lines = r.subscriber.lines("scrip.rmd.", c, "")
		return len(lines) >= 1
	})
	match(t, lines[0], fill(`{"type":"reminder.due","campaign":"$c","at":"~time","kind":"opens","before":"1.5s","due_at":"$t","customer_ids":["ann","cleo"],"r":[1,3]}`, "$c", c, "$t", due))
	if at := instant(parse(t, lines[0])["at"].(string)); at.Before(instant(due)) {
		t.Errorf("the reminders for %s fired early, at %s", due, at)
	}
	fired := r.events(t, c, "reminders.due", 1)
	match(t, fired[0], fill(`{"type":"reminders.due","campaign":"$c","at":"~time","id":"~text","kind":"opens","due_at":"$t","from_r":1,"through_r":3,"fired":2,"dropped":0}`, "$c", c, "$t", due))
	matchRows(t, r.states(t, c), row("ann", "fired"), cancelled, row("cleo", "fired"))
	r.wantStatus(t, "scrip.unremind."+c, `{"customer_id":"ann","kind":"opens","before":"1.5s"}`, "too_late")
	r.wantStatus(t, "scrip.remind."+c, `{"customer_id":"dora","kind":"opens","before":"1.5s"}`, "too_late")
	streamtest.Eventually(t, "claims are open", func() bool {
		return parse(t, r.request(t, "scrip.claim."+c, `{"customer_id":"ann"}`))["status"] == "claimed"
	})
	if n := len(r.subscriber.lines("scrip.rmd.", c, "")); n != 1 {
		t.Errorf("%d lines of customers who were reminded, want 1", n)
	}
}
