package lane_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// TestAClockThatJumpsAheadExpiresNothing: the machine's clock, which the embedded NATS server stamps commands with, is set
// two hours ahead. The lane waits, and goes on when the clock is put right, or when operators accept it.
func TestAClockThatJumpsAheadExpiresNothing(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		t.Run(fmt.Sprint("accepted ", accepted), func(t *testing.T) {
			r := newRig(t)
			d := &dial{now: settings.Default(), changed: make(chan struct{})}
			o := r.options()
			o.Config = d
			// NATS stamps with the real clock, so what is two hours behind is the steady one.
			var jumped atomic.Int64
			began := time.Now()
			clock := wall.New(wall.Options{
				Wall:   func() time.Time { return time.Now().Round(0) },
				Steady: func() time.Duration { return time.Since(began) - time.Duration(jumped.Load()) },
				Tolerance: func() time.Duration {
					now, _ := d.Current()
					return now.ClockTolerance
				},
			})
			o.Now = clock.Now
			run := r.up(r.start(o))
			r.one(create("c", 10, fmt.Sprintf(`,"expires_at":%q`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))))
			jumped.Store(int64(2 * time.Hour))
			_, expire := r.send(topology.LaneDue(0), fmt.Sprintf(`{"id":"e","type":"expire","campaign":"c","through":%q}`, time.Now().UTC().Format(time.RFC3339)))
			_, sub := r.send(topology.LaneCmd(0), claim("c", "alice"))
			streamtest.Eventually(t, "the lane waits", func() bool { return run.Status().State == lane.StateWaiting })
			if _, events := r.events(); len(events) != 1 {
				t.Fatalf("while the lane waits: %v", events)
			}
			if accepted {
				s := settings.Default()
				s.ClockTolerance = 3 * time.Hour
				d.set(s)
			} else {
				jumped.Store(0)
			}
			r.answers(expire)
			if out := r.answers(sub)[0]; out.Status != wire.StatusClaimed {
				t.Fatalf("claim after the clocks agree: %+v", out)
			}
		})
	}
}

// TestAGapAtTheStartIsReported: the machine was off for long, or its clock is wrong.
func TestAGapAtTheStartIsReported(t *testing.T) {
	r := newRig(t)
	o := r.options()
	run := r.up(r.start(o))
	r.one(create("c", 10, ""))
	if err := run.stop(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		ahead time.Duration
		want  string
	}{{26 * time.Hour, "is long ago"}, {-26 * time.Hour, "is in the future"}, {0, ""}} {
		var logged streamtest.Buffer
		metrics := prometheus.NewRegistry()
		o := r.options()
		o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		o.Metrics = lane.NewMetrics(metrics)
		o.Now = func() time.Time { return time.Now().Add(tc.ahead) }
		run := r.up(r.start(o))
		streamtest.Eventually(t, "it is reported", func() bool { return strings.Contains(logged.String(), "lane taken") })
		for _, text := range []string{"is long ago", "is in the future"} {
			if got := strings.Contains(logged.String(), text); got != (text == tc.want) {
				t.Errorf("%s ahead: %q is logged: %v\n%s", tc.ahead, text, got, logged.String())
			}
		}
		gathered, err := metrics.Gather()
		var gaps []float64
		for _, f := range gathered {
			if f.GetName() == "scrip_lane_clock_gap_seconds" {
				gaps = append(gaps, f.GetMetric()[0].GetGauge().GetValue())
			}
		}
		if err != nil || len(gaps) != 1 || (time.Duration(gaps[0])*time.Second-tc.ahead).Abs() > time.Minute {
			t.Errorf("%s ahead: the gauge is %v (%v)", tc.ahead, gaps, err)
		}
		if err := run.stop(); err != nil {
			t.Fatal(err)
		}
	}
}
