package golden

import (
	"os"
	"strings"
	"testing"
)

// record is a testing.TB that takes failures.
type record struct {
	testing.TB
	failed string
}

func (r *record) Helper()                        {}
func (r *record) Errorf(format string, _ ...any) { r.failed = format }

func TestBytes(t *testing.T) {
	t.Chdir(t.TempDir())
	*update = true
	Bytes(t, "a.golden", []byte("stored"))
	*update = false
	if got := Bytes(t, "a.golden", []byte("stored")); string(got) != "stored" {
		t.Errorf("it holds %q", got)
	}
	r := &record{TB: t}
	Bytes(r, "a.golden", []byte("changed"))
	if !strings.Contains(r.failed, "the number of the format must be raised") {
		t.Errorf("another encoding: %q", r.failed)
	}
	if got, err := os.ReadFile("testdata/a.golden"); err != nil || string(got) != "stored" {
		t.Errorf("the file was changed: %q, %v", got, err)
	}
}
