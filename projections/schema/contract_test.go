package schema

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheContractNamesColumns: everything that the SQL part of the page names can be selected.
func TestTheContractNamesColumns(t *testing.T) {
	raw, err := os.ReadFile("../../domain/CONTRACT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(raw), "\n## SQL\n")
	text, _, _ = strings.Cut(text, "\nEach commit sends")
	p := pool(t)
	migrate(t, p)
	// The first code span of a cell; what follows it explains.
	rows := regexp.MustCompile("(?m)^\\| `([a-z_.()]+)` \\| `([a-z_ ]+)`").FindAllStringSubmatch(text, -1)
	if len(rows) < 12 {
		t.Errorf("CONTRACT.md has %d relations and functions", len(rows))
	}
	for _, row := range rows {
		name := row[1]
		if !strings.Contains(name, ".") {
			name = "scrip." + name
		}
		if _, err := p.Exec(t.Context(), "SELECT "+strings.ReplaceAll(row[2], " ", ", ")+" FROM "+name+" LIMIT 0"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
