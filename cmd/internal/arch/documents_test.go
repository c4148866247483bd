package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linkForm   = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	metricForm = regexp.MustCompile("`(scrip_[a-z_]+)")
)

// TestDocuments: links of the documents lead to files, metrics of the runbook exist, and every document is linked from
// the README or from a document that is.
func TestDocuments(t *testing.T) {
	top, linked := root(t), map[string]bool{"README.md": true}
	todo := []string{"README.md"}
	for len(todo) > 0 {
		page := todo[0]
		todo = todo[1:]
		raw, err := os.ReadFile(filepath.Join(top, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range linkForm.FindAllStringSubmatch(string(raw), -1) {
			target := filepath.Join(filepath.Dir(page), link[1])
			if _, err := os.Stat(filepath.Join(top, target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, link[1])
			} else if strings.HasSuffix(target, ".md") && !linked[target] {
				linked[target] = true
				todo = append(todo, target)
			}
		}
	}
	for _, pattern := range []string{"*/*.md", "*/*/*.md", ".github/*.md"} {
		pages, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			page, err := filepath.Rel(top, page)
			if err != nil {
				t.Fatal(err)
			}
			if !linked[page] {
				t.Errorf("no document that the README leads to links to %s", page)
			}
		}
	}
	runbook, err := os.ReadFile(filepath.Join(top, "cmd/RUNBOOK.md"))
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := os.ReadFile(filepath.Join(top, "docker/prometheus/metrics.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metricForm.FindAllStringSubmatch(string(runbook), -1) {
		if m[1] != "scrip_meta" && !strings.Contains("\n"+string(metrics), "\n"+m[1]) {
			t.Errorf("RUNBOOK.md names %s, which is no metric", m[1])
		}
	}
}
