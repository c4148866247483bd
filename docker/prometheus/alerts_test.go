// Package prometheus checks the alert rules, the dashboard and the configurations of Prometheus. It is a separate module because it requires Prometheus; it has tests only.
package prometheus

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

var suffix = regexp.MustCompile(`_(bucket|count|sum)$`)

// metrics are the labels of each metric by its name, after who has it: those of metrics.txt, which a test of cmd/internal/server compares
// with a server's registry, and those that Prometheus adds.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string][]string{"up": {"instance", "job"}}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[0] != "#" {
			byName[fields[0]] = append(fields[2:], "instance", "job")
		}
	}
	return byName
}

// Prometheus's own parser, which promtool uses too, reads the rules. Each metric in them exists and has the labels that
// the rule uses.
func TestAlertRules(t *testing.T) {
	known := metrics(t)
	all := alerts(t)
	for _, rule := range all {
		if rule.Annotations["summary"] == "" || rule.Annotations["action"] == "" || rule.Labels["severity"] == "" {
			t.Errorf("%s needs the annotations summary (the failure) and action (the next step), and the label severity", rule.Alert)
		}
		check(t, known, rule.Alert, rule.Expr)
	}
	if len(all) < 10 {
		t.Errorf("only %d alerts", len(all))
	}
}

// alerts are the rules of alerts.yaml.
func alerts(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	text, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation)
	for _, err := range errs {
		t.Fatal(err)
	}
	for _, group := range groups.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// check reads a query of what is called where. Its metrics exist and have the labels that it uses.
func check(t *testing.T, known map[string][]string, where, query string) {
	t.Helper()
	expr, err := parser.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v\n%s", where, err, query)
		return
	}
	check := func(metric string, used ...string) {
		has, ok := known[metric]
		if !ok {
			has, ok = known[suffix.ReplaceAllString(metric, "")]
		}
		if !ok {
			t.Errorf("%s: scrip has no metric %s", where, metric)
		}
		for _, label := range used {
			if label != "le" && label != model.MetricNameLabel && !slices.Contains(has, label) {
				t.Errorf("%s: %s has no label %s", where, metric, label)
			}
		}
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			for _, m := range n.LabelMatchers {
				check(n.Name, m.Name)
			}
		case *parser.AggregateExpr:
			for _, selector := range parser.ExtractSelectors(n.Expr) {
				for _, m := range selector {
					if m.Name == model.MetricNameLabel && m.Value != "up" { // that one only filters
						check(m.Value, n.Grouping...)
					}
				}
			}
		}
		return nil
	})
}
