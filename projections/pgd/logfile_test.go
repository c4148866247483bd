package pgd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogFileIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "postgres.log")
	for range 2 { // a second owner appends
		log := &logFile{path: path, limit: 100}
		for i := range 50 {
			if _, err := fmt.Fprintf(log, "line %d\n", i); err != nil {
				t.Fatal(err)
			}
		}
		log.Close()
	}
	last := ""
	for _, name := range []string{path + ".1", path} {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) == 0 || len(raw) > 100 {
			t.Errorf("%s has %d bytes, want 1 to 100", name, len(raw))
		}
		last += string(raw)
	}
	if !strings.HasSuffix(last, "line 47\nline 48\nline 49\n") {
		t.Errorf("the last lines are not there: %q", last)
	}
}

func TestLogFileThatCannotBeWrittenStopsNobody(t *testing.T) {
	t.Parallel()
	log := &logFile{path: filepath.Join(t.TempDir(), "missing", "postgres.log"), limit: 100}
	if n, err := log.Write([]byte("line\n")); n != 5 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	log.Close()
}

func TestTailKeepsTheLastLines(t *testing.T) {
	t.Parallel()
	last := &tail{}
	if got := last.String(); got != "" {
		t.Errorf("empty: %q", got)
	}
	for i := range 1000 {
		if _, err := fmt.Fprintf(last, "line %03d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(last.String(), "\n")
	if len(lines) != tailLines || lines[tailLines-1] != "line 999" || lines[0] != fmt.Sprintf("line %03d", 1000-tailLines) {
		t.Errorf("got %q", lines)
	}
	if _, err := last.Write([]byte("x" + strings.Repeat("y", 2*tailBytes) + "\nend\n")); err != nil {
		t.Fatal(err)
	}
	if got := last.String(); got != "end" {
		t.Errorf("a line that was cut off is shown: %.40q…", got)
	}
}
