package examples

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestDuckDBReadsADataSet: what an analyst has replayed with its key is counted by DuckDB as it lies, also while more is added.
func TestDuckDBReadsADataSet(t *testing.T) {
	const file = "days.mjs"
	text := string(read(t, "../../../projections/ANALYSTS.md"))
	query := strings.Split(string(read(t, file)), "`")[1]
	if shown := strings.Replace(strings.TrimSpace(query), "${process.argv[2]}", "events", 1); !strings.Contains(text, shown) || !strings.Contains(text, "](../cmd/internal/examples/"+file+")") {
		t.Errorf("ANALYSTS.md does not show the query of %s, or does not lead to it:\n%s", file, shown)
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s on this machine", tool)
		}
	}
	s, dir := open(t), withModules(t, file)
	if _, err := os.Stat(filepath.Join(dir, "node_modules/@duckdb/node-api")); err != nil {
		t.Skip("npm has no DuckDB for this machine")
	}
	made, err := exec.CommandContext(t.Context(), e2e.Binary(), "access", "create", "eve", "--role", "analyst", "--data", s.Data).Output()
	streamtest.Must(t, err)
	key, set := filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "events")
	streamtest.Must(t, os.WriteFile(key, made, 0o600))
	if out, err := s.Client().CreateCampaign(t.Context(), "days", wire.DefaultSettings(100)); err != nil || out.Refused() {
		t.Fatal(out, err)
	}
	for n := 1; n <= 2; n++ {
		if out, err := s.Client().Claim(t.Context(), "days", fmt.Sprint("customer-", n)); err != nil || out.Refused() {
			t.Fatal(out, err)
		}
		streamtest.Eventually(t, "it is replayed", func() bool { // once the key is in force
			replay := exec.CommandContext(t.Context(), e2e.Binary(), "replay", "--http", "http://"+s.http, "--key-file", key, "--format", "parquet", "--partition", "day", "--out", set)
			return replay.Run() == nil
		})
		count := exec.CommandContext(t.Context(), "node", filepath.Join(dir, file), set)
		var stderr bytes.Buffer
		count.Stderr = &stderr
		out, err := count.Output()
		if want := fmt.Sprintf(`"campaign":"days","claims":%d}`, n); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %s%s, want %s", err, out, stderr.String(), want)
		}
	}
}
