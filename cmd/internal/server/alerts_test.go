package server

import (
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/streams/config"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/scheduler"
	"github.com/seed-4a2410e3/scrip/streams/service"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// described collects the names and labels of all metrics that are registered with it, also of those without a value yet.
type described struct {
	prometheus.Registerer
	labels map[string]map[string]bool
}

var descForm = regexp.MustCompile(`fqName: "([^"]+)".*constLabels: \{([^}]*)\}.*variableLabels: \{([^}]*)\}`)

func (d *described) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		for desc := range descs {
			m := descForm.FindStringSubmatch(desc.String())
			labels := map[string]bool{"instance": true, "job": true}
			for _, l := range regexp.MustCompile(`[a-z_]+`).FindAllString(m[2]+" "+m[3], -1) {
				labels[l] = true
			}
			d.labels[m[1]] = labels
		}
	}
}

func (d *described) Register(c prometheus.Collector) error {
	d.MustRegister(c)
	return nil
}

// The rules are read by what promtool reads them with, and each metric in them is one that scrip has, with the labels
// that the rule asks for.
func TestAlertRules(t *testing.T) {
	has := &described{labels: map[string]map[string]bool{"up": {"job": true, "instance": true}}}
	lane.NewMetrics(has)
	scheduler.NewMetrics(has)
	has.MustRegister(clockMetric(wall.New(wall.Options{})))
	ns := streamtest.Start(t)
	settings, err := config.Open(t.Context(), ns.JetStream(t), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	has.MustRegister(new(projector.Projector), service.New(ns.Conn(t), topology.Log{}, code.New([32]byte{}), service.Options{}), settings.Watch())

	text, err := os.ReadFile("../../../docker/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation)
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		return
	}
	alerts := 0
	suffix := regexp.MustCompile(`_(bucket|count|sum)$`)
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			alerts++
			if rule.Annotations["summary"] == "" || rule.Annotations["action"] == "" || rule.Labels["severity"] == "" {
				t.Errorf("%s does not say what is wrong (summary), what to do (action) and how urgent it is (severity)", rule.Alert)
			}
			expr, err := parser.ParseExpr(rule.Expr)
			if err != nil {
				t.Errorf("%s: %v", rule.Alert, err)
				continue
			}
			parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
				switch n := node.(type) {
				case *parser.VectorSelector:
					labels := has.labels[n.Name]
					if labels == nil {
						labels = has.labels[suffix.ReplaceAllString(n.Name, "")]
					}
					if labels == nil {
						t.Errorf("%s: scrip has no metric %s", rule.Alert, n.Name)
					}
					for _, m := range n.LabelMatchers {
						if m.Name != "__name__" && !labels[m.Name] {
							t.Errorf("%s: %s has no label %s", rule.Alert, n.Name, m.Name)
						}
					}
				case *parser.AggregateExpr:
					for _, name := range n.Grouping {
						for _, selector := range parser.ExtractSelectors(n.Expr) {
							metric := ""
							for _, m := range selector {
								if m.Name == "__name__" {
									metric = suffix.ReplaceAllString(m.Value, "")
								}
							}
							if name != "le" && !has.labels[metric][name] {
								t.Errorf("%s: %s has no label %s", rule.Alert, metric, name)
							}
						}
					}
				}
				return nil
			})
		}
	}
	if alerts < 10 {
		t.Errorf("only %d alerts", alerts)
	}
}
