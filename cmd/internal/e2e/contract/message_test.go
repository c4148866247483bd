package contract

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func claimLine(id, customer string) string {
	return fmt.Sprintf(`{"id":"%s","type":"claim","customer_id":"%s"}`, id, customer)
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
	match(t, r.events(t, c, "command.rejected", 3)[1],
		fmt.Sprintf(`{"type":"command.rejected","campaign":"%s","at":"~time","?id":"~any","sequence":%d,"line":4,"reason":"~has:JSON","payload":"nonsense"}`, c, ack.Seq))
	match(t, r.events(t, c, "commands.refused", 1)[0], `{"type":"commands.refused","campaign":"`+c+`","at":"~time","counts":{"sold_out":1}}`)
	matchRows(t, r.rows(t, `SELECT reason, refused FROM scrip.refusal_stats WHERE campaign = $1 ORDER BY reason`, c),
		`{"reason":"invalid","refused":3}`, `{"reason":"sold_out","refused":1}`)
}
