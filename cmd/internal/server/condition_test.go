package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// watched is a log, and a server that watches it.
func watched(t *testing.T, js jetstream.JetStream, replicas int) (*condition, *streamtest.Buffer) {
	t.Helper()
	stream, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, Replicas: replicas, KeyFingerprint: "k", CmdMaxBytes: 1 << 20})
	streamtest.Must(t, err)
	log := &streamtest.Buffer{}
	return &condition{s: &server{log: slog.New(slog.NewTextHandler(log, nil)), stream: stream}, js: js}, log
}

// gauges are the metrics of a condition, "name{label} value" each, without streams that are empty.
func gauges(t *testing.T, c *condition) string {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	all, err := r.Gather()
	streamtest.Must(t, err)
	var text []string
	for _, family := range all {
		for _, m := range family.Metric {
			line := family.GetName()
			for _, l := range m.Label {
				line += "{" + l.GetValue() + "}"
			}
			if family.GetName() == "scrip_log_stream_full" && m.GetGauge().GetValue() == 0 {
				continue
			}
			text = append(text, fmt.Sprint(line, " ", m.GetGauge().GetValue()))
		}
	}
	return strings.Join(text, ", ")
}

// What others change while a server runs is red in readiness, in metrics and once in the log, until it is put right; what it has
// removed stays so.
func TestAStreamThatLosesMessagesIsSeen(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	c, log := watched(t, js, 1)
	if ok, detail := c.checkLog(); ok || !strings.Contains(fmt.Sprint(detail), "not read yet") || gauges(t, c) != "" {
		t.Errorf("before the first look: %v %v %s", ok, detail, gauges(t, c))
	}
	edit := func(change func(*jetstream.StreamConfig)) {
		t.Helper()
		s, err := js.Stream(t.Context(), topology.EvtStream(0))
		streamtest.Must(t, err)
		config := s.CachedInfo().Config
		change(&config)
		_, err = js.UpdateStream(t.Context(), config)
		streamtest.Must(t, err)
		for range 2 {
			c.look(t.Context())
		}
	}
	expect := func(good bool, metrics string, lines ...string) {
		t.Helper()
		ok, detail := c.checkLog()
		var shown struct{ Endangered map[string][]string }
		if ok != good || !(status.Result{Detail: detail}).Detailed(&shown) || len(shown.Endangered) > 0 == good {
			t.Errorf("readiness: %v, %v", ok, detail)
		}
		streamtest.Equal(t, "metrics", gauges(t, c), metrics)
		text := log.String()
		for _, line := range lines {
			if strings.Count(text, line) != 1 {
				t.Errorf("%d lines with %q in\n%s", strings.Count(text, line), line, text)
			}
		}
	}
	for range 20 {
		_, err := js.Publish(t.Context(), topology.Evt(0), []byte("{}"))
		streamtest.Must(t, err)
	}
	edit(func(*jetstream.StreamConfig) {})
	expect(true, "scrip_log_endangered 0, scrip_log_settings_differ 0")
	streamtest.Equal(t, "the log of a server", log.String(), "")
	edit(func(c *jetstream.StreamConfig) { c.AllowDirect = true })
	expect(true, "scrip_log_endangered 0, scrip_log_settings_differ 1", `level=WARN msg="`+differs)
	edit(func(c *jetstream.StreamConfig) { c.AllowDirect, c.MaxMsgs, c.Discard = false, 10, jetstream.DiscardOld })
	expect(false, "scrip_log_endangered 1, scrip_log_settings_differ 0, scrip_log_stream_full{SCRIP_EVT_0} 1", `level=ERROR msg="the log is in danger; put its settings back at once" because="stream SCRIP_EVT_0: max_msgs is 10`, "begins at message 11")
	edit(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = -1, jetstream.DiscardNew })
	expect(false, "scrip_log_endangered 1, scrip_log_settings_differ 0", "not in danger by this any more\" because=\"stream SCRIP_EVT_0: max_msgs")

	stream, err := js.Stream(t.Context(), topology.EvtStream(0))
	streamtest.Must(t, err)
	streamtest.Must(t, js.DeleteStream(t.Context(), topology.EvtStream(0)))
	_, err = js.CreateStream(t.Context(), stream.CachedInfo().Config)
	streamtest.Must(t, err)
	edit(func(*jetstream.StreamConfig) {})
	expect(false, "scrip_log_endangered 1, scrip_log_settings_differ 0", "stream SCRIP_EVT_0 had 20 messages and ends at 0")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	c.look(ended)
	expect(false, "scrip_log_endangered 1") // a danger that was seen lasts while nothing can be read
}

// A node that is away is named with what to do, and has a gauge; nodes whose copies are complete have 0.
func TestANodeWithoutItsCopiesIsSeen(t *testing.T) {
	c, log := watched(t, streamtest.Start(t).JetStream(t), 1)
	c.look(t.Context())
	if ok, _ := c.checkNodes(); !ok {
		t.Error("a server alone lags")
	}
	c.known, c.now = true, topology.Condition{Lag: map[string]uint64{"n1": 0, "n3": 1966}}
	ok, detail := c.checkNodes()
	if text := fmt.Sprint(detail); ok || !strings.Contains(text, "copies of the log on n3 lack 1966 messages: restart that nats-server") {
		t.Errorf("%v %s", ok, text)
	}
	streamtest.Equal(t, "metrics", gauges(t, c), "scrip_log_endangered 0, scrip_log_settings_differ 0, scrip_nats_node_lag{n1} 0, scrip_nats_node_lag{n3} 1966")
	c.look(t.Context())
	if !strings.Contains(log.String(), "complete again\" node=n3") {
		t.Errorf("the log is %s", log.String())
	}
}
