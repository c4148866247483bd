package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSharesAddUpToTheBudget: whatever parts take less or more than their share, those after them share the rest.
func TestSharesAddUpToTheBudget(t *testing.T) {
	for name, uses := range map[string]float64{"exactly": 1, "half": 0.5, "a tenth more": 1.1} {
		const budget = 20 * time.Minute
		left := budget
		for i, p := range parts {
			s := share(left, parts[i:])
			if s <= 0 || p.last(s) <= 0 || p.last(s) > s || late(s) <= s {
				t.Errorf("%s: %s has %s, its program %s, and is late after %s", name, p.name, s, p.last(s), late(s))
			}
			left -= time.Duration(float64(s) * uses)
		}
		if uses == 1 && left.Abs() > time.Millisecond || uses > 1 && left < -budget/10 || left > budget/2 {
			t.Errorf("%s: %s are left of %s", name, left, budget)
		}
	}
}

// TestParts: each runs in a folder that exists, with its seed and its limit of time.
func TestParts(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range parts {
		if info, err := os.Stat(filepath.Join("../../..", p.dir)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", p.name, err)
		}
		args := strings.Join(p.args(time.Minute, 7), " ")
		if p.name == "api" { // go's fuzzing has a time and no seed
			if !strings.Contains(args, "fuzztime=1m0s") {
				t.Errorf("%s runs with %s", p.name, args)
			}
		} else if !p.again && (!strings.Contains(args, ".seed=7") || !strings.Contains(args, ".for=1m0s")) {
			t.Errorf("%s runs with %s", p.name, args)
		}
		if p.weight < 1 || seen[p.name] {
			t.Errorf("%s: weight %d, there before: %v", p.name, p.weight, seen[p.name])
		}
		seen[p.name] = true
	}
	for names, want := range map[string]int{"": len(parts), "power": 1, "power,kill": 2} {
		if chosen, err := choose(names); err != nil || len(chosen) != want {
			t.Errorf("%q chooses %d, %v", names, len(chosen), err)
		}
	}
	if _, err := choose("power,flood"); err == nil || !strings.Contains(err.Error(), `no part "flood"; the parts are kill,power`) {
		t.Error(err)
	}
}

func TestTable(t *testing.T) {
	output := "x_test.go:1: soak: 12 kills\n    y: soak: 3 fail-overs\nother 5 kills\n  soak: 4 kills\n"
	if got := work(output); got != "16 kills, 3 fail-overs" {
		t.Errorf("%q", got)
	}
	var b strings.Builder
	table(&b, []result{{parts[0], 7, "16 kills", 61 * time.Second, nil}, {parts[1], 7, "", time.Second, errors.New("exit status 1")}})
	const want = `
PART   SEED  DID       SECONDS  RESULT
kill   7     16 kills  61       ok
power  7               1        FAILED: exit status 1
`
	if b.String() != want {
		t.Errorf("%q", b.String())
	}
}

// TestALatePartIsEnded, and has failed; a part of fixed length is repeated while there is time.
func TestALatePartIsEnded(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	script := func(text string) part {
		if err := os.WriteFile(filepath.Join(out, "folder.test"), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return part{name: "p", dir: "folder", again: true, args: func(time.Duration, uint64) []string { return nil }}
	}
	if err := os.Mkdir("folder", 0o755); err != nil {
		t.Fatal(err)
	}
	p := script("echo soak: 2 things\n")
	if r := run(t.Context(), t.Output(), p, 50*time.Millisecond, 1); r.failed != nil || !strings.HasSuffix(r.work, " runs") || !strings.Contains(r.work, " things, ") {
		t.Errorf("%+v", r)
	}
	p = script("exit 3\n")
	if r := run(t.Context(), t.Output(), p, time.Hour, 1); r.failed == nil || r.failed.Error() != "exit status 3" {
		t.Errorf("%+v", r)
	}
	p = script("exec sleep 1000\n")
	if r := run(t.Context(), t.Output(), p, 300*time.Millisecond-time.Minute, 1); r.failed == nil || !strings.HasPrefix(r.failed.Error(), "late") {
		t.Errorf("%+v", r)
	}
}
