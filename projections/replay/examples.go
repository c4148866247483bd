package replay

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed examples/*.sql
var examples embed.FS

// ExamplePrefix and the name of an example stand for its file.
const ExamplePrefix = "example:"

// Examples are the names of the SQL projections that come with scrip, sorted.
func Examples() []string {
	files, _ := fs.Glob(examples, "examples/*.sql") // the pattern is well formed
	for i, name := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(name, "examples/"), ".sql")
	}
	slices.Sort(files)
	return files
}

// ExampleSQL is the text of an example.
func ExampleSQL(name string) ([]byte, error) {
	text, err := examples.ReadFile("examples/" + name + ".sql")
	if err != nil {
		return nil, fmt.Errorf("there is no example %q; there are %s", name, strings.Join(Examples(), ", "))
	}
	return text, nil
}
