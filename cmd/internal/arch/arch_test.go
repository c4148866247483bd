// Package arch checks what no single package can see: which way imports point, what a producer links, and what is at
// the top of the repository.
//
//	cmd ──> projections ──> streams ──> domain
//
// It has no code, only tests; nothing crashes here.
package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/seed-4a2410e3/scrip"

// goPackage is what `go list -json` shows of a package.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	Deps                               []string
	GoFiles                            []string
}

// all is what `go list` shows of the module's packages. It runs once: each time takes a second or more.
var all = sync.OnceValues(func() ([]goPackage, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps,GoFiles", "./...")
	cmd.Dir = "../../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	var pkgs []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
})

// packages returns the packages in a folder, "" for all.
func packages(t *testing.T, folder string) (some []goPackage) {
	t.Helper()
	pkgs, err := all()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pkgs {
		if folder == "" || under(p.ImportPath, module+"/"+folder) {
			some = append(some, p)
		}
	}
	if len(some) == 0 {
		t.Fatalf("there is no package in %s", folder)
	}
	return some
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("the repository is not where this test thinks: %v", err)
	}
	return dir
}

// layer is the top folder of one of our packages, "" for others'.
func layer(path string) string {
	rest, ours := strings.CutPrefix(path, module+"/")
	if !ours {
		return ""
	}
	top, _, _ := strings.Cut(rest, "/")
	return top
}

// under is true if a package is in a folder or is it.
func under(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// layers in the order in which imports point: each may import itself and what is before it.
var layers = []string{"domain", "streams", "projections", "cmd"}

func TestImportsPointOneWay(t *testing.T) {
	for _, p := range packages(t, "") {
		mine := slices.Index(layers, layer(p.ImportPath))
		if mine < 0 {
			t.Errorf("%s lies in no known layer", p.ImportPath)
			continue
		}
		for _, imports := range [][]string{p.Imports, p.TestImports, p.XTestImports} {
			for _, i := range imports {
				if other := slices.Index(layers, layer(i)); other > mine {
					t.Errorf("%s imports %s: %s must not know %s", p.ImportPath, i, layers[mine], layers[other])
				}
			}
		}
	}
}

func TestWhoMayImportWhat(t *testing.T) {
	rules := []struct {
		library string
		allowed []string // our folders
		why     string
	}{
		{"github.com/nats-io/nats-server", []string{"streams/natsd", "streams/streamtest"}, "only the embedded server links it"},
		{"github.com/nats-io/jwt", []string{"streams/access/callout"}, "answers to log-ins are made in one place"},
		{"github.com/nats-io/nkeys", []string{"streams/access/callout"}, "answers to log-ins are signed in one place"},
		{"github.com/minio/highwayhash", []string{"streams/natsd"}, "only the embedded server's files have such sums"},
		{"github.com/jackc/pgx", []string{"projections", "cmd"}, "tables belong to projections"},
		{"github.com/danielgtaylor/huma", []string{"cmd/internal/api"}, "routes belong to the API"},
		{"github.com/spf13/cobra", []string{"cmd"}, "the command line belongs to cmd"},
		{"github.com/RoaringBitmap", []string{"streams/scheduler/timers"}, "sets of coupons are the scheduler's"},
		{"github.com/santhosh-tekuri/jsonschema", []string{"cmd/internal/server/apitest"}, "only tests of answers judge them by schemas"},
		{"github.com/chromedp", []string{"cmd/internal/browser"}, "only tests have a browser"},
		{"encoding/csv", []string{"projections/replay", "cmd/internal/codescsv"}, "replay.CSVWriter writes no formula; codescsv reads"},
		{"go.opentelemetry.io", []string{"cmd/internal/trace"}, "traces are made in one place; streams and projections know texts"},
		{"github.com/hanwen/go-fuse", nil, "only the power tests have a file system"},
	}
	for _, p := range packages(t, "") {
		for _, rule := range rules {
			for _, i := range p.Imports { // what tests import is theirs
				if !under(i, rule.library) {
					continue
				}
				if !slices.ContainsFunc(rule.allowed, func(folder string) bool { return under(p.ImportPath, module+"/"+folder) }) {
					t.Errorf("%s imports %s: %s", p.ImportPath, i, rule.why)
				}
			}
		}
	}
}

// TestTheProgramLinksNoTestHelper: what helps tests starts servers and fails them.
func TestTheProgramLinksNoTestHelper(t *testing.T) {
	for _, p := range packages(t, "cmd/scrip") {
		for _, dep := range p.Deps {
			if dep == "testing" || layer(dep) != "" && strings.HasSuffix(dep, "test") {
				t.Errorf("%s depends on %s", p.ImportPath, dep)
			}
		}
	}
}

// TestOneWriterOfLines: what a server writes goes through its log, which never blocks. Packages that it links know no standard stream
// and no package log; its main function passes the streams on.
func TestOneWriterOfLines(t *testing.T) {
	direct := regexp.MustCompile(`\b(os\.Std(out|err)|fmt\.Print\w*|log\.(Print|Fatal|Panic|New)\w*|println)\b`)
	for _, name := range []string{"cmd/scrip", "cmd/pushsender"} {
		for _, p := range packages(t, name) {
			for _, dep := range p.Deps {
				if layer(dep) == "" {
					continue
				}
				folder := filepath.Join(root(t), strings.TrimPrefix(dep, module+"/"))
				files, err := filepath.Glob(filepath.Join(folder, "*.go"))
				if err != nil {
					t.Fatal(err)
				}
				for _, file := range files {
					raw, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					for line := range strings.Lines(string(raw)) {
						code, _, _ := strings.Cut(line, "//")
						if found := direct.FindString(code); found != "" && !strings.HasSuffix(file, "_test.go") {
							t.Errorf("%s uses %s: take the logger of the options", file, found)
						}
					}
				}
			}
		}
	}
}

// TestOneMakerOfClientsOfReceivers: a client of a server that users name has the bounds of package receiver. The others here
// are clients of a scrip or nats-server.
func TestOneMakerOfClientsOfReceivers(t *testing.T) {
	own := []string{"cmd/internal/cluster/", "cmd/internal/datadir/", "cmd/internal/doctor/", "cmd/internal/server/apitest/", "cmd/scrip/replay.go", "cmd/scripbench/"}
	found := 0
	inspect(t, func(path string, n ast.Node) {
		made, makes := n, []string{"DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm"}
		if lit, ok := n.(*ast.CompositeLit); ok {
			made, makes = lit.Type, []string{"Client", "Transport"}
		}
		sel, ok := made.(*ast.SelectorExpr)
		if !ok || !slices.Contains(makes, sel.Sel.Name) {
			return
		}
		if of, ok := sel.X.(*ast.Ident); !ok || of.Name != "http" {
			return
		}
		name, err := filepath.Rel(root(t), path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "streams/webhook/receiver/") {
			found++
		} else if !slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			t.Errorf("%s uses http.%s: take the client of package receiver", name, sel.Sel.Name)
		}
	})
	if found != 2 {
		t.Errorf("package receiver makes %d clients and transports", found)
	}
}

// TestOnePlaceKnowsTheMachine: a control group is found from two files, never by a fixed path, which is that of a container alone.
func TestOnePlaceKnowsTheMachine(t *testing.T) {
	fixed := regexp.MustCompile(`sys/fs/cgroup|proc/meminfo|proc/self/cgroup|hw\.memsize`)
	for _, p := range packages(t, "") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, file := range p.GoFiles {
			raw, err := os.ReadFile(filepath.Join(root(t), name, file))
			if err != nil {
				t.Fatal(err)
			}
			if found := fixed.Find(raw); found != nil && name != "streams/machine" {
				t.Errorf("%s/%s names %s: ask streams/machine", name, file, found)
			}
		}
	}
}

func TestTheDomainIsPure(t *testing.T) {
	impure := []string{"os", "net", "syscall", "time/tzdata", "database/sql", "log", "log/slog", "math/rand", "math/rand/v2", "context"}
	for _, p := range packages(t, "domain") {
		for _, i := range p.Imports {
			switch {
			case layer(i) == "domain":
			case layer(i) != "" || strings.Contains(strings.Split(i, "/")[0], "."):
				t.Errorf("%s imports %s: the domain depends on the standard library alone", p.ImportPath, i)
			case slices.ContainsFunc(impure, func(bad string) bool { return i == bad }):
				t.Errorf("%s imports %s: the domain has no I/O, no clock, no goroutine", p.ImportPath, i)
			}
		}
		for _, name := range p.GoFiles {
			checkPurity(t, filepath.Join(root(t), strings.TrimPrefix(p.ImportPath, module+"/"), name))
		}
	}
}

// TestLayersOfTheDomain: the rules know the lines, the reminders and the tables, never the other way round.
func TestLayersOfTheDomain(t *testing.T) {
	may := map[string][]string{
		"domain":           {"domain/code", "domain/reminder", "domain/table", "domain/wire"},
		"domain/reminder":  {"domain/table", "domain/wire"},
		"domain/wire":      {"domain/code"},
		"domain/table":     {},
		"domain/code":      {},
		"domain/linetest":  {},
		"domain/oracle":    {"domain/wire"},
		"domain/worldtest": {"domain/wire"},
	}
	for _, p := range packages(t, "domain") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		allowed, known := may[name]
		if !known {
			t.Errorf("%s has no place in the layers of the domain", name)
		}
		for _, i := range p.Imports {
			if layer(i) == "domain" && !slices.Contains(allowed, strings.TrimPrefix(i, module+"/")) {
				t.Errorf("%s imports %s", name, i)
			}
		}
	}
}

// checkPurity finds what imports do not show: a look at the clock, a goroutine.
func checkPurity(t *testing.T, path string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: the domain starts no goroutine", files.Position(n.Pos()))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker", "Tick", "AfterFunc"}, n.Sel.Name) {
				t.Errorf("%s: the domain is given the time", files.Position(n.Pos()))
			}
		}
		return true
	})
}

// TestAProducerLinksLittle: a program that imports the SDK gets nats.go and what that needs, and nothing else of ours than the
// domain and the parts of streams that it is made of.
func TestAProducerLinksLittle(t *testing.T) {
	allowed := []string{"github.com/nats-io/nats.go", "github.com/nats-io/nkeys", "github.com/nats-io/nuid", "github.com/klauspost/compress",
		"github.com/google/uuid", "github.com/cenkalti/backoff", "golang.org/x"}
	for _, p := range packages(t, "streams/client") {
		for _, dep := range p.Deps {
			first, _, _ := strings.Cut(dep, "/")
			switch {
			case !strings.Contains(first, "."): // standard library, or vendored into it
			case layer(dep) == "domain", layer(dep) == "streams":
				if strings.HasSuffix(dep, "/natsd") {
					t.Errorf("the SDK depends on %s", dep)
				}
			case !slices.ContainsFunc(allowed, func(lib string) bool { return under(dep, lib) }):
				t.Errorf("the SDK depends on %s", dep)
			}
		}
	}
}

// TestOtherModules: what the modules beside the product's require stays out of its go.mod. `make lint` compiles them.
func TestOtherModules(t *testing.T) {
	requirements, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, library := range []string{"redis/go-redis", "HdrHistogram", "hibiken/asynq", "riverqueue", "prometheus/prometheus", "pb33f", "oapi-codegen", "compose-spec", "k8s.io"} {
		if bytes.Contains(requirements, []byte(library)) {
			t.Errorf("go.mod requires %s; only another module may", library)
		}
	}
}

func TestTopLevel(t *testing.T) {
	allowed := []string{"domain", "streams", "projections", "cmd", "docker", "README.md", "LICENSE", "Makefile", "go.mod", "go.sum", ".ci", ".github",
		".git", ".gitignore", "bin", "data", "cluster"} // the last three are ignored by git
	entries, err := os.ReadDir(root(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(allowed, e.Name()) {
			t.Errorf("%s lies at the top of the repository; put it in one of the folders", e.Name())
		}
	}
}

// TestURLsAreShownWithoutKeys: a key can be the user of a URL, which url.Redacted shows, and so does nats.go.
func TestURLsAreShownWithoutKeys(t *testing.T) {
	calls := 0
	safe := map[ast.Node]bool{} // what is given to dial.WithoutUser
	inspect(t, func(path string, n ast.Node) {
		switch n := n.(type) {
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "WithoutUser" && len(n.Args) == 1 {
				if call, ok := n.Args[0].(*ast.CallExpr); ok {
					safe[call.Fun] = true
					calls++
				}
			}
		case *ast.SelectorExpr:
			if slices.Contains([]string{"Redacted", "ConnectedUrl", "ConnectedUrlRedacted"}, n.Sel.Name) && !safe[n] {
				t.Errorf("%s uses %s: show URLs with dial.WithoutUser", path, n.Sel.Name)
			}
		}
	})
	if calls < 5 {
		t.Errorf("only %d calls of WithoutUser were found", calls)
	}
}

// inspect calls f with each node of the syntax of the Go files without tests, a node before its children, and with the file.
func inspect(t *testing.T, f func(path string, n ast.Node)) {
	t.Helper()
	err := filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			f(path, n)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
