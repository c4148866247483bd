package settings

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// ann is a person with the credentials of the data directory.
var ann = access.Author{Principal: access.Principal{Name: "ann@ops", Role: access.Operator}}

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

func open(t *testing.T, js jetstream.JetStream) *Store {
	t.Helper()
	s, err := Open(t.Context(), js, Options{Logger: streamtest.Logger(t)})
	streamtest.Must(t, err)
	return s
}

func set(t *testing.T, s *Store, setting, value string) Change {
	t.Helper()
	c, err := s.Set(t.Context(), PatchOf(setting, value).Flat(), nil, ann)
	if err != nil {
		t.Fatalf("setting %s to %s: %v", setting, value, err)
	}
	return c[0]
}

func history(t *testing.T, s *Store) []Change {
	t.Helper()
	all, err := s.History(t.Context())
	streamtest.Must(t, err)
	return all
}

// watch runs a Live until the test ends.
func watch(t *testing.T, s *Store) *Live {
	t.Helper()
	l := s.Watch()
	streamtest.Background(t, l.Run)
	return l
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

// measures checks what is measured.
func measures(t *testing.T, l *Live, revision, ignored float64) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(l)
	families, err := r.Gather()
	streamtest.Must(t, err)
	got := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	if len(got) != 2 || got["scrip_config_revision"] != revision || got["scrip_config_ignored_total"] != ignored {
		t.Errorf("measured %v, want %v and %v ignored", got, revision, ignored)
	}
}
