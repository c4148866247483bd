package service

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestAllEndpointsShareOneBudget: what waits unparsed is bounded over all endpoints together, also where messages are
// small, and none is left without room for a message of the largest size.
func TestAllEndpointsShareOneBudget(t *testing.T) {
	bytes, messages := 0, 0
	for i := range endpoints {
		m, b := endpoints[i].pendingLimits()
		if b < 3<<19 || m < 3<<9 {
			t.Errorf("%s has room for %d messages and %d bytes only", endpoints[i].name, m, b)
		}
		bytes, messages = bytes+2*b, messages+2*m
	}
	if bytes > 256<<20 || messages > 256<<10 {
		t.Errorf("%d bytes and %d messages may wait", bytes, messages)
	}
}

// TestDiscovery: each verb is answered to all services, those of the name, and the instance.
func TestDiscovery(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{Version: "1.2.3"})
	r.outcome(t, "scrip.claim.summer", `{"customer_id":"c"}`)
	var ping micro.Ping
	if err := json.Unmarshal(r.request(t, "$SRV.PING", "").Data, &ping); err != nil || ping.Type != micro.PingResponseType || ping.ID == "" {
		t.Fatalf("%+v, %v", ping, err)
	}
	var info micro.Info
	if err := json.Unmarshal(r.request(t, "$SRV.INFO.scrip."+ping.ID, "").Data, &info); err != nil || info.Type != micro.InfoResponseType || info.ID != ping.ID {
		t.Errorf("%+v, %v", info, err)
	}
	streamtest.Eventually(t, "the claim is in the statistics", func() bool {
		var stats micro.Stats
		if err := json.Unmarshal(r.request(t, "$SRV.STATS.scrip", "").Data, &stats); err != nil || stats.Type != micro.StatsResponseType {
			t.Fatalf("%+v, %v", stats, err)
		}
		claim := slices.IndexFunc(stats.Endpoints, func(e *micro.EndpointStats) bool { return e.Name == "claim" })
		return len(stats.Endpoints) == len(endpoints) && claim >= 0 && stats.Endpoints[claim].NumRequests == 1 && stats.Endpoints[claim].AverageProcessingTime > 0
	})
}

// TestNoErrorHasAnEmptyBody: an empty message is what several JetStream APIs take as a request.
func TestNoErrorHasAnEmptyBody(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{})
	reply := r.request(t, "scrip.campaign.show", `{"campaign":"summer"}`) // the lane has no owner that answers queries
	if reply.Header.Get(micro.ErrorCodeHeader) != "503" || !json.Valid(reply.Data) {
		t.Errorf("%v %q", reply.Header, reply.Data)
	}
}

// TestTheForwarderPassesOnKnownHeaders, and no message whose PubAck would go elsewhere than to an inbox.
func TestTheForwarderPassesOnKnownHeaders(t *testing.T) {
	server := streamtest.Start(t)
	f := forwarder(t, server.Conn(t))
	conn := server.Conn(t)
	got := make(chan *nats.Msg, 16)
	if _, err := conn.ChanSubscribe("scrip.lane.*.cmd.*", got); err != nil {
		t.Fatal(err)
	}
	send := func(reply string) {
		msg := nats.NewMsg(topology.CmdSubject("summer"))
		msg.Reply, msg.Data = reply, []byte("x")
		for _, name := range []string{topology.HeaderReply, HeaderTimeout, "Scrip-Trace", nats.MsgIdHdr, "Other", "Nats-TTL", "Nats-Rollup"} {
			msg.Header.Set(name, "1s")
		}
		msg.Header.Set("Nats-Trace-Dest", "scrip.evt.0")
		if err := conn.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	for i, reply := range []string{"scrip.evt.0", "_INBOX.mine", ""} {
		send(reply)
		if i == 0 {
			continue
		}
		select {
		case m := <-got:
			if m.Reply != reply || len(m.Header) != 4 || m.Header.Get(topology.HeaderReply) != "1s" || m.Header.Get(nats.MsgIdHdr) != "1s" {
				t.Errorf("forwarded with reply %q and %v", m.Reply, m.Header)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the message with reply %q was not forwarded", reply)
		}
	}
	streamtest.Eventually(t, "two are forwarded", func() bool { return f.Forwarded() == 2 })
}

// TestAFloodOnOneEndpointDropsItsOwnRequests, counts them, and leaves the others alone.
func TestAFloodOnOneEndpointDropsItsOwnRequests(t *testing.T) {
	r := newRig(t)
	s, _ := r.serve(t, Options{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	i := slices.IndexFunc(endpoints, func(e endpoint) bool { return e.subject == "scrip.coupon.show" })
	messages, _ := endpoints[i].pendingLimits()
	s.mu.Lock() // queries are blocked
	for range messages + 100 {
		if err := r.conn.Publish("scrip.coupon.show", []byte(`{"code":"AAAA-BBBB-CCCC"}`)); err != nil {
			t.Fatal(err)
		}
	}
	in := s.in
	streamtest.Eventually(t, "some are dropped", func() bool { return in.dropped(i) > 0 })
	if waiting, bytes, err := in.serving[i][0].Pending(); err != nil || waiting > messages || bytes > 5<<20 {
		t.Errorf("%d requests with %d bytes wait, %v", waiting, bytes, err)
	}
	if out := r.outcome(t, "scrip.claim.summer", `{"customer_id":"c"}`); out.Status != wire.StatusClaimed {
		t.Errorf("a claim meanwhile: %+v", out)
	}
	s.mu.Unlock()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "scrip_requests_dropped_total" {
			continue
		}
		for _, m := range f.Metric {
			if of := m.Label[0].GetValue(); (m.GetCounter().GetValue() > 0) != (of == endpoints[i].name) {
				t.Errorf("%s dropped %v", of, m.GetCounter().GetValue())
			}
		}
		return
	}
	t.Error("nothing is counted")
}
