package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// TestAClockSetAheadRaisesTheAlarm: the server is not ready, reports by how much the clock is ahead and the next step, and
// is ready again once the clock is corrected.
func TestAClockSetAheadRaisesTheAlarm(t *testing.T) {
	ns := streamtest.Start(t)
	store, err := settings.Open(t.Context(), ns.JetStream(t), settings.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var logged streamtest.Buffer
	var ahead atomic.Int64
	log := slog.New(slog.NewTextHandler(&logged, nil))
	began := time.Now()
	s := &server{
		opts: Options{Clock: wall.Options{
			Wall:   func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) },
			Steady: func() time.Duration { return time.Since(began) },
		}}.withDefaults(),
		log: log, group: newGroup(log, time.Minute), health: &health{}, metrics: newMetrics("test"), config: store.Watch(),
	}
	s.group.start("config", s.config.Run)
	if err := s.startClock(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer s.group.stop()
	if !s.health.good() {
		t.Fatal("not ready at the start")
	}
	step := func() string {
		families, err := s.metrics.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "scrip_clock_step_seconds" {
				return fmt.Sprintf("%.0f", f.GetMetric()[0].GetGauge().GetValue())
			}
		}
		return "none"
	}
	ahead.Store(int64(2 * time.Hour))
	check := s.health.readiness().Checks["clock"]
	if text := fmt.Sprint(check.Detail); check.OK || !check.Needed || !strings.Contains(text, "2h0m0s ahead") || !strings.Contains(text, "scrip config set clock.accepted now") {
		t.Errorf("/readyz: %+v", check)
	}
	if got := step(); got != "7200" {
		t.Errorf("the gauge is %s", got)
	}
	streamtest.Eventually(t, "the alarm is logged", func() bool { return strings.Contains(logged.String(), "set 2h0m0s ahead") })
	ahead.Store(0)
	streamtest.Eventually(t, "the end of the alarm is logged", func() bool { return strings.Contains(logged.String(), "clock is used again") })
	if got := step(); !s.health.good() || got != "0" {
		t.Errorf("the clock is right again: ready %v, the gauge is %s", s.health.good(), got)
	}

	// The command that the alarm names ends it.
	ahead.Store(int64(time.Hour))
	if s.health.good() {
		t.Error("ready although the clock is an hour ahead")
	}
	if _, err := store.Set(t.Context(), "clock.accepted", s.opts.Clock.Wall().Format(time.RFC3339Nano), "ann"); err != nil {
		t.Fatal(err)
	}
	streamtest.Eventually(t, "the clock is accepted", s.health.good)
}
