package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestNarrow: only the rights of others go, and only from what was named.
func TestNarrow(t *testing.T) {
	const sgid = fs.ModeSetgid
	for name, c := range map[string]struct{ was, most, want fs.FileMode }{
		"private":               {0o600, 0o600, 0o600},
		"narrower":              {0o400, 0o600, 0o400},
		"of a group":            {0o660, 0o600, 0o600},
		"of all":                {0o777, 0o600, 0o600},
		"its owner's are whole": {0o044, 0o600, 0o600},
		"a directory":           {fs.ModeDir | sgid | 0o770, fs.ModeDir | 0o700, fs.ModeDir | 0o700},
		"one that is private":   {fs.ModeDir | sgid | 0o700, fs.ModeDir | 0o700, fs.ModeDir | sgid | 0o700},
		"one to pass through":   {fs.ModeDir | sgid | 0o770, fs.ModeDir | 0o711, fs.ModeDir | 0o710},
		"another type":          {fs.ModeDir | 0o777, 0o600, fs.ModeDir | 0o777},
	} {
		path := filepath.Join(t.TempDir(), "x")
		err := os.WriteFile(path, nil, 0o600)
		if c.was.IsDir() {
			err = errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		}
		if err := errors.Join(err, os.Chmod(path, c.was)); err != nil {
			t.Fatal(err)
		}
		changed, err := Narrow(Private{path + ".none", 0o600}, Private{path, c.most})
		info, serr := os.Stat(path)
		if err := errors.Join(err, serr); err != nil || info.Mode() != c.want || slices.Contains(changed, path) != (c.was != c.want) {
			t.Errorf("%s: %v became %v, want %v (%v, %v)", name, c.was, info.Mode(), c.want, changed, err)
		}
	}
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(target, nil, 0o600), os.Chmod(target, 0o666), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	changed, err := Narrow(Private{link, 0o600})
	if info, serr := os.Stat(target); err != nil || serr != nil || len(changed) != 0 || info.Mode() != 0o666 {
		t.Errorf("a link was followed: %v, %v", changed, err)
	}
}
