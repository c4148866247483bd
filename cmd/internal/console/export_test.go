package console

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"path"
	"strings"
	"sync/atomic"
	"testing"
)

// TestVendored: the scripts and styles of others are as `make web-vendor` has fetched them.
func TestVendored(t *testing.T) {
	const dir = "assets/vendor"
	sums, err := files.ReadFile(dir + "/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = sum
	}
	names, _ := fs.Glob(files, dir+"/*.*")
	for _, file := range names {
		body, err := files.ReadFile(file)
		sum := sha256.Sum256(body)
		if name := path.Base(file); err != nil || listed[name] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s is not the one that make web-vendor fetched (%v)", name, err)
		}
	}
	if len(names) != len(listed) {
		t.Errorf("%d files, %d sums", len(names), len(listed))
	}
}

// Pages are the paths and names of all pages, and Acts the ids of all acts with their fields.
func Pages() (all [][2]string) {
	for i := range pages {
		all = append(all, [2]string{pages[i].path, pages[i].name})
	}
	return all
}

// Acts are the ids of all acts.
func Acts() (all []string) {
	for i := range acts {
		all = append(all, acts[i].id)
	}
	return all
}

// CountLoads counts how often the data of a page are loaded. It is called before a server starts.
func CountLoads(name string) (n *atomic.Int64) {
	n = new(atomic.Int64)
	p := pageNamed(name)
	load := p.load
	p.load = func(v *view) any {
		n.Add(1)
		return load(v)
	}
	return n
}
