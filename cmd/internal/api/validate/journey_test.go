package validate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api/apitest"
)

// TestJourneyWithAGeneratedClient generates a client from the document, compiles it with testdata/journey, and runs that.
func TestJourneyWithAGeneratedClient(t *testing.T) {
	r := apitest.Serve(t)
	dir, err := os.MkdirTemp(".", "journey-") // in this module, which requires what the client imports
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile("testdata/journey/main.go")
	if err != nil {
		t.Fatal(err)
	}
	spec := filepath.Join(dir, "openapi.json")
	for name, content := range map[string][]byte{spec: document(t, r, "/v1/openapi-3.0.json"), filepath.Join(dir, "main.go"): program} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(env []string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run(nil, "tool", "oapi-codegen", "-generate", "types,client", "-package", "main", "-o", filepath.Join(dir, "client.gen.go"), spec)
	code := r.Claim(t, r.Campaign(t, map[string]any{"codes": 1}), "ann")
	out := run([]string{"URL=" + r.URL, "OPERATOR=" + r.Key(t, "operator"), "SUPPORT=" + r.Key(t, "support"), "CODE=" + code}, "run", "./"+dir)
	if !strings.HasSuffix(out, "done\n") {
		t.Error(out)
	}
}
