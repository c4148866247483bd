package settings

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/registry"
)

// Status is the state of a Live.
type Status = registry.Status

// Live is the settings in force, for one server. It is a Source, and a collector of metrics to register.
type Live struct {
	*registry.Live[*State, record]
	metrics []prometheus.Collector
	log     func(*registry.Change[record])

	mu      sync.Mutex // guards the fields below
	now     *Settings
	changed chan struct{}
}

// Watch returns the settings in force, which Run keeps current. Until it has read them, they are the defaults.
func (s *Store) Watch() *Live {
	l := &Live{now: s.defaults.clone(), changed: make(chan struct{})}
	l.Live = s.registry.Live(l.put)
	l.log = func(c *registry.Change[record]) {
		s.registry.Logger.Info("settings changed", "change", c.N, "settings", c.Record.String(), "by", c.By)
	}
	l.metrics = []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "scrip_config_revision", Help: "Revision of the last change of a run-time setting that this server has read; a server that differs from others for long does not receive changes."},
			func() float64 { return float64(l.Status().Revision) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "scrip_config_ignored_total", Help: "Changes of run-time settings that were read and are not in force, because they are not valid or of a newer version."},
			func() float64 { return float64(l.Status().Ignored) }),
	}
	return l
}

// Current is described at Source.
func (l *Live) Current() (*Settings, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.changed
}

// Describe and Collect make it a [prometheus.Collector].
func (l *Live) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(l, to) }

// Collect is described at Describe.
func (l *Live) Collect(to chan<- prometheus.Metric) {
	for _, m := range l.metrics {
		m.Collect(to)
	}
}

// put puts a state in force.
func (l *Live) put(f *registry.Fold[*State, record]) {
	now := f.State.Settings()
	l.mu.Lock()
	differ := !now.equal(l.now)
	if differ {
		l.now = now
		close(l.changed)
		l.changed = make(chan struct{})
	}
	l.mu.Unlock()
	select {
	case <-l.Ready():
		if last := f.Last(); differ {
			l.log(&last)
		}
	default: // what is read first is no change
	}
}
