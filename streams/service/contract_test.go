package service

import (
	"os"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestTheContractNamesEndpoints: every subject of the service, with the fields that it takes.
func TestTheContractNamesEndpoints(t *testing.T) {
	raw, err := os.ReadFile("../../domain/CONTRACT.md")
	streamtest.Must(t, err)
	for i := range endpoints {
		e := &endpoints[i]
		subject := "`" + strings.Replace(e.subject, "*", "<campaign>", 1) + "`"
		row := ""
		for line := range strings.Lines(string(raw)) {
			if strings.HasPrefix(line, "| `scrip.") && strings.Contains(line, subject) {
				row = line
			}
		}
		if row == "" {
			t.Errorf("CONTRACT.md has no row with %s", subject)
			continue
		}
		for field := range strings.FieldsFuncSeq(e.takes, func(r rune) bool { return r == ',' || r == ' ' }) {
			if strings.Contains(e.takes, "setting") && field != "campaign" {
				continue // words, not fields
			}
			if !strings.Contains(row, "`"+field+"`") {
				t.Errorf("CONTRACT.md lacks field %s of %s", field, subject)
			}
		}
	}
}
