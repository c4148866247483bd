package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// page is a document of the repository, each white space a single blank.
func page(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../..", name))
	streamtest.Must(t, err)
	return strings.Join(strings.Fields(string(raw)), " ")
}

// TestFormats: the documents have each format with the number that the code has, and no other.
func TestFormats(t *testing.T) {
	numbers := map[string]string{}
	for _, f := range formats {
		numbers[f.name] = f.number
	}
	raw, err := os.ReadFile("../../.github/CHANGELOG.md")
	streamtest.Must(t, err)
	_, table, _ := strings.Cut(string(raw), "\n| format | number |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	listed := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \| ([^|]*) \|$`).FindAllStringSubmatch(table, -1) {
		listed[row[1]] = row[2]
	}
	if fmt.Sprint(listed) != fmt.Sprint(numbers) {
		t.Errorf("the table of CHANGELOG.md has\n%v, the code has\n%v", listed, numbers)
	}
	for name, want := range map[string]string{
		"domain/CONTRACT.md": fmt.Sprintf("**Contract version %s** · log format %s · data directory format %s · backup format %s.",
			numbers["contract"], numbers["log"], numbers["data directory"], numbers["backup"]),
		"streams/LOG_FORMAT.md": fmt.Sprintf("Log format %s.", numbers["log"]),
	} {
		if !strings.Contains(page(t, name), want) {
			t.Errorf("%s lacks %q", name, want)
		}
	}
}

// TestNoFormatIsForgotten: each constant of the code that is the number of a format is one of those that are printed.
func TestNoFormatIsForgotten(t *testing.T) {
	printed := map[string]string{ // by folder and constant: its name in the documents
		"streams/topology Format": "log", "cmd/internal/datadir Format": "data directory", "streams/backup Format": "backup",
		"domain SnapshotFormat": "snapshot of a lane", "streams/scheduler/timers Format": "snapshot of a scheduler", "streams/push Format": "push", "projections/schema Format": "schema of the read tables",
	}
	// Of files that no other program reads: their golden files hold them. They are not printed.
	inside := []string{"streams/snapstore formatVersion", "projections/replay stateVersion"}
	number := map[string]string{}
	for _, f := range formats {
		number[f.name] = f.number
	}
	constant := regexp.MustCompile(`(?m)^(?:const )?\t?([A-Za-z]*(?:[fF]ormat|[a-z]Version)) += "?(\d+)"?(?: //.*)?$`)
	for _, top := range []string{"domain", "streams", "projections", "cmd"} {
		err := filepath.WalkDir(filepath.Join("../..", top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			raw, err := os.ReadFile(path)
			for _, c := range constant.FindAllStringSubmatch(string(raw), -1) {
				key := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../") + " " + c[1]
				if want := number[printed[key]]; want != c[2] && c[1] != "MaxVersion" && !slices.Contains(inside, key) {
					t.Errorf("%s is %s, printed as %q: add it to the formats of main.go, to CHANGELOG.md and here", key, c[2], want)
				}
				delete(printed, key)
			}
			return err
		})
		streamtest.Must(t, err)
	}
	for key := range printed {
		t.Errorf("the code has no constant %s", key)
	}
}
