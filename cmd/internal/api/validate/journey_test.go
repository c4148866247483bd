package validate

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// older rewrites a part of the document in the terms of OpenAPI 3.0, which the generator reads: there a type that may be null is
// nullable.
func older(part any) any {
	switch part := part.(type) {
	case map[string]any:
		for name, value := range part {
			part[name] = older(value)
		}
		if types, is := part["type"].([]any); is && len(types) == 2 && types[1] == "null" {
			part["type"], part["nullable"] = types[0], true
		}
	case []any:
		for i, value := range part {
			part[i] = older(value)
		}
	}
	return part
}

// TestJourneyWithAGeneratedClient generates a client from the document, compiles it with testdata/journey, and runs that.
func TestJourneyWithAGeneratedClient(t *testing.T) {
	r := apitest.Serve(t)
	dir := t.TempDir() // a module like this one: in the tree, other tests would meet files that are half written
	program, err := os.ReadFile("testdata/journey/main.go")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(document(t, r), &doc); err != nil {
		t.Fatal(err)
	}
	doc["openapi"] = "3.0.3"
	delete(doc, "webhooks") // which it does not have
	generatorReads, err := json.Marshal(older(doc))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"openapi.json": generatorReads, "main.go": program}
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
