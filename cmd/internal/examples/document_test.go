package examples

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestTypesFromTheDocument: redocly finds nothing in the OpenAPI document of a server; with the types made from it, tsc accepts
// errand.ts and finds each mistake of mistakes.ts; and the errand succeeds.
func TestTypesFromTheDocument(t *testing.T) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s on this machine", tool)
		}
	}
	dir, s := withModules(t, "errand.ts", "mistakes.ts", "tsconfig.json", "lint.mjs"), open(t)
	resp, err := http.Get("http://" + s.http + "/v1/openapi.json")
	streamtest.Must(t, err)
	defer resp.Body.Close()
	document, err := io.ReadAll(resp.Body)
	streamtest.Must(t, err)
	streamtest.Must(t, os.WriteFile(filepath.Join(dir, "openapi.json"), document, 0o644))
	key := s.newKey(t, "operator")
	node := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "node", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "URL=http://"+s.http, "KEY="+key, "no_proxy=127.0.0.1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := node("lint.mjs", "openapi.json"); err != nil || out != "" {
		t.Errorf("redocly: %v\n%s", err, out)
	}
	if out, err := node("node_modules/openapi-typescript/bin/cli.js", "openapi.json", "-o", "schema.d.ts"); err != nil {
		t.Fatalf("openapi-typescript: %v\n%s", err, out)
	}
	var want, got []string
	for i, line := range strings.Split(string(read(t, "mistakes.ts")), "\n") {
		if found := regexp.MustCompile(`^\s*// (\d{4}):`).FindStringSubmatch(line); found != nil {
			want = append(want, fmt.Sprintf("mistakes.ts(%d) TS%s", i+2, found[1]))
		}
	}
	out, err := node("node_modules/typescript/bin/tsc", "-p", ".")
	for _, found := range regexp.MustCompile(`(?m)^(\S+\(\d+),\d+\): error (TS\d+)`).FindAllStringSubmatch(out, -1) {
		got = append(got, found[1]+") "+found[2])
	}
	if !slices.Equal(want, got) || len(want) < 6 {
		t.Errorf("tsc finds %s, want %s; %v\n%s", got, want, err, out)
	}
	if out, err := node("made/errand.js"); err != nil || out != "done\n" {
		t.Errorf("the errand: %v\n%s", cmp.Or(err, io.ErrUnexpectedEOF), out)
	}
}
