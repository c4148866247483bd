package alert

import (
	"fmt"
	"strconv"
	"strings"
)

// head is the begin of the file.
const head = `# Made from the table in cmd/internal/alert: go test ./cmd/internal/alert -run TestFile -update
# Alerts on failures that clients notice, and on those that they will notice later. Each has the next step; ` + "`scrip status`" + `
# has the details. The console and GET /v1/overview show them without Prometheus, but for ScripDown.
#
#   promtool check rules docker/prometheus/alerts.yaml
groups:
`

// File is docker/prometheus/alerts.yaml.
func File() string {
	var f strings.Builder
	f.WriteString(head)
	group := ""
	for _, r := range Rules {
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(&f, "  - name: %s\n    rules:\n", group)
		}
		fmt.Fprintf(&f, "      - alert: %s\n", r.Name)
		for line := range strings.Lines(r.Why) {
			fmt.Fprintf(&f, "        # %s\n", strings.TrimSpace(line))
		}
		fmt.Fprintf(&f, "        expr: %s\n", r.When.promQL())
		if r.For > 0 {
			fmt.Fprintf(&f, "        for: %s\n", duration(r.For))
		}
		fmt.Fprintf(&f, "        labels: {severity: %s}\n        annotations:\n          summary: %s\n          action: %s\n",
			r.Severity, strconv.Quote(r.Summary), strconv.Quote(r.Action))
	}
	return f.String()
}
