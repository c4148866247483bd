package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestRestore: a restore writes to a directory of its own, which gets the store's name at the end, and never replaces an
// existing store.
func TestRestore(t *testing.T) {
	d := open(t, t.TempDir())
	fill := func(text string) {
		t.Helper()
		streamtest.Must(t, os.MkdirAll(filepath.Join(d.Restoring(), "jetstream"), 0o700))
		streamtest.Must(t, os.WriteFile(filepath.Join(d.Restoring(), "jetstream", "file"), []byte(text), 0o600))
	}
	if d.Interrupted() {
		t.Error("interrupted before its start")
	}
	streamtest.Must(t, d.BeginRestore())
	fill("first")
	if !d.Interrupted() {
		t.Error("what a crash would leave is not recognised")
	}
	if err := d.BeginRestore(); err != nil { // after the crash
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(d.Restoring(), "jetstream")); !os.IsNotExist(err) {
		t.Errorf("left of the first: %v", err)
	}
	fill("second")
	streamtest.Must(t, d.FinishRestore())
	if got, err := os.ReadFile(filepath.Join(d.NATS(), "jetstream", "file")); err != nil || string(got) != "second" {
		t.Errorf("the store: %q %v", got, err)
	}
	if d.Interrupted() {
		t.Error("interrupted after it ended")
	}
	if err := d.BeginRestore(); err == nil || !strings.Contains(err.Error(), "has a log already") {
		t.Errorf("over a store: %v", err)
	}
}

// TestAKeyIsPutButNeverReplaced: PutKey does not overwrite another key.
func TestAKeyIsPutButNeverReplaced(t *testing.T) {
	d := open(t, t.TempDir())
	if _, found, err := FindKey(d.Path(), ""); found || err != nil {
		t.Errorf("a key before there was one: %v", err)
	}
	key := [32]byte{1}
	for range 2 {
		streamtest.Must(t, d.PutKey(key))
	}
	k, found, err := FindKey(d.Path(), "")
	if err != nil || !found || k.Key != key {
		t.Errorf("found %v %v %v", k, found, err)
	}
	if err := d.PutKey([32]byte{2}); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("another key: %v", err)
	}
	if k, _, err := FindKey(d.Path(), strings.Repeat("ab", 32)); err != nil || k.From != KeyVariable || k.Key[0] != 0xab {
		t.Errorf("the variable's: %v %v", k, err)
	}
}
