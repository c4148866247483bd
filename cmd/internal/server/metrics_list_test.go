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
	valueForm = regexp.MustCompile(`"[^"]*"`)
	update    = flag.Bool("update", false, "write docker/prometheus/metrics.txt")
)

func (d *described) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		for desc := range descs {
			m := descForm.FindStringSubmatch(desc.String())
			d.labels[m[1]] = labelForm.FindAllString(valueForm.ReplaceAllString(m[2], "")+" "+m[3], -1)
		}
	}
}

func (d *described) Register(c prometheus.Collector) error {
	d.MustRegister(c)
	return nil
}

// listHead explains the list.
const listHead = `# Made by: go test ./cmd/internal/server -run TestMetricsAreListed -update
# Metrics, who has them, and their labels.
#   each      every server that has the part: of itself
#   owner     the server that owns the lane
#   follower  the server that projects the lane into the read tables
#   stage     the server that holds reminders back for a person
#   same      every server of the part: what the log or the tables have, so the same everywhere
# A server on standby has no gauge of the work. A counter stays where it was counted, until that server restarts.
`

// exporters are who has the metrics that begin so; the longest counts.
var exporters = map[string]string{
	"scrip_": "each",

	"scrip_lane_": "owner", "scrip_lane_owned": "each", "scrip_scheduler_": "owner",
	"scrip_projection_": "follower", "scrip_projection_following": "each",
	"scrip_push_": "same", "scrip_push_held": "stage", "scrip_push_merged": "stage", "scrip_push_withheld": "stage",
	"scrip_dead_letters_open": "same", "scrip_backup_": "same", "scrip_webhooks": "same", "scrip_keys": "same", "scrip_keys_refused": "each",
	"scrip_log_endangered": "same", "scrip_log_settings_differ": "same", "scrip_nats_node_lag": "same",
}

func exporter(name string) (who string) {
	longest := 0
	for prefix, is := range exporters {
		if strings.HasPrefix(name, prefix) && len(prefix) > longest {
			longest, who = len(prefix), is
		}
	}
	return who
}

// docker/prometheus/metrics.txt lists every metric, with who has it and its labels. The test of the alert rules, in the module
// beside the list, reads it, and the one that looks at three servers; that module alone requires Prometheus.
func TestMetricsAreListed(t *testing.T) {
	has := &described{labels: map[string][]string{}}
	lane.NewMetrics(has)
	scheduler.NewMetrics(has)
	has.MustRegister(clockMetric(wall.New(wall.Options{})))
	has.MustRegister(recovery(0))
	has.MustRegister(held{hold.New(hold.Options{})}, disks{})
	has.MustRegister(newDeliveryMetrics(nil), newLetterMetrics(nil), webhookMetrics{}, newPostgresMetric(nil), newBackupMetrics(nil, topology.Log{}, nil))
	has.MustRegister(&limits{}, linesDropped(nil), newViolations(nil).total, &condition{}, new(analysts).metric())
	web.NewRates(nil, has)
	access.NewStrangers(has)
	ns := streamtest.Start(t)
	store, err := settings.Open(t.Context(), ns.JetStream(t), settings.Options{})
	streamtest.Must(t, err)
	has.MustRegister(new(projector.Projector), service.New(ns.Conn(t), topology.Log{}, code.New([32]byte{}), service.Options{}), store.Watch(),
		access.Open(ns.JetStream(t), access.Options{}).Registry(), certs.Metrics())

	var text strings.Builder
	text.WriteString(listHead)
	for _, name := range slices.Sorted(maps.Keys(has.labels)) {
		slices.Sort(has.labels[name])
		text.WriteString(strings.TrimSpace(name+" "+exporter(name)+" "+strings.Join(has.labels[name], " ")) + "\n")
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
