package validate

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// TestJourneyWithAGeneratedClient generates a client from the document, compiles it with testdata/journey, and runs that.
func TestJourneyWithAGeneratedClient(t *testing.T) {
	r := apitest.Serve(t)
	dir := t.TempDir() // a module like this one: in the tree, other tests would meet files that are half written
	program, err := os.ReadFile("testdata/journey/main.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"openapi.json": document(t, r, "/v1/openapi-3.0.json"), "main.go": program}
	for _, name := range []string{"go.mod", "go.sum"} {
		if files[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	files["go.mod"] = bytes.ReplaceAll(files["go.mod"], []byte("=> ../../../.."), []byte("=> "+root))
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(in string, env []string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = in
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("", nil, "tool", "oapi-codegen", "-generate", "types,client", "-package", "main", "-o", filepath.Join(dir, "client.gen.go"), filepath.Join(dir, "openapi.json"))
	code := r.Claim(t, r.Campaign(t, map[string]any{"codes": 1}), "ann")
	out := run(dir, []string{"URL=" + r.URL, "OPERATOR=" + r.Key(t, "operator"), "SUPPORT=" + r.Key(t, "support"), "CODE=" + code}, "run", ".")
	if !strings.HasSuffix(out, "done\n") {
		t.Error(out)
	}
}
