package mixed

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// shareSettings changes settings by commands of both versions in turn, on a log with one server of each. Both versions read
// the same history, and both servers have all changes in force.
func shareSettings(t *testing.T, program, url string) {
	t.Helper()
	const changes = 4
	for i := range changes {
		by := []string{program, e2e.Binary()}[i%2]
		run(t, by, "config", "set", "reminder.rate", fmt.Sprint(1000+i), "--nats", url)
	}
	before, now := run(t, program, "config", "history", "-o", "json", "--nats", url), run(t, e2e.Binary(), "config", "history", "-o", "json", "--nats", url)
	if before != now || strings.Count(now, `"setting":"reminder.rate"`) != changes || strings.Contains(now, "ignored") {
		t.Errorf("the older version reads\n%s, this one\n%s", before, now)
	}
	streamtest.Eventually(t, "both servers have all changes in force", func() bool {
		out, _ := exec.CommandContext(t.Context(), e2e.Binary(), "status", "-o", "json", "--nats", url).Output() // it fails while a server is not ready
		return strings.Count(string(out), fmt.Sprintf(`"settings":"up to change %d"`, changes)) == 2
	})
}
