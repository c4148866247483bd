package pgd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// The postmaster has its log open, and goes on appending to it.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "postgres.log")
	rotate(path, 100) // there is none yet
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	streamtest.Must(t, err)
	defer log.Close()
	for i := range 50 {
		if _, err := fmt.Fprintf(log, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
		rotate(path, 100)
	}
	last := ""
	for _, name := range []string{path + ".1", path} {
		raw, err := os.ReadFile(name)
		streamtest.Must(t, err)
		if len(raw) == 0 || len(raw) > 100 {
			t.Errorf("%s has %d bytes, want 1 to 100", name, len(raw))
		}
		last += string(raw)
	}
	if !strings.HasSuffix(last, "line 47\nline 48\nline 49\n") {
		t.Errorf("the last lines are not there: %q", last)
	}
}

// What PostgreSQL wrote while no scrip ran may be larger than the limit by any factor.
func TestRotationKeepsTheEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "postgres.log")
	write(t, path, strings.Repeat("x", 1000)+"the end")
	rotate(path, 100)
	if raw, err := os.ReadFile(path + ".1"); err != nil || len(raw) != 100 || !strings.HasSuffix(string(raw), "xthe end") {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	streamtest.Equal(t, "bytes left", sizeOf(path), 0)
	victim, planted := path+".victim", path+".planted"
	write(t, victim, "untouched")
	streamtest.Must(t, os.Symlink(victim, planted))
	if rotate(planted, 1); sizeOf(victim) != int64(len("untouched")) {
		t.Error("the target of a link was cut")
	}
}

func TestLastBytesBegin(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, "before after")
	for from, want := range map[int64]string{7: "after", 0: "before after", 12: "", 13: "before after"} {
		if got := string(lastBytes(path, from, 100)); got != want {
			t.Errorf("from %d: %q, want %q", from, got, want)
		}
	}
	streamtest.Equal(t, "the last 3", string(lastBytes(path, 0, 3)), "ter")
	if got := lastBytes(path+"2", 0, 3); got != nil {
		t.Errorf("of no file: %q", got)
	}
}

func TestLastLines(t *testing.T) {
	t.Parallel()
	streamtest.Equal(t, "empty", lastLines(nil), "")
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "line %03d\n", i)
	}
	lines := strings.Split(lastLines([]byte(text.String())), "\n")
	if len(lines) != tailLines || lines[tailLines-1] != "line 999" || lines[0] != fmt.Sprintf("line %03d", 1000-tailLines) {
		t.Errorf("got %q", lines)
	}
	streamtest.Equal(t, "a line that was cut off is shown", lastLines([]byte("x"+strings.Repeat("y", 2*tailBytes)+"\nend\n")), "end")
}
