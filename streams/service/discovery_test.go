package service

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestAllEndpointsShareOneBudget: what waits unparsed is bounded over all endpoints together, also where messages are
// small, and none is left without room for a message of the largest size.
func TestAllEndpointsShareOneBudget(t *testing.T) {
	bytes, messages := 0, 0
	for i := range endpoints {
		m, b := endpoints[i].pendingLimits()
		if b < 9<<17 || m < 9<<7 {
			t.Errorf("%s has room for %d messages and %d bytes only", endpoints[i].name, m, b)
		}
		bytes, messages = bytes+2*b, messages+2*m
	}
	if bytes > 256<<20 || messages > 256<<10 {
		t.Errorf("%d bytes and %d messages may wait", bytes, messages)
	}
}

// TestDiscovery: each verb is answered to all services, those of the name, and the instance. Metrics count the same requests.
func TestDiscovery(t *testing.T) {
	r := newRig(t)
	s, _ := r.serve(t, Options{Version: "1.2.3", Sync: "always"})
	for _, body := range []string{`{"customer_id":"c"}`, `{}`} {
		r.outcome(t, "scrip.claim.summer", body)
	}
	ask := func(into any, subject string) {
		t.Helper()
		streamtest.Must(t, json.Unmarshal(r.request(t, subject, "").Data, into))
	}
	var ping micro.Ping
	if ask(&ping, "$SRV.PING"); ping.Type != micro.PingResponseType || ping.ID == "" {
		t.Fatalf("%+v", ping)
	}
	var info micro.Info
	ask(&info, "$SRV.INFO.scrip."+ping.ID)
	if info.Type != micro.InfoResponseType || info.ID != ping.ID || info.Version != "1.2.3" || len(info.Endpoints) != len(endpoints) {
		t.Errorf("%+v", info)
	}
	if want := map[string]string{"log": r.owner.Log.UUID, "lanes": "2", "version": "1.2.3", "sync": "always"}; !maps.Equal(info.Metadata, want) {
		t.Errorf("metadata %v", info.Metadata)
	}
	for _, e := range info.Endpoints {
		want := map[string]string{"redeem": "1000", "coupon-validate": "1000", "claim": "1000", "coupon-show": "", "access-create": ""}
		if lines, known := want[e.Name]; known && e.Metadata["lines"] != lines {
			t.Errorf("%s takes %q lines", e.Name, e.Metadata["lines"])
		}
	}
	var stats micro.Stats
	ask(&stats, "$SRV.STATS.scrip")
	claim := slices.IndexFunc(stats.Endpoints, func(e *micro.EndpointStats) bool { return e.Name == "claim" })
	if stats.Type != micro.StatsResponseType || len(stats.Endpoints) != len(endpoints) || claim < 0 {
		t.Fatalf("%+v", stats)
	}
	// The second request was started after the first one's end.
	if e := stats.Endpoints[claim]; e.NumRequests < 1 || e.NumRequests > 2 || e.AverageProcessingTime <= 0 {
		t.Errorf("%+v", e)
	}
	found := gathered(t, s)
	if found["scrip_requests_total claim done"] != 1 || found["scrip_requests_total claim refused"] != 1 || found["scrip_command_lines_total"] != 1 {
		t.Errorf("metrics %v", found)
	}
}

// gathered are a service's counters by name and labels.
func gathered(t *testing.T, s *Service) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	streamtest.Must(t, err)
	found := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			key := f.GetName()
			for _, l := range m.Label {
				key += " " + l.GetValue()
			}
			found[key] = m.GetCounter().GetValue()
		}
	}
	return found
}

// TestAFloodOnOneEndpointDropsItsOwnRequests, counts them, and leaves the others alone.
func TestAFloodOnOneEndpointDropsItsOwnRequests(t *testing.T) {
	r := newRig(t)
	s, _ := r.serve(t, Options{})
	i := slices.IndexFunc(endpoints, func(e endpoint) bool { return e.subject == "scrip.coupon.show" })
	messages, _ := endpoints[i].pendingLimits()
	dropped := make(chan error, 1<<10)
	s.nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { dropped <- err })
	s.mu.Lock() // queries are blocked
	for range messages + 100 {
		streamtest.Must(t, r.conn.Publish("scrip.coupon.show", []byte(`{"code":"AAAA-BBBB-CCCC"}`)))
	}
	in := s.in
	if err := <-dropped; !errors.Is(err, nats.ErrSlowConsumer) || in.dropped(i) == 0 {
		t.Errorf("%d are dropped, %v", in.dropped(i), err)
	}
	if waiting, bytes, err := in.subs[2*i].Pending(); err != nil || waiting > messages || bytes > 5<<20 {
		t.Errorf("%d requests with %d bytes wait, %v", waiting, bytes, err)
	}
	if out := r.outcome(t, "scrip.claim.summer", `{"customer_id":"c"}`); out.Status != wire.StatusClaimed {
		t.Errorf("a claim at that time: %+v", out)
	}
	s.mu.Unlock()
	for key, n := range gathered(t, s) {
		if of, is := strings.CutPrefix(key, "scrip_requests_dropped_total "); is && (n > 0) != (of == endpoints[i].name) {
			t.Errorf("%s dropped %v", of, n)
		}
	}
}
