package pgd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MinMajor is the oldest major version of PostgreSQL that scrip works with.
const MinMajor = 14

// binEnv names the variable with the directory of the PostgreSQL programs; if set, no other directory is searched.
const binEnv = "SCRIP_PG_BIN"

// versionTimeout bounds a program that prints its version; it takes milliseconds unless the machine is stuck.
const versionTimeout = 10 * time.Second

// installHint ends every error about missing programs.
const installHint = "install PostgreSQL (`apt-get install postgresql`, `dnf install postgresql-server`, " +
	"`brew install postgresql`), set " + binEnv + " to the directory with initdb, pg_ctl and postgres, or give an existing server with --postgres URL"

// Binaries are the programs of one installed PostgreSQL.
type Binaries struct {
	// Dir holds initdb, pg_ctl and postgres.
	Dir string
	// Major is the major version, for example 15.
	Major int
	// Version is the output of `postgres --version`, for example "postgres (PostgreSQL) 15.14".
	Version string
}

func (b Binaries) initdb() string   { return filepath.Join(b.Dir, "initdb") }
func (b Binaries) control() string  { return filepath.Join(b.Dir, "pg_ctl") }
func (b Binaries) postgres() string { return filepath.Join(b.Dir, "postgres") }

// walCompression returns the cheapest compression of pages in the WAL: lz4 if this PostgreSQL was built with it (15 and later
// may be), else none. data is any directory.
func (b Binaries) walCompression(data string) string {
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	// Prints the value if it is supported, and fails if not. It starts nothing and reads no other setting; root may run it with
	// -C as the first argument.
	err := exec.CommandContext(ctx, b.postgres(), "-C", "wal_compression", "-D", data, "-c", "wal_compression=lz4", "-c", "config_file="+os.DevNull).Run()
	if err != nil {
		return "off"
	}
	return "lz4"
}

// Find returns the PostgreSQL that a new cluster is made with: the one in $SCRIP_PG_BIN if that is set, else the
// first of version 14 or later on PATH, where pg_config points, and in the usual directories, highest version first.
// The error lists the directories searched and how to install it.
func Find() (Binaries, error) {
	all, err := findAll()
	if err != nil {
		return Binaries{}, err
	}
	return all[0], nil
}

// findAll returns every usable installation, in order of preference and at least one.
func findAll() ([]Binaries, error) {
	if dir := os.Getenv(binEnv); dir != "" {
		b, err := inspect(dir)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w; %s", binEnv, dir, err, installHint)
		}
		return []Binaries{b}, nil
	}
	var found []Binaries
	var old, seen []string
	look := func(dirs ...string) {
		for _, dir := range dirs {
			if slices.Contains(seen, dir) {
				continue
			}
			seen = append(seen, dir)
			if b, err := inspect(dir); err == nil {
				found = append(found, b)
			} else if b.Major > 0 {
				old = append(old, fmt.Sprintf("%s in %s", b.Version, dir))
			}
		}
	}
	if p, err := exec.LookPath("postgres"); err == nil {
		look(filepath.Dir(p))
	}
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		look(strings.TrimSpace(string(out)))
	}
	chosen := len(found) // by the user
	for _, pattern := range usualDirs {
		hits, _ := filepath.Glob(pattern) // fails only for a malformed pattern; these are constants
		look(hits...)
	}
	slices.SortStableFunc(found[chosen:], func(a, b Binaries) int { return cmp.Compare(b.Major, a.Major) })
	switch {
	case len(found) > 0:
		return found, nil
	case len(old) > 0:
		return nil, fmt.Errorf("only found %s, version %d or later is needed; %s", strings.Join(old, ", "), MinMajor, installHint)
	default:
		return nil, fmt.Errorf("no PostgreSQL found on PATH, by pg_config or in %s; %s", strings.Join(usualDirs, ", "), installHint)
	}
}

// usualDirs are where packages put the programs: Debian, RPM, source, Alpine, Homebrew (two), MacPorts, Postgres.app.
var usualDirs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/local/pgsql/bin",
	"/usr/libexec/postgresql*",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/opt/local/lib/postgresql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect runs the programs in dir to find their version. If it is too old, it is returned with the error.
func inspect(dir string) (Binaries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, err
	}
	b := Binaries{Dir: dir}
	for _, program := range []string{b.initdb(), b.control(), b.postgres()} {
		if _, err := exec.LookPath(program); err != nil {
			return Binaries{}, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.postgres(), "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("running %s --version: %w", b.postgres(), err)
	}
	b.Version = strings.TrimSpace(string(out))
	m := versionLine.FindStringSubmatch(b.Version)
	if m == nil {
		return Binaries{}, fmt.Errorf("%s --version prints %q, which is not a PostgreSQL version", b.postgres(), b.Version)
	}
	if b.Major, err = strconv.Atoi(m[1]); err != nil {
		return Binaries{}, fmt.Errorf("%s --version prints %q: %w", b.postgres(), b.Version, err)
	}
	if b.Major < MinMajor {
		return b, fmt.Errorf("%s is too old, version %d or later is needed", b.Version, MinMajor)
	}
	return b, nil
}
