package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestTheLog reads every event stream as an analyst would: the headers of each step, the commands it covers without a
// gap, times that do not go backwards, and readable lines.
func TestTheLog(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":9`)
	r.claim(t, c, "ann")
	r.claim(t, c, "ann") // a repeat: a step without lines
	js, err := r.nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for lane := range r.desc.Lanes {
		next, before := uint64(1), time.Time{}
		empty := 0
		r.eachEvent(t, lane, func(seq uint64, msg *nats.RawStreamMsg) {
			if msg.Subject != fmt.Sprintf("scrip.evt.%d", lane) {
				t.Errorf("lane %d: message %d is on %s", lane, seq, msg.Subject)
			}
			var first, last uint64
			if n, err := fmt.Sscanf(msg.Header.Get("Scrip-Commands"), "%d-%d", &first, &last); n != 2 || err != nil || first != next || last < first {
				t.Fatalf("lane %d: message %d covers %q, want from %d on", lane, seq, msg.Header.Get("Scrip-Commands"), next)
			}
			next = last + 1
			if msg.Header.Get("Scrip-Format") != "1" || len(msg.Header.Get("Scrip-Seal")) != 43 || msg.Header.Get("Scrip-Owner") == "" {
				t.Errorf("lane %d: message %d has headers %v", lane, seq, msg.Header)
			}
			clock := headerTime(t, msg.Header, "Scrip-Time")
			if clock.Before(before) {
				t.Errorf("lane %d: time goes backwards at message %d, from %s to %s", lane, seq, before, clock)
			}
			if stored, err := js.GetMsg(fmt.Sprintf("SCRIP_CMD_%d", lane), last); err == nil { // else purged
				if at := headerTime(t, msg.Header, "Scrip-Command-Time"); !at.Truncate(time.Microsecond).Equal(stored.Time.Truncate(time.Microsecond)) {
					t.Errorf("lane %d: message %d has the time %s for its last command, the log has %s", lane, seq, at, stored.Time)
				}
			}
			for _, line := range lines(t, msg.Data) {
				event := parse(t, line)
				if at, _ := event["at"].(string); !isKind(at, "time") || instant(at).Before(before) || instant(at).After(clock) {
					t.Errorf("lane %d: message %d of %s has an event at %v", lane, seq, clock, event["at"])
				}
				if kind, _ := event["type"].(string); !slices.Contains(eventTypes, kind) {
					t.Errorf("lane %d: message %d has an event of type %q", lane, seq, kind)
				}
				if campaign, named := event["campaign"].(string); named && r.lane(campaign) != lane && event["type"] != "command.rejected" && event["type"] != "commands.refused" {
					t.Errorf("lane %d: message %d is about %s, which lives on lane %d", lane, seq, campaign, r.lane(campaign))
				}
			}
			if len(msg.Data) == 0 {
				empty++
			}
			before = clock
		})
		if lane == r.lane(c) && empty == 0 {
			t.Error("a repeat is answered after a step without lines; there is none")
		}
	}
}

// eachEvent reads the event messages that a lane has now.
func (r *rig) eachEvent(t *testing.T, lane int, f func(seq uint64, msg *nats.RawStreamMsg)) {
	t.Helper()
	js, err := r.nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	info := r.stream(t, fmt.Sprintf("SCRIP_EVT_%d", lane))
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		msg, err := js.GetMsg(info.Config.Name, seq)
		if err != nil {
			t.Fatal(err)
		}
		f(seq, msg)
	}
}

var eventTypes = []string{"campaign.created", "campaign.updated", "campaign.paused", "campaign.resumed", "campaign.ended", "campaign.sold_out", "codes.imported",
	"coupon.claimed", "coupon.redeemed", "coupon.rolled_back", "coupon.voided", "coupon.extended", "coupons.expired",
	"reminder.set", "reminder.cancelled", "reminders.due", "commands.refused", "command.rejected"}

func headerTime(t *testing.T, h nats.Header, name string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, h.Get(name))
	if err != nil || !strings.HasSuffix(h.Get(name), "Z") {
		t.Fatalf("%s is %q, want RFC 3339 in UTC", name, h.Get(name))
	}
	return at
}
