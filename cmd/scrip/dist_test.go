//go:build dist

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestDist compiles everything twice, so .ci/run alone asks for it (go test -tags dist): make dist builds static programs whose bytes depend on the source alone, with checksums and the commit.
func TestDist(t *testing.T) {
	target := runtime.GOOS + "/" + runtime.GOARCH
	name := "scrip-" + runtime.GOOS + "-" + runtime.GOARCH
	dirs := []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "elsewhere", "b")}
	for _, dir := range dirs {
		cmd := exec.CommandContext(t.Context(), "make", "dist", "DIST="+dir, "TARGETS="+target, "VERSION=v9.8.7", "COMMIT=0123456789abcdef")
		cmd.Dir = "../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make dist: %v\n%s", err, out)
		}
	}
	sums := [2][]byte{}
	for i, dir := range dirs {
		var err error
		if sums[i], err = os.ReadFile(filepath.Join(dir, "SHA256SUMS")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(sums[0], sums[1]) || !strings.Contains(string(sums[0]), "  "+name+"\n") || strings.Count(string(sums[0]), "\n") != 2 {
		t.Errorf("the checksums are\n%sthen\n%s", sums[0], sums[1])
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dirs[0], name), "version", "-o", "json").Output()
	streamtest.Must(t, err)
	var seen map[string]any
	streamtest.Must(t, json.Unmarshal(out, &seen))
	for _, f := range formats {
		if fmt.Sprint(seen[f.field]) != f.number {
			t.Errorf("%s is %v, want %s", f.field, seen[f.field], f.number)
		}
	}
	if seen["version"] != "v9.8.7" || seen["commit"] != "0123456789abcdef" {
		t.Errorf("%s", out)
	}
	if linked, err := exec.LookPath("ldd"); err == nil && runtime.GOOS == "linux" {
		if out, _ := exec.CommandContext(t.Context(), linked, filepath.Join(dirs[0], name)).CombinedOutput(); !strings.Contains(string(out), "not a dynamic executable") {
			t.Errorf("ldd: %s", out)
		}
	}
}
