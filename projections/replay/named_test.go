package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// A followed file shows what arrives, but its state, which costs some fsyncs, is saved once a second at most.
func TestFollowedFileIsSavedOnceASecond(t *testing.T) {
	r := newRig(t)
	r.work()
	path := filepath.Join(t.TempDir(), "all.ndjson")
	begun := time.Now()
	stop := r.follow(named(t, path, NDJSON, false), Options{})
	state := StatePath(path, "daily")
	var last os.FileInfo
	saves := 0
	look := func() {
		if info, err := os.Stat(state); err == nil && (last == nil || !os.SameFile(info, last)) {
			last, saves = info, saves+1
		}
	}
	for i := range 150 {
		customer := fmt.Sprintf("x%d", i)
		r.claim(campaigns[0], customer)
		streamtest.Eventually(t, "it is in the file", func() bool {
			look()
			raw, err := os.ReadFile(path)
			return err == nil && strings.Contains(string(raw), `"`+customer+`"`)
		})
	}
	streamtest.Eventually(t, "all of it is saved", func() bool {
		look()
		then, err := readState(state)
		info, missing := os.Stat(path)
		return err == nil && missing == nil && then.Length == info.Size()
	})
	// At the beginning and behind what was there already, too.
	if most := 3 + int(time.Since(begun)/savePause); saves > most {
		t.Errorf("saved at least %d times in %s, want %d at most", saves, time.Since(begun), most)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// A replay does not continue in a file that another replay overwrote, even if it is long enough.
func TestFileOfAnotherNameIsNotContinued(t *testing.T) {
	r := newRig(t)
	r.work()
	path := filepath.Join(t.TempDir(), "all.ndjson")
	one := func(name string, reset bool) error {
		t.Helper()
		sink, err := NamedFile(path, name, NDJSON, reset)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.try(sink, Options{})
		return err
	}
	if err := one("a", false); err != nil {
		t.Fatal(err)
	}
	r.claim(campaigns[0], "m1", "m2")
	r.claim(campaigns[1], "m1", "m2")
	if err := one("b", true); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	if err := one("a", false); err == nil || !strings.Contains(err.Error(), "the file was changed") {
		t.Errorf("gone on with another's file: %v", err)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("the file changed")
	}
	if err := one("b", false); err != nil {
		t.Errorf("its own file: %v", err)
	}
	// A state of before digests were kept.
	raw, err := os.ReadFile(StatePath(path, "b"))
	if err != nil {
		t.Fatal(err)
	}
	then, err := readState(StatePath(path, "b"))
	if err != nil || then.Tail == "" {
		t.Fatalf("%+v, %v", then, err)
	}
	if err := os.WriteFile(StatePath(path, "b"), []byte(strings.Replace(string(raw), `"tail":"`+then.Tail+`",`, "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := one("b", false); err != nil {
		t.Errorf("with a state of an older version: %v", err)
	}
}

// TestRootFollowsNoLink: in a directory of others, a link under the name of an export could have root write anywhere.
func TestRootFollowsNoLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root refuses links, and this user is not root")
	}
	r := newRig(t)
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "all.csv")
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.try(named(t, path, CSV, false), Options{}); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(victim); err == nil {
		t.Error("root wrote where the link leads")
	}
}
