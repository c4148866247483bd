package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv(loopVariable) != "" {
		loop()
	}
	os.Exit(m.Run())
}

// A module with a test that fails in every second run, one that always passes and a package without tests.
func TestTable(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"odd/odd_test.go": `package odd

import (
	"os"
	"testing"
)

func TestOdd(t *testing.T) {
	t.Run("second run", func(t *testing.T) {
		if _, err := os.Stat("ran"); err == nil {
			_ = os.Remove("ran")
			t.Fatal("odd")
		}
		_ = os.WriteFile("ran", nil, 0o600)
	})
}
`,
		"even/even_test.go": "package even\n\nimport \"testing\"\n\nfunc TestEven(*testing.T) {}\n",
		"none/none.go":      "package none\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	logs := filepath.Join(dir, "logs")
	var out strings.Builder
	failed, err := run(t.Context(), 4, []string{"idle", "busy"}, logs, nil, &out)
	if err != nil || failed != 4 {
		t.Fatalf("%d failed, %v; want 4", failed, err)
	}
	for _, want := range []string{"TestOdd/second_run (2)", "idle even: 0 of 4 failed", "busy odd: 2 of 4 failed", "all            4       16"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "none") {
		t.Errorf("a package without tests in\n%s", out.String())
	}
	if kept, _ := filepath.Glob(filepath.Join(logs, "odd-*.log")); len(kept) != 4 {
		t.Errorf("kept %v", kept)
	}
}

func TestBadCalls(t *testing.T) {
	if _, err := run(t.Context(), 0, []string{"idle"}, t.TempDir(), nil, os.Stderr); err == nil || !strings.Contains(err.Error(), "-runs 0") {
		t.Errorf("no runs: %v", err)
	}
	if _, err := run(t.Context(), 1, []string{"calm"}, t.TempDir(), nil, os.Stderr); err == nil || !strings.Contains(err.Error(), `"calm"`) {
		t.Errorf("a mode that is none: %v", err)
	}
}

func TestInnermostFailuresCount(t *testing.T) {
	r := row{tests: map[string]int{}, took: []time.Duration{3, 1, 2}}
	r.note([]byte("--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.1s)\n--- FAIL: TestAB (0s)\n"))
	r.note([]byte("panic: test timed out\n"))
	if got := r.list(); got != "(run) (1), TestA/b (1), TestAB (1)" {
		t.Error(got)
	}
}
