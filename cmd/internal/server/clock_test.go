package server

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// TestAClockSetAheadRaisesTheAlarm: the server is not ready, reports by how much the clock is ahead and the next step, and
// is ready again once the clock is corrected or accepted.
func TestAClockSetAheadRaisesTheAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged streamtest.Buffer
		var ahead atomic.Int64
		var current atomic.Pointer[settings.Settings]
		current.Store(&settings.Settings{ClockTolerance: wall.DefaultTolerance})
		log := slog.New(slog.NewTextHandler(&logged, nil))
		began := time.Now()
		s := &server{
			opts: Options{Clock: wall.Options{
				Wall:   func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) },
				Steady: func() time.Duration { return time.Since(began) },
			}}.withDefaults(),
			log: log, group: newGroup(log, time.Minute), health: &health{}, metrics: newMetrics("test"),
		}
		streamtest.Must(t, s.guardClock(current.Load))
		defer s.group.stop()
		look := func() { // after the clock was read again
			<-time.After(clockEvery)
			synctest.Wait()
		}
		gauge := func() string {
			families, err := s.metrics.registry.Gather()
			streamtest.Must(t, err)
			for _, f := range families {
				if f.GetName() == "scrip_clock_step_seconds" {
					return fmt.Sprintf("%.0f", f.GetMetric()[0].GetGauge().GetValue())
				}
			}
			return "none"
		}
		if synctest.Wait(); !s.health.good() {
			t.Fatal("not ready at the start")
		}
		ahead.Store(int64(2 * time.Hour))
		look()
		check := s.health.readiness().Checks["clock"]
		if text := fmt.Sprint(check.Detail); check.OK || !check.Needed || !strings.Contains(text, "2h0m0s ahead") || !strings.Contains(text, "scrip config set clock.accepted now") {
			t.Errorf("/readyz: %+v", check)
		}
		if got := gauge(); got != "7200" || strings.Count(logged.String(), "set 2h0m0s ahead") != 1 {
			t.Errorf("the gauge is %s, the log:\n%s", got, logged.String())
		}
		ahead.Store(0)
		look()
		if got := gauge(); !s.health.good() || got != "0" || strings.Count(logged.String(), "clock is used again") != 1 {
			t.Errorf("the clock is right again: ready %v, the gauge is %s, the log:\n%s", s.health.good(), got, logged.String())
		}
		// The command that the alarm names ends it.
		ahead.Store(int64(time.Hour))
		look()
		if s.health.good() {
			t.Error("ready although the clock is an hour ahead")
		}
		current.Store(&settings.Settings{ClockTolerance: wall.DefaultTolerance, ClockAccepted: s.opts.Clock.Wall()})
		look()
		if !s.health.good() {
			t.Error("not ready although the clock is accepted")
		}
	})
}
