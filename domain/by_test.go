package domain

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestEventsNameWhoCausedThem: all events of a person's message have `by`, dead letters included, and those of a line with a
// request id have that; those of other messages and lines in the step, and the counts of refusals, have none. A fold takes no
// notice of either.
func TestEventsNameWhoCausedThem(t *testing.T) {
	options := LaneOptions{Lane: 0, Lanes: 1, Key: [32]byte{1}}
	l, folded := NewLane(options), NewLane(options)
	s := NewStep(l)
	const at = wire.Instant(1_800_000_000_000_000)
	add := func(sequence uint64, by string, lines ...string) {
		s.Add(Message{Sequence: sequence, Scope: wire.ScopeTrusted, By: by, Payload: []byte(strings.Join(lines, "\n"))}, at, nil)
	}
	add(1, "ann", `{"id":"1","type":"create_campaign","campaign":"summer","codes":1}`, `{"id":"2","type":"claim","campaign":"summer","customer_id":"c","request_id":"r\"2"}`, `not a command`)
	add(2, "", `{"id":"3","type":"claim","campaign":"summer","customer_id":"d"}`, `{"id":"4","type":"pause_campaign","campaign":"summer"}`)
	add(3, "bob", `{"id":"5","type":"resume_campaign","campaign":"summer"}`)
	s.Close()
	want := []string{"campaign.created ann", "coupon.claimed annr\"2", "campaign.sold_out annr\"2", "command.rejected ann", "campaign.paused ", "campaign.resumed bob", "commands.refused "}
	var got []string
	for line := range strings.Lines(string(s.Events)) {
		var e wire.Event
		if err := wire.ParseEvent([]byte(strings.TrimSuffix(line, "\n")), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got = append(got, e.Type.String()+" "+e.By+e.RequestID)
	}
	if strings.Join(got, ",") != strings.Join(want, ",") {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := folded.Fold(s.Events); err != nil {
		t.Errorf("the events do not fold: %v", err)
	}
}
