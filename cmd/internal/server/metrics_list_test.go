package server

import (
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/cmd/internal/certs"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/push/hold"
	"github.com/seed-4a2410e3/scrip/streams/scheduler"
	"github.com/seed-4a2410e3/scrip/streams/service"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// described collects the names and labels of all metrics that are registered with it, also of those without a value yet.
type described struct {
	prometheus.Registerer
	labels map[string][]string
}

var (
	descForm  = regexp.MustCompile(`fqName: "([^"]+)".*constLabels: \{([^}]*)\}.*variableLabels: \{([^}]*)\}`)
	labelForm = regexp.MustCompile(`[a-z_]+`)
	update    = flag.Bool("update", false, "write docker/prometheus/metrics.txt")
)

func (d *described) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		for desc := range descs {
			m := descForm.FindStringSubmatch(desc.String())
			d.labels[m[1]] = labelForm.FindAllString(m[2]+" "+m[3], -1)
		}
	}
}

func (d *described) Register(c prometheus.Collector) error {
	d.MustRegister(c)
	return nil
}

// docker/prometheus/metrics.txt lists every metric with its labels. The test of the alert rules, in the module beside
// the list, reads it; that module alone requires Prometheus.
func TestMetricsAreListed(t *testing.T) {
	has := &described{labels: map[string][]string{}}
	lane.NewMetrics(has)
	scheduler.NewMetrics(has)
	has.MustRegister(clockMetric(wall.New(wall.Options{})))
	has.MustRegister(recovery(0))
	has.MustRegister(held(hold.New(hold.Options{}))...)
	has.MustRegister(newDeliveryMetrics(nil), newLetterMetrics(nil))
	has.MustRegister(&limits{})
	web.NewRates(nil, has)
	ns := streamtest.Start(t)
	store, err := settings.Open(t.Context(), ns.JetStream(t), settings.Options{})
	streamtest.Must(t, err)
	has.MustRegister(new(projector.Projector), service.New(ns.Conn(t), topology.Log{}, code.New([32]byte{}), service.Options{}), store.Watch(),
		access.Open(ns.JetStream(t), access.Options{}).Registry(), certs.Metrics())

	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(has.labels)) {
		slices.Sort(has.labels[name])
		text.WriteString(strings.TrimSpace(name+" "+strings.Join(has.labels[name], " ")) + "\n")
	}
	const path = "../../../docker/prometheus/metrics.txt"
	if *update {
		streamtest.Must(t, os.WriteFile(path, []byte(text.String()), 0o600))
	}
	listed, err := os.ReadFile(path)
	streamtest.Must(t, err)
	if string(listed) != text.String() {
		t.Errorf("docker/prometheus/metrics.txt differs from the registered metrics; run: go test ./cmd/internal/server -run TestMetricsAreListed -update\nregistered:\n%s", text.String())
	}
}
