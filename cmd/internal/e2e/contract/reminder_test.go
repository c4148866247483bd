package contract

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// remind sets a reminder and returns when it is due, as the answer says.
func (r *rig) remind(t *testing.T, c, customer, kind, before, due string) {
	t.Helper()
	n := ""
	if kind == "expires" {
		n = `"n":1,`
	}
	match(t, r.request(t, "scrip.remind."+c, fmt.Sprintf(`{"id":"set-%s","customer_id":"%s","kind":"%s","before":"%s"}`, customer, customer, kind, before)),
		fmt.Sprintf(`{"id":"set-%s","status":"reminder_set","campaign":"%s",%s"?customer_id":"%s","?kind":"%s","?before":"~text","?due_at":"~z:%s"}`, customer, c, strings.Replace(n, `"n"`, `"?n"`, 1), customer, kind, due))
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
	r.remind(t, c, "ann", "opens", "1.5s", due)
	r.remind(t, c, "bob", "opens", "1500ms", due)
	r.remind(t, c, "cleo", "opens", "1.5s", due)
	match(t, r.events(t, c, 2)[1], fill(`{"type":"reminder.set","campaign":"$c","at":"~time","id":"set-ann","r":1,"customer_id":"ann","kind":"opens","before":"1.5s","due_at":"~z:$t"}`, "$c", c, "$t", due))
	r.wantStatus(t, "scrip.remind."+c, `{"customer_id":"ann","kind":"opens","before":"1.5s"}`, "reminder_set repeat")
	match(t, r.request(t, "scrip.unremind."+c, `{"id":"off","customer_id":"bob","kind":"opens","before":"1.5s"}`),
		fill(`{"id":"off","status":"reminder_cancelled","campaign":"$c","?customer_id":"bob","?kind":"opens","?before":"1.5s"}`, "$c", c))
	match(t, r.eventsOf(t, c, "reminder.cancelled", 1)[0],
		fill(`{"type":"reminder.cancelled","campaign":"$c","at":"~time","id":"off","r":2,"?customer_id":"bob","?kind":"opens","?before":"1.5s"}`, "$c", c))
	r.wantStatus(t, "scrip.unremind."+c, `{"customer_id":"bob","kind":"opens","before":"1.5s"}`, "reminder_cancelled repeat")
	row := func(who, state string) string {
		return fill(`{"customer_id":"$w","kind":"opens","due_at":"~at:$t","state":"$s"}`, "$w", who, "$t", due, "$s", state)
	}
	matchRows(t, r.states(t, c), row("ann", "pending"), row("bob", "cancelled"), row("cleo", "pending"))
	r.wantStatus(t, "scrip.claim."+c, `{"customer_id":"ann"}`, "claim_not_open")

	due = before(r.soon(t, c, "opens_at", 3*time.Second), 1500*time.Millisecond)
	cancelled := `{"customer_id":"bob","kind":"opens","due_at":"~text","state":"cancelled"}`
	lines := r.reminded(t, c, 2)
	for i, who := range []string{"ann", "cleo"} {
		match(t, lines[i], fill(`{"type":"reminder.due","campaign":"$c","at":"~time","kind":"opens","due_at":"$t","customer_id":"$w"}`, "$c", c, "$t", due, "$w", who))
		if at := instant(parse(t, lines[i])["at"].(string)); at.Before(instant(due)) {
			t.Errorf("the reminder for %s fired early, at %s", due, at)
		}
	}
	fired := r.eventsOf(t, c, "reminders.due", 1)
	match(t, fired[0], fill(`{"type":"reminders.due","campaign":"$c","at":"~time","id":"~text","kind":"opens","due_at":"$t","from_r":1,"through_r":3,"fired":2,"dropped":0}`, "$c", c, "$t", due))
	matchRows(t, r.states(t, c), row("ann", "fired"), cancelled, row("cleo", "fired"))
	r.wantStatus(t, "scrip.unremind."+c, `{"customer_id":"ann","kind":"opens","before":"1.5s"}`, "too_late")
	r.wantStatus(t, "scrip.remind."+c, `{"customer_id":"dora","kind":"opens","before":"1.5s"}`, "too_late")
	eventually(t, "claims are open", func() bool {
		return parse(t, r.request(t, "scrip.claim."+c, `{"customer_id":"ann"}`))["status"] == "claimed"
	})
	if n := len(r.subscriber.lines("scrip.rmd.", c)); n != 2 {
		t.Errorf("%d customers were reminded, want 2", n)
	}
}
