package prometheus

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/config"
	_ "github.com/prometheus/prometheus/discovery/file" // the configuration may have it
)

// dashboard is what the test reads of Grafana's form.
type dashboard struct {
	UID         string
	Panels      []panel
	Templating  struct{ List []variable }
	Annotations struct {
		List []struct{ Name, Expr, TitleFormat, TextFormat string }
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		Expr, LegendFormat string
		Datasource         struct{ Type, UID string }
	}
}

type variable struct {
	Name, Type string
	Query      json.RawMessage
}

var (
	used   = regexp.MustCompile(`\$\{?(\w+)`)
	shown  = regexp.MustCompile(`\{\{(\w+)\}\}`)
	values = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
)

// onDashboards are the metrics of a server that its libraries have, and those of Prometheus on alerts, besides metrics.txt.
var onDashboards = map[string][]string{
	"process_resident_memory_bytes": {"instance", "job"},
	"process_cpu_seconds_total":     {"instance", "job"},
	"go_goroutines":                 {"instance", "job"},
	"ALERTS":                        {"alertname", "alertstate", "severity", "lane", "name", "instance", "job"},
}

// TestDashboard: Prometheus's own parser reads each query of the dashboard; what it uses exists; and a person sees what a panel is.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../grafana/scrip.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	known := metrics(t)
	maps.Copy(known, onDashboards)
	variables := map[string]string{"__rate_interval": "1m"}
	for _, v := range d.Templating.List {
		variables[v.Name] = "x"
		if v.Type != "query" {
			continue
		}
		var q struct{ Query string }
		if err := json.Unmarshal(v.Query, &q); err != nil {
			t.Error(v.Name, err)
		}
		m := values.FindStringSubmatch(q.Query)
		if m == nil {
			t.Errorf("variable %s: %q", v.Name, q.Query)
			continue
		}
		check(t, known, v.Name, fmt.Sprintf("count by (%s) (%s)", m[2], m[1]))
	}
	// query replaces the variables of one, and judges it with the labels that its legend shows.
	query := func(where, expr, legend string) {
		t.Helper()
		expr = used.ReplaceAllStringFunc(expr, func(name string) string {
			value, ok := variables[strings.Trim(name, "${")]
			if !ok {
				t.Errorf("%s: there is no variable %s", where, name)
			}
			return value
		})
		check(t, known, where, expr)
		for _, label := range shown.FindAllStringSubmatch(legend, -1) {
			// A label that an aggregation takes away would be shown as nothing.
			check(t, known, where, fmt.Sprintf("count by (%s) (%s)", label[1], expr))
			if by := regexp.MustCompile(`by \(([^)]*)\)`).FindStringSubmatch(expr); by != nil && !slices.Contains(strings.Split(by[1], ", "), label[1]) {
				t.Errorf("%s: the legend shows %s, the query has %q", where, label[1], by[1])
			}
		}
	}
	for _, a := range d.Annotations.List {
		query("annotations "+a.Name, a.Expr, a.TitleFormat+a.TextFormat)
	}
	type cell struct{ x, y int }
	ids, taken, rows, queries := map[int]bool{}, map[cell]string{}, 0, 0
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d, %q: an id of its own and a title are needed", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[cell{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %q, or out of the page", p.Title, other)
				}
				taken[cell{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows++
			continue
		}
		if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("%s needs a description, a unit and a query", p.Title)
		}
		for _, name := range regexp.MustCompile(`\balert (Scrip\w+)`).FindAllStringSubmatch(p.Description, -1) {
			if rules, err := os.ReadFile("alerts.yaml"); err != nil || !strings.Contains(string(rules), "alert: "+name[1]+"\n") {
				t.Errorf("%s: there is no alert %s (%v)", p.Title, name[1], err)
			}
		}
		for _, q := range p.Targets {
			queries++
			query(p.Title, q.Expr, q.LegendFormat)
			if q.Datasource.Type != "prometheus" || q.Datasource.UID != "${datasource}" {
				t.Errorf("%s: source %v", p.Title, q.Datasource)
			}
		}
	}
	if rows < 6 || queries < 40 || len(d.Annotations.List) == 0 {
		t.Errorf("%d rows, %d queries, %d annotations", rows, queries, len(d.Annotations.List))
	}
}

// TestConfigurations: Prometheus loads them, and start.sh writes what that of the containers reads.
func TestConfigurations(t *testing.T) {
	dir := t.TempDir()
	script, err := os.ReadFile("start.sh")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "prometheus")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	start := exec.Command("sh", "-c", strings.ReplaceAll(string(script), "/tmp/", dir+"/"))
	start.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "SCRIP_CREDENTIALS=shop:a:b %s'\"", "TARGETS=scrip-1:8080 scrip-2:8080"}
	out, err := start.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--config.file=/etc/prometheus/containers.yaml ") {
		t.Fatalf("%v: %s", err, out)
	}
	for name, want := range map[string]string{"user": "shop", "password": "a:b %s'\"",
		"targets.json": `[{"targets": ["scrip-1:8080"]},{"targets": ["scrip-2:8080"]}]` + "\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	for _, file := range []string{"prometheus.yaml", "containers.yaml"} {
		c, err := config.LoadFile(file, false, nil)
		if err != nil {
			t.Error(err)
			continue
		}
		jobs, err := c.GetScrapeConfigs()
		if err != nil || len(jobs) != 1 || jobs[0].JobName != "scrip" || !slices.Equal(c.RuleFiles, []string{"alerts.yaml"}) {
			t.Errorf("%s: jobs %v, rules %v, %v", file, jobs, c.RuleFiles, err)
		}
	}
}
