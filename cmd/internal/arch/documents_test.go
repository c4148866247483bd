package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	linkForm   = regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	metricForm = regexp.MustCompile("`(scrip_[a-z_]+)")
)

// anchors are those that a page's headings get: lower case, blanks as hyphens, no punctuation.
func anchors(t *testing.T, page string) (list []string) {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllSubmatch(raw, -1) {
		text := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(string(heading[1])), "")
		list = append(list, "#"+strings.ReplaceAll(text, " ", "-"))
	}
	return list
}

// TestDocuments: links of the documents lead to files and headings, metrics of the runbook exist, and every document is
// linked from the README or from a document that is.
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
			if link[1] == "" {
				target = page
			}
			if _, err := os.Stat(filepath.Join(top, target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, link[1])
			} else if link[2] != "" && !slices.Contains(anchors(t, filepath.Join(top, target)), link[2]) {
				t.Errorf("%s links to %s%s, and that page has no such heading", page, link[1], link[2])
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

var (
	namedTest = regexp.MustCompile("`(Test[A-Za-z0-9]+)`(?:\\s+\\(`([a-z0-9_/]+)`\\))?") // perhaps with its folder
	namedFile = regexp.MustCompile("`([a-z0-9_/]*[a-z0-9_]\\.go)`")
)

// TestDocumentsNameWhatExists: the DESIGN page of each folder names its packages, and the tests and Go files that a
// document names exist.
func TestDocumentsNameWhatExists(t *testing.T) {
	top := root(t)
	for _, p := range packages(t, "") {
		folder := layer(p.ImportPath)
		design, err := os.ReadFile(filepath.Join(top, folder, "DESIGN.md"))
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if !regexp.MustCompile(`\b` + filepath.Base(name) + `\b`).Match(design) {
			t.Errorf("%s/DESIGN.md does not name %s", folder, name)
		}
	}
	var code strings.Builder // names of all Go files, and the test functions in them with their folders
	for _, folder := range layers {
		err := filepath.WalkDir(filepath.Join(top, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			code.WriteString(path + "\n")
			raw, err := os.ReadFile(path)
			for _, f := range regexp.MustCompile(`(?m)^func Test\w+\(`).FindAll(raw, -1) {
				code.WriteString(string(f) + filepath.Dir(path) + "\n")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pages, err := filepath.Glob(filepath.Join(top, "*/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range namedTest.FindAllStringSubmatch(string(raw), -1) {
			if !strings.Contains(code.String(), "func "+m[1]+"(") {
				t.Errorf("%s names %s, which is no test", page, m[1])
			} else if m[2] != "" && !strings.Contains(code.String(), "func "+m[1]+"("+filepath.Join(top, m[2])+"\n") {
				t.Errorf("%s names %s in %s, where it is not", page, m[1], m[2])
			}
		}
		for _, m := range namedFile.FindAllStringSubmatch(string(raw), -1) {
			if !strings.Contains(code.String(), "/"+m[1]+"\n") {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
}
