package contract

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestRepliesGoToInboxesOnly: users with the least rights that their work needs name a reply subject where they may not
// publish. Nothing is published there with the server's rights, and their requests have no effect.
func TestRepliesGoToInboxesOnly(t *testing.T) {
	t.Parallel()
	srv := streamtest.StartUsers(t,
		streamtest.User{Name: "server"},
		streamtest.User{Name: "shop", Subscribe: []string{"_INBOX.>"},
			Publish: []string{"scrip.claim.*", "scrip.coupon.validate", "scrip.cmd.*", "$SRV.INFO.scrip"}},
		streamtest.User{Name: "support", Subscribe: []string{"_INBOX.>"},
			Publish: []string{"scrip.coupon.show", "scrip.rollcall", "scrip.lane.*.query", "$SRV.STATS.scrip"}},
	)
	r := serve(t, projtest.Dir(t), []string{"--nats", srv.URL("server"), "--lanes", "1", "--roles", withoutTables}, nil)
	js, err := jetstream.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	r.create(t, "summer", `"codes":100000`)
	code := r.claim(t, "summer", "ann")
	connect := func(user string) *nats.Conn {
		nc, err := nats.Connect(srv.URL(user))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	shop, support := connect("shop"), connect("support")

	// Directly it is not allowed, so what follows is about replies.
	denied := make(chan error, 1)
	shop.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })
	if err := errors.Join(shop.Publish("scrip.evt.0", []byte("x")), shop.Flush()); err != nil {
		t.Fatal(err)
	}
	if err := <-denied; !errors.Is(err, nats.ErrPermissionViolation) {
		t.Fatalf("publishing an event was answered %v", err)
	}

	targets := []string{"scrip.evt.0", "scrip.rmd.0", "$KV.SCRIP_LEASE.lease.lane.0", "$JS.API.STREAM.DELETE.SCRIP_EVT_0", "$JS.API.STREAM.PURGE.SCRIP_CMD_0"}
	before := r.refusedReplies(t)
	sent := make(map[string]int)
	request := func(nc *nats.Conn, place, subject, body string, times int) {
		for _, target := range targets {
			for i := range times {
				text := strings.ReplaceAll(body, "#", fmt.Sprintf("%s-%s-%d", place, target, i))
				if err := nc.PublishRequest(subject, target, []byte(text)); err != nil {
					t.Fatal(err)
				}
				sent[place]++
			}
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	request(shop, "request", "scrip.claim.summer", `{"customer_id":"#"}`, 40)
	request(shop, "request", "scrip.claim.summer", `not JSON`, 1)
	// More than wait for lanes at once: beyond that the answer is an error.
	request(shop, "request", "scrip.coupon.validate", `{"code":"`+code+`"}`, 1500)
	request(support, "request", "scrip.coupon.show", `{"code":"`+code+`"}`, 10)
	request(shop, "discovery", "$SRV.INFO.scrip", "", 2)
	request(support, "discovery", "$SRV.STATS.scrip", "", 2)
	request(support, "rollcall", "scrip.rollcall", "", 2)
	request(support, "query", "scrip.lane.0.query", `{"query":"campaign.list"}`, 2)
	// On this server scrip does the mapping itself: passing such a message on would bring the PubAck to the event log.
	request(shop, "forward", "scrip.cmd.summer", claimLine("#", "#"), 2)

	eventually(t, "all are counted", func() bool {
		now := r.refusedReplies(t)
		for place, n := range sent {
			if int(now[place]-before[place]) != n {
				return false
			}
		}
		return true
	})
	// A request with an inbox is answered behind them, by an owner that never lost its lane.
	if again := r.claim(t, "summer", "ann"); again != code {
		t.Errorf("%s has become %s", code, again)
	}
	answer := r.request(t, "scrip.campaign.show", `{"campaign":"summer"}`)
	if !bytes.Contains(answer, []byte(`"claimed":1,`)) {
		t.Errorf("claims whose reply was refused had an effect: %s", answer)
	}
	events, err := js.Stream(t.Context(), "SCRIP_EVT_0")
	if err != nil {
		t.Fatal(err)
	}
	for sequence := uint64(1); sequence <= events.CachedInfo().State.LastSeq; sequence++ {
		msg, err := events.GetMsg(t.Context(), sequence)
		if err != nil {
			t.Fatal(err)
		}
		if msg.Header.Get("Scrip-Owner") == "" {
			t.Errorf("event message %d was written by no owner: %v %s", sequence, msg.Header, msg.Data)
		}
	}
	if reminders, err := js.Stream(t.Context(), "SCRIP_RMD_0"); err != nil || reminders.CachedInfo().State.Msgs != 0 {
		t.Errorf("the reminder stream: %v", err)
	}
	if text := r.metrics(t); !strings.Contains(text, `scrip_lane_commands_total{lane="0"}`) || strings.Contains(text, `scrip_lane_lost_total{lane="0"}`) {
		t.Errorf("the lane was lost")
	}
	lease, err := js.KeyValue(t.Context(), "SCRIP_LEASE")
	if err != nil {
		t.Fatal(err)
	}
	if entry, err := lease.Get(t.Context(), "lease.lane.0"); err != nil || bytes.Contains(entry.Value(), []byte(`"status"`)) {
		t.Errorf("the lease is %v", err)
	}
}

// refusedReplies are the requests that were dropped so far because of their reply subject, by place.
func (r *rig) refusedReplies(t *testing.T) map[string]float64 {
	t.Helper()
	counts := make(map[string]float64)
	for line := range strings.Lines(r.metrics(t)) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), `scrip_replies_refused_total{place="`)
		if !ok {
			continue
		}
		place, value, _ := strings.Cut(rest, `"} `)
		var v float64
		if _, err := fmt.Sscan(value, &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		counts[place] = v
	}
	return counts
}

// metrics is what the server tells Prometheus.
func (r *rig) metrics(t *testing.T) string {
	t.Helper()
	resp, err := http.Get(r.desc.HTTPURL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
