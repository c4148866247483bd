package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func content(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestWriteReplacesAndSetsTheMode(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, c := range []struct {
		text string
		mode fs.FileMode
	}{{"first", 0o600}, {"second, longer", 0o644}, {"", 0o666}} {
		if err := Write(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if content(t, path) != c.text || info.Mode() != c.mode {
			t.Errorf("the file has mode %v and holds %q", info.Mode(), content(t, path))
		}
	}
	if names(t, dir) != "a" {
		t.Errorf("the directory holds %s", names(t, dir))
	}
}

func TestWriteReplacesALinkAndLeavesItsTarget(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(target, []byte("old"), 0o600), os.Symlink(target, link), Write(link, []byte("new"), 0o600)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	if err != nil || !info.Mode().IsRegular() || content(t, link) != "new" || content(t, target) != "old" {
		t.Errorf("link %v %v, target %q", info.Mode(), err, content(t, target))
	}
}

func TestAFailedWriteLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := Write(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("no")
	err := WriteFunc(path, 0o600, func(f *os.File) error { _, err := f.WriteString("half"); return errors.Join(err, failed) })
	if !errors.Is(err, failed) || content(t, path) != "old" || names(t, dir) != "a" {
		t.Errorf("%v, %q, directory %s", err, content(t, path), names(t, dir))
	}
}

func TestCreateNeverReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	var wg sync.WaitGroup
	made := make(chan string, 8)
	for _, text := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		wg.Go(func() {
			switch err := Create(path, []byte(text), 0o600); {
			case err == nil:
				made <- text
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(made)
	if winner := <-made; content(t, path) != winner || len(made) != 0 {
		t.Errorf("%q was created as well as %q", content(t, path), winner)
	}
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), dangling); err != nil {
		t.Fatal(err)
	}
	if err := Create(dangling, nil, 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("created in place of a link: %v", err)
	}
	if names(t, dir) != "a dangling" {
		t.Errorf("the directory holds %s", names(t, dir))
	}
}

func TestMkdirAllRenameAndRemove(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "x", "y", "z")
	if err := errors.Join(MkdirAll(deep, 0o700), MkdirAll(deep, 0o700)); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(dir, "moved")
	if err := errors.Join(Write(filepath.Join(deep, "a"), []byte("text"), 0o600), SyncTree(dir), Rename(deep, moved)); err != nil {
		t.Fatal(err)
	}
	if content(t, filepath.Join(moved, "a")) != "text" {
		t.Error("the file did not move with its directory")
	}
	if err := errors.Join(Remove(filepath.Join(moved, "a")), Remove(filepath.Join(moved, "a"))); err != nil || names(t, moved) != "" {
		t.Errorf("%v, left: %s", err, names(t, moved))
	}
}

func TestSweepRemovesOnlyLeftovers(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", ".a-123", ".a-", ".a-12x", ".ab-123", ".a-4567"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if names(t, dir) != ".a- .a-12x .ab-123 a" {
		t.Errorf("left: %s", names(t, dir))
	}
}
