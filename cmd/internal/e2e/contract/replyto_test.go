package contract

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
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
	s := e2e.NewServer(t, "--nats", srv.URL("server"), "--lanes", "1", "--roles", "lanes,scheduler,api")
	s.Up()
	r := &rig{desc: s.Desc, nc: streamtest.Connect(t, srv.URL("server"))}
	r.create(t, "summer", `"codes":100000`)
	code := r.claim(t, "summer", "ann")
	users := map[string]*nats.Conn{"shop": streamtest.Connect(t, srv.URL("shop")), "support": streamtest.Connect(t, srv.URL("support"))}

	// A reply subject of the JetStream API is refused by NATS, since 2.15.3; one in a header is not.
	targets := []string{"scrip.evt.0", "scrip.rmd.0", "$KV.SCRIP_LEASE.lease.lane.0"}
	sent := map[string]int{}
	for _, c := range []struct {
		user, place, subject, body string
		times                      int
	}{
		{"shop", "request", "scrip.claim.summer", `{"customer_id":"#"}`, 40},
		{"shop", "request", "scrip.claim.summer", `not JSON`, 1},
		// More than wait for lanes at once: beyond that the answer is an error. All of them together fit into the endpoint's share
		// of what waits unparsed: what does not fit is dropped before it is counted.
		{"shop", "request", "scrip.coupon.validate", `{"code":"` + code + `"}`, 300},
		{"support", "request", "scrip.coupon.show", `{"code":"` + code + `"}`, 10},
		{"shop", "discovery", "$SRV.INFO.scrip", "", 2},
		{"support", "discovery", "$SRV.STATS.scrip", "", 2},
		{"support", "rollcall", "scrip.rollcall", "", 2},
		{"support", "query", "scrip.lane.0.query", `{"query":"campaign.list"}`, 2},
		// On this server scrip does the mapping itself: passing such a message on would bring the PubAck to the event log.
		{"shop", "forward", "scrip.cmd.summer", `{"id":"#","type":"claim","customer_id":"#"}`, 2},
	} {
		for _, target := range targets {
			for i := range c.times {
				text := strings.ReplaceAll(c.body, "#", fmt.Sprintf("%s-%s-%d", c.place, target, i))
				if err := users[c.user].PublishRequest(c.subject, target, []byte(text)); err != nil {
					t.Fatal(err)
				}
				sent[c.place]++
			}
		}
	}
	// The subject for outcomes is such a one, too. This command is done: it has an acknowledgement.
	for _, target := range append(targets, "$JS.API.STREAM.DELETE.SCRIP_EVT_0", "$JS.API.STREAM.PURGE.SCRIP_CMD_0") {
		r.publish(t, &nats.Msg{Subject: "scrip.cmd.summer", Header: nats.Header{"Scrip-Reply": {target}}, Data: []byte(claimLine("bob", "bob"))})
		sent["outcome"]++
	}
	streamtest.Eventually(t, "all are counted", func() bool {
		counts := map[string]int{}
		for line := range strings.Lines(r.metrics(t)) {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), `scrip_replies_refused_total{place="`); ok {
				place, value, _ := strings.Cut(rest, `"} `)
				counts[place], _ = strconv.Atoi(value) // 0 is compared, too
			}
		}
		for place, n := range sent {
			if counts[place] != n {
				return false
			}
		}
		return true
	})
	// A request with an inbox is answered after them, by an owner that never lost its lane.
	if again := r.claim(t, "summer", "ann"); again != code {
		t.Errorf("%s has become %s", code, again)
	}
	if answer := r.request(t, "scrip.campaign.show", `{"campaign":"summer"}`); !bytes.Contains(answer, []byte(`"claimed":2,`)) {
		t.Errorf("claims whose reply was refused had an effect: %s", answer)
	}
	r.eachEvent(t, 0, func(seq uint64, msg *nats.RawStreamMsg) {
		if msg.Header.Get("Scrip-Owner") == "" {
			t.Errorf("event message %d was written by no owner: %v %s", seq, msg.Header, msg.Data)
		}
	})
	if n := r.stream(t, "SCRIP_RMD_0").State.Msgs; n != 0 {
		t.Errorf("the reminder stream has %d messages", n)
	}
	if strings.Contains(r.metrics(t), `scrip_lane_lost_total{lane="0"}`) {
		t.Errorf("the lane was lost")
	}
}

// metrics is what the server shows Prometheus.
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
