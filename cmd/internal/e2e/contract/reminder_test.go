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

// TestReminderBeforeTheExpiry hangs on the customer's newest coupon: redeem and void cancel it in the same step, extend
// moves it.
func TestReminderBeforeTheExpiry(t *testing.T) {
	r := server(t)
	ends := in(30 * time.Minute)
	due := before(ends, 2*time.Second)
	c := r.campaign(t, `"codes":9,"expires_at":"`+ends+`"`)
	match(t, r.request(t, "scrip.remind."+c, `{"id":"x","customer_id":"ann","kind":"expires","before":"2s"}`), `{"id":"x","status":"refused","refusal":"not_holder","message":"~text","campaign":"`+c+`"}`)
	codes := map[string]string{}
	for _, who := range []string{"ann", "moved", "redeemed", "voided"} {
		codes[who] = r.claim(t, c, who)
		r.wantStatus(t, "scrip.remind."+c, `{"id":"`+who+`","customer_id":"`+who+`","kind":"expires","before":"2s"}`, "reminder_set")
	}
	r.wantStatus(t, "scrip.remind."+c, `{"customer_id":"ann","kind":"expires","before":"1h"}`, "too_late")
	match(t, r.eventsOf(t, c, "reminder.set", 1)[0], fill(`{"type":"reminder.set","campaign":"$c","at":"~time","id":"ann","r":1,"customer_id":"ann","kind":"expires","before":"2s","due_at":"~z:$t","n":1}`, "$c", c, "$t", due))
	const later = "2032-01-01T00:00:00Z"
	r.wantStatus(t, "scrip.extend", `{"code":"`+codes["moved"]+`","expires_at":"`+later+`"}`, "extended")
	r.wantStatus(t, "scrip.redeem", `{"id":"use","code":"`+codes["redeemed"]+`","order_id":"o"}`, "redeemed")
	r.wantStatus(t, "scrip.void", `{"id":"drop","code":"`+codes["voided"]+`"}`, "voided")
	cancelled := r.eventsOf(t, c, "reminder.cancelled", 2)
	match(t, cancelled[0], fill(`{"type":"reminder.cancelled","campaign":"$c","at":"~time","id":"use","r":3,"n":3}`, "$c", c))
	match(t, cancelled[1], fill(`{"type":"reminder.cancelled","campaign":"$c","at":"~time","id":"drop","r":4}`, "$c", c))
	dueMoved := before(later, 2*time.Second)
	row := func(who, at, state string) string {
		return fill(`{"customer_id":"$w","kind":"expires","due_at":"~at:$t","state":"$s"}`, "$w", who, "$t", at, "$s", state)
	}
	matchRows(t, r.states(t, c), row("ann", due, "pending"), row("moved", dueMoved, "pending"), row("redeemed", due, "cancelled"), row("voided", due, "cancelled"))
	due = before(r.soon(t, c, "expires_at", 3*time.Second), 2*time.Second)
	dueMoved = before(r.extendSoon(t, codes["moved"], 4*time.Second), 2*time.Second)
	lines := r.reminded(t, c, 2)
	match(t, lines[0], fill(`{"type":"reminder.due","campaign":"$c","at":"~time","kind":"expires","due_at":"$t","customer_id":"ann"}`, "$c", c, "$t", due))
	match(t, lines[1], fill(`{"type":"reminder.due","campaign":"$c","at":"~time","kind":"expires","due_at":"$t","customer_id":"moved"}`, "$c", c, "$t", dueMoved))
	states := r.states(t, c)
	matchRows(t, states[:2], row("ann", due, "fired"), row("moved", dueMoved, "fired"))
	matchRows(t, states[2:], `{"customer_id":"redeemed","kind":"expires","due_at":"~text","state":"cancelled"}`, `{"customer_id":"voided","kind":"expires","due_at":"~text","state":"cancelled"}`)
}
