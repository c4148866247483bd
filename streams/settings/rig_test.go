package settings

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	mostAhead = changelog.MostAhead
	keyPrefix = "change."
)

var (
	changeKey     = changelog.Key
	growsOnly     = topology.GrowsOnly
	subjectPrefix = topology.Settings.Subject("")
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

// connects is what a single server and a cluster have in common.
type connects interface {
	JetStream(testing.TB, ...nats.Option) jetstream.JetStream
}

// onBoth runs a test on one server and on a cluster: creations that meet answer differently there.
func onBoth(t *testing.T, test func(t *testing.T, to connects, replicas int)) {
	t.Run("R1", func(t *testing.T) { test(t, streamtest.Start(t), 1) })
	t.Run("R3", func(t *testing.T) { test(t, streamtest.StartCluster(t), 3) })
}

func open(t *testing.T, js jetstream.JetStream, replicas int) *Store {
	t.Helper()
	s, err := Open(t.Context(), js, Options{Replicas: replicas, Logger: streamtest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func set(t *testing.T, s *Store, setting, value string) Change {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c, err := s.Set(ctx, setting, value, "ann@ops")
	if err != nil {
		t.Fatalf("setting %s to %s: %v", setting, value, err)
	}
	return c
}

func history(t *testing.T, s *Store) []Change {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	all, err := s.History(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// byHand writes what Set never would.
func byHand(t *testing.T, js jetstream.JetStream, key, value string) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), topology.SettingsBucket)
	if err == nil {
		_, err = kv.Put(t.Context(), key, []byte(value))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// watch runs a Live until the test ends.
func watch(t *testing.T, s *Store) *Live {
	t.Helper()
	return run(t, s.Watch())
}

func run(t *testing.T, l *Live) *Live {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
	return l
}

func ready(t *testing.T, l *Live) {
	t.Helper()
	select {
	case <-l.Ready():
	case <-time.After(3 * time.Minute):
		t.Fatalf("the settings were not read: %+v", l.Status())
	}
}

// holds waits, by the channel of changes, until the settings in force are as wanted.
func holds(t *testing.T, l *Live, what string, fact func(*Settings) bool) {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		now, changed := l.Current()
		if fact(now) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("waited in vain: %s; %+v, %+v", what, now, l.Status())
		}
	}
}

// follows waits until the status shows that changes are received; it may be written after the last of them is in force.
func follows(t *testing.T, l *Live) {
	t.Helper()
	streamtest.Eventually(t, "the status shows that changes are received", func() bool {
		st := l.Status()
		return st.Following && st.Error == ""
	})
}

// batch is the setting that most tests change.
func batch(n int) (string, func(*Settings) bool) {
	return fmt.Sprintf("the batch is %d", n), func(s *Settings) bool { return s.ReminderBatch == n }
}

// metrics waits until what is measured is as wanted.
func metrics(t *testing.T, l *Live, revision uint64, ignored int) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(l)
	streamtest.Eventually(t, fmt.Sprintf("revision %d and %d ignored are measured", revision, ignored), func() bool {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		return len(got) == 2 && got["scrip_config_revision"] == float64(revision) && got["scrip_config_ignored_total"] == float64(ignored)
	})
}

func contains(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
