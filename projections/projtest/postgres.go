package projtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/pgd"
)

const (
	// startLimit and stopLimit are far above the usual 1 s and 0.1 s, for machines under load.
	startLimit = 3 * time.Minute
	stopLimit  = 3 * time.Minute

	dirPattern = "scrip-projtest-"
	// forgotten is the age at which the directory of a killed test binary is removed by another one.
	forgotten = time.Hour
)

// fast are the settings of test clusters. Without them a third of the CPU time of CREATE DATABASE is spent on zeros in new WAL
// files.
func fast() map[string]string {
	return map[string]string{
		"fsync":              "off",
		"full_page_writes":   "off",
		"synchronous_commit": "off",
		"shared_buffers":     "32MB",
		"wal_init_zero":      "off",
	}
}

// common is the cluster shared by the tests of this binary.
var common shared

type shared struct {
	mu sync.Mutex // guards what follows
	// pinned: Main stops the cluster; otherwise its last user does.
	pinned  bool
	users   int
	made    int // databases created so far, for their names
	dir     string
	cluster *pgd.Cluster
	url     string
}

// Main runs the tests and stops the shared cluster at their end. It returns the exit code for os.Exit.
func Main(m interface{ Run() int }) int {
	common.mu.Lock()
	common.pinned = true
	common.mu.Unlock()
	code := m.Run()

	common.mu.Lock()
	defer common.mu.Unlock()
	if err := common.stopLocked(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the test cluster:", err)
		return max(code, 1)
	}
	return code
}

// URL returns the URL of a new, empty database, which its user owns. It is dropped after the test, and open connections
// are closed.
func URL(t testing.TB) string {
	t.Helper()
	base, name, err := common.join()
	if err != nil {
		t.Fatalf("test cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := common.part(name); err != nil {
			t.Errorf("test database %s: %v", name, err)
		}
	})
	if err := execute(base, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("test database %s: %v", name, err)
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatalf("URL of the test cluster: %v", err)
	}
	u.Path = "/" + name
	return u.String()
}

// Pool connects to a database until the end of the test.
func Pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Admin returns the URL of a database of the shared cluster for the superuser, who may make roles.
func Admin(t testing.TB, database string) string {
	t.Helper()
	common.mu.Lock()
	cluster := common.cluster
	common.mu.Unlock()
	if cluster == nil {
		t.Fatal("there is no test cluster; call URL first")
	}
	admin, err := url.Parse(cluster.AdminURL())
	if err != nil {
		t.Fatalf("URL of the test cluster: %v", err)
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatalf("URL of the test database: %v", err)
	}
	admin.Path = u.Path
	return admin.String()
}

// Role creates a role with the right to log in only, and returns the URL of database for it. It is dropped after the
// test, with what it owns there.
func Role(t testing.TB, database, name string) string {
	t.Helper()
	admin := Admin(t, database)
	if err := execute(admin, "CREATE ROLE "+name+" LOGIN PASSWORD 'secret'"); err != nil {
		t.Fatalf("test role %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := execute(admin, "DROP OWNED BY "+name+" CASCADE; DROP ROLE "+name); err != nil {
			t.Errorf("test role %s: %v", name, err)
		}
	})
	u, err := url.Parse(database)
	if err != nil {
		t.Fatalf("URL of the test database: %v", err)
	}
	u.User = url.UserPassword(name, "secret")
	return u.String()
}

// Cluster returns a started cluster for this test alone. It is stopped after the test, in whatever state the test
// leaves it.
func Cluster(t testing.TB) *pgd.Cluster {
	t.Helper()
	c := pgd.Open(options(Dir(t), slog.New(slog.NewTextHandler(t.Output(), nil))))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stopping the test cluster: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	if _, err := c.Start(ctx); err != nil {
		t.Fatalf("starting the test cluster: %v", err)
	}
	return c
}

// Dir returns a temporary directory like t.TempDir that other users can pass through. Run as root, scrip has an
// unprivileged user run PostgreSQL, and that user must reach the data directory, or the cluster goes to /var/lib/scrip.
func Dir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	// TempDir creates a directory for the test, closed to others, and this one in it.
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatalf("opening %s to other users: %v", d, err)
		}
	}
	return dir
}

func options(dir string, log *slog.Logger) pgd.Options {
	return pgd.Options{
		DataDir:      dir,
		FallbackBase: filepath.Join(dir, "elsewhere"), // a test leaves nothing in /var/lib
		Settings:     fast(),
		Tied:         true,
		Logger:       log,
	}
}

// join counts one more user, starts the cluster for the first, and returns a name for a database.
func (s *shared) join() (base, name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil {
		if err := s.startLocked(); err != nil {
			return "", "", errors.Join(err, s.stopLocked())
		}
	}
	s.users++
	s.made++
	return s.url, fmt.Sprintf("test_%d", s.made), nil
}

// part drops a database, and stops the cluster after its last user unless Main will.
func (s *shared) part(name string) error {
	s.mu.Lock()
	admin := s.cluster.AdminURL()
	s.mu.Unlock()
	// Only the superuser can close connections of other roles.
	err := execute(admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if s.users == 0 && !s.pinned {
		err = errors.Join(err, s.stopLocked())
	}
	return err
}

func (s *shared) startLocked() error {
	removeForgotten()
	dir, err := os.MkdirTemp("", dirPattern)
	if err != nil {
		return err
	}
	s.dir = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	s.cluster = pgd.Open(options(dir, slog.New(slog.DiscardHandler)))
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	s.url, err = s.cluster.Start(ctx)
	return err
}

func (s *shared) stopLocked() error {
	var err error
	if s.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		err = s.cluster.Stop(ctx)
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	s.cluster, s.dir, s.url = nil, "", ""
	return err
}

// removeForgotten removes directories of test binaries that were killed. No test runs for an hour.
func removeForgotten() {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), dirPattern+"*"))
	if err != nil { // only a malformed pattern
		return
	}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > forgotten {
			_ = os.RemoveAll(dir) // it belongs to another user, or another process removed it
		}
	}
}

func execute(base, sql string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, sql)
	return err
}
