package projtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
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
// files, and tests of deadlocks wait for 3 s.
func fast() map[string]string {
	return map[string]string{
		"fsync":              "off",
		"full_page_writes":   "off",
		"synchronous_commit": "off",
		"shared_buffers":     "32MB",
		"wal_init_zero":      "off",
		"deadlock_timeout":   "1s",
	}
}

// common is the cluster shared by the tests of this binary, from the first that needs it to the end of Main.
var common struct {
	sync.Mutex     // guards what follows
	made       int // databases created so far, for their names
	dir        string
	cluster    *pgd.Cluster
	url        string
}

// Main runs the tests and stops the shared cluster at their end. It returns the exit code for os.Exit.
func Main(m interface{ Run() int }) int {
	code := m.Run()
	common.Lock()
	defer common.Unlock()
	if err := stopCommon(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the test cluster:", err)
		return max(code, 1)
	}
	return code
}

// URL returns the URL of a new, empty database, which its user owns. It is dropped after the test, and open connections
// are closed.
func URL(t testing.TB) string {
	t.Helper()
	made := database(t, "")
	u, err := url.Parse(made)
	if err == nil {
		err = execute(made, "REVOKE TEMPORARY ON DATABASE "+strings.Trim(u.Path, "/")+" FROM PUBLIC")
	}
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
	return made
}

// Foreign returns the URL of a new, empty database as in a PostgreSQL that scrip does not run: with what PostgreSQL gives to everybody, and
// without the functions of package confine.
func Foreign(t testing.TB) string {
	t.Helper()
	return database(t, " TEMPLATE template0")
}

func database(t testing.TB, template string) string {
	t.Helper()
	common.Lock()
	if common.cluster == nil {
		if err := startCommon(); err != nil {
			err = errors.Join(err, stopCommon())
			common.Unlock()
			t.Fatalf("test cluster: %v", err)
		}
	}
	common.made++
	name, base, admin := fmt.Sprintf("test_%d", common.made), common.url, common.cluster.AdminURL()
	common.Unlock()
	t.Cleanup(func() {
		// Only the superuser can close connections of other roles.
		if err := execute(admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("test database %s: %v", name, err)
		}
	})
	if err := execute(base, "CREATE DATABASE "+name+template); err != nil {
		t.Fatalf("test database %s: %v", name, err)
	}
	return withPath(t, base, "/"+name)
}

// withPath returns a URL with another database.
func withPath(t testing.TB, base, name string) string {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatalf("URL of the test cluster: %v", err)
	}
	u.Path = name
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
	common.Lock()
	defer common.Unlock()
	if common.cluster == nil {
		t.Fatal("there is no test cluster; call URL first")
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatalf("URL of the test database: %v", err)
	}
	return withPath(t, common.cluster.AdminURL(), u.Path)
}

// SessionLocks leaves only the owner of a database the right to advisory locks in it, and of these only those of a
// session: what excludes others for one transaction must lock what readers cannot. No role has the right to pg_notify.
func SessionLocks(t testing.TB, database string) {
	t.Helper()
	if err := execute(Admin(t, database), sessionLocksSQL); err != nil {
		t.Fatalf("taking rights to advisory locks: %v", err)
	}
}

const sessionLocksSQL = `DO $$
DECLARE
  one record;
BEGIN
  FOR one IN SELECT oid::regprocedure AS f FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname ~ '^pg_(try_)?advisory_|^pg_notify$' LOOP
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', one.f);
  END LOOP;
  EXECUTE format('GRANT EXECUTE ON FUNCTION pg_try_advisory_lock(bigint), pg_advisory_unlock(bigint), pg_advisory_unlock_all() TO %I',
    (SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()));
END
$$`

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

func startCommon() (err error) {
	removeForgotten()
	if common.dir, err = os.MkdirTemp("", dirPattern); err != nil {
		return err
	}
	if err := os.Chmod(common.dir, 0o755); err != nil {
		return err
	}
	common.cluster = pgd.Open(options(common.dir, slog.New(slog.DiscardHandler)))
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	common.url, err = common.cluster.Start(ctx)
	return err
}

func stopCommon() (err error) {
	if common.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		err = common.cluster.Stop(ctx)
	}
	if common.dir != "" {
		err = errors.Join(err, os.RemoveAll(common.dir))
	}
	common.cluster, common.dir = nil, ""
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
