package pgd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// The test binary runs itself again as another process: as an owner of a cluster that can be killed.
const (
	helperEnv = "SCRIP_PGD_TEST_OWNER" // data directory of the cluster to own
	baseEnv   = "SCRIP_PGD_TEST_BASE"  // its Options.FallbackBase
	tiedEnv   = "SCRIP_PGD_TEST_TIED"  // "on": Options.Tied
)

// limit is how long a test waits for a fact before it gives up; none takes near as long.
const limit = 3 * time.Minute

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		if err := ownCluster(dir, os.Getenv(baseEnv), os.Getenv(tiedEnv) == "on"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := streamtest.Leaks(m.Run())
	if template.dir != "" {
		_ = os.RemoveAll(template.dir)
	}
	os.Exit(code)
}

// ownCluster starts a cluster, passes the postmaster's pid to its parent, and runs until it is killed or its parent is.
func ownCluster(dir, base string, tied bool) error {
	opts := testOptions(dir)
	opts.FallbackBase, opts.Tied = base, tied
	c := Open(opts)
	if _, err := c.Start(context.Background()); err != nil {
		return err
	}
	fmt.Println(c.PID())
	_, err := io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, c.Stop(context.Background()))
}

func testOptions(dir string) Options {
	return Options{
		DataDir:      dir,
		FallbackBase: filepath.Join(filepath.Dir(dir), "elsewhere"),
		// The power is not cut here, and only the first test reads the real settings.
		Settings: map[string]string{"fsync": "off", "shared_buffers": "16MB"},
		Tied:     true, // a killed test leaves nothing running
		Logger:   slog.New(slog.DiscardHandler),
	}
}

// openDir returns a data directory, not made yet, that every user can reach.
func openDir(t *testing.T) string {
	t.Helper()
	parent := t.TempDir()
	for _, d := range []string{filepath.Dir(parent), parent} {
		streamtest.Must(t, os.Chmod(d, 0o755))
	}
	return filepath.Join(parent, "data")
}

// template is a stopped cluster that tests copy instead of making their own, which takes ten times as long.
var template struct {
	once sync.Once
	dir  string
	err  error
}

func makeTemplate() error {
	var err error
	if template.dir, err = os.MkdirTemp("", "scrip-pgd-"); err != nil {
		return err
	}
	if err := os.Chmod(template.dir, 0o755); err != nil {
		return err
	}
	c := Open(testOptions(filepath.Join(template.dir, "data")))
	url, err := c.Start(context.Background())
	if err == nil {
		err = execute(url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
	}
	// With the port in it, copies of tests that run at once would share one port.
	return errors.Join(err, c.Stop(context.Background()), os.Remove(ownPlace(filepath.Join(template.dir, "data")).port()))
}

// copyPlace puts a cluster in a place that is not there yet. Its table kept has one row, 7.
func copyPlace(t *testing.T, to place) {
	t.Helper()
	template.once.Do(func() { template.err = makeTemplate() })
	if template.err != nil {
		t.Fatal(template.err)
	}
	mkdir(t, filepath.Dir(string(to)))
	if out, err := exec.CommandContext(t.Context(), "cp", "-Rp", filepath.Join(template.dir, "data", "postgres"), string(to)).CombinedOutput(); err != nil {
		t.Fatalf("copying a cluster: %v\n%s", err, out)
	}
}

// madeDir is an openDir with a cluster in it.
func madeDir(t *testing.T) string {
	t.Helper()
	dir := openDir(t)
	copyPlace(t, ownPlace(dir))
	return dir
}

// ownPlace is the place of a data directory that PostgreSQL's user can reach.
func ownPlace(dataDir string) place { return place(filepath.Join(dataDir, "postgres")) }

const keptSQL = "SELECT string_agg(n::text, ',' ORDER BY n) FROM kept"

// keeps checks the rows of the template's table.
func keeps(t *testing.T, url, want string) {
	t.Helper()
	streamtest.Equal(t, "kept", queryText(t, url, keptSQL), want)
}

// start starts c, stops it after the test, and returns the URL.
func start(t *testing.T, c *Cluster) string {
	t.Helper()
	stopLater(t, c)
	url, err := c.Start(t.Context())
	streamtest.Must(t, err)
	return url
}

func stopLater(t *testing.T, c *Cluster) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
}

func stop(t *testing.T, c *Cluster) {
	t.Helper()
	if err := c.Stop(t.Context()); err != nil {
		t.Fatalf("stopping: %v", err)
	}
}

// run runs SQL in the database of url, connected for this alone.
func run(t *testing.T, url, sql string) {
	t.Helper()
	if err := execute(url, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func execute(url, sql string) error {
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(context.Background(), sql)
	return errors.Join(err, conn.Close(context.Background()))
}

// queryText returns the one text that SQL gives.
func queryText(t *testing.T, url, sql string) string {
	t.Helper()
	var answer string
	if err := connect(t, url).QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	streamtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// owner is another process that owns a cluster.
type owner struct {
	cmd        *exec.Cmd
	postmaster int
}

// startOwner runs a process that owns the cluster of opts. Its postmaster is killed after the test if it still runs then.
func startOwner(t *testing.T, opts Options) owner {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+opts.DataDir, baseEnv+"="+opts.FallbackBase)
	if opts.Tied {
		cmd.Env = append(cmd.Env, tiedEnv+"=on")
	}
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	streamtest.Must(t, err)
	out, err := cmd.StdoutPipe()
	streamtest.Must(t, err)
	streamtest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // after kill this has been done
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the owner wrote nothing: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	streamtest.Must(t, err)
	t.Cleanup(func() {
		if strings.Contains(commandLine(pid), " -D "+filepath.Dir(opts.DataDir)) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return owner{cmd: cmd, postmaster: pid}
}

// kill is kill -9 of the owner alone.
func (o owner) kill(t *testing.T) {
	t.Helper()
	streamtest.Must(t, o.cmd.Process.Kill())
	_ = o.cmd.Wait() // "signal: killed"
}

// records are the lines of a log.
type records struct{ streamtest.Buffer }

func (r *records) logger() *slog.Logger { return slog.New(slog.NewTextHandler(r, nil)) }

// count returns how many records contain text.
func (r *records) count(text string) (n int) {
	for record := range strings.Lines(r.String()) {
		if strings.Contains(record, text) {
			n++
		}
	}
	return n
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	streamtest.Must(t, os.MkdirAll(dir, 0o755))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	streamtest.Must(t, os.WriteFile(path, []byte(text), 0o600))
}

// has checks what an error names.
func has(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error lacks %q: %v", part, err)
		}
	}
}
