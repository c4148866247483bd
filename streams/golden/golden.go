// Package golden compares what a package stores with a file in its testdata, for the tests of formats.
//
//	encode(state) == testdata/<format>.golden        go test ./streams/<package> -update writes the file
//
// It has no state; nothing crashes here.
package golden

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files in testdata instead of comparing with them")

// Bytes fails the test unless got is the content of a file in testdata, and returns that content, for the test to decode.
func Bytes(t testing.TB, file string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("what is stored differs from %s. After a release the number of the format must be raised; before it, write the file with -update.\n got: %q\nwant: %q", path, got, want)
	}
	return want
}
