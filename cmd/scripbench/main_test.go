package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// scripBinary is scrip as built for these tests.
var scripBinary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "peer" { // started by a test as its peer
		main()
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "scripbench-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		scripBinary = filepath.Join(dir, "scrip")
		build := exec.Command("go", "build", "-o", scripBinary, "./cmd/scrip")
		build.Dir = "../.." // another module
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building scrip: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}
