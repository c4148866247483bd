package pgd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestFreshClusterKeepsWhatItIsTold(t *testing.T) {
	t.Parallel()
	opts := testOptions(openDir(t))
	opts.Settings = nil // the real ones
	c := Open(opts)
	url := start(t, c)

	for sql, want := range map[string]string{
		"SELECT current_user || ' ' || pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()": "scrip scrip",
		"SELECT current_database()":       "scrip",
		"SHOW server_encoding":            "UTF8",
		"SHOW lc_collate":                 "C",
		"SHOW fsync":                      "on",
		"SHOW synchronous_commit":         "on",
		"SHOW listen_addresses":           "127.0.0.1",
		"SHOW max_wal_size":               "2GB",
		"SHOW timezone":                   "UTC",
		"SELECT host(inet_server_addr())": "127.0.0.1",
		"SELECT string_agg(rolname || rolsuper || rolcreaterole || rolcreatedb, ' ' ORDER BY oid) FROM pg_roles WHERE rolname !~ '^pg_'": "postgrestruetruetrue scripfalsefalsetrue",
	} {
		if got := queryText(t, url, sql); got != want {
			t.Errorf("%s: got %q, want %q", sql, got, want)
		}
	}
	if got, want := queryText(t, c.AdminURL(), "SHOW hba_file"), filepath.Join(c.Dir(), "pg_hba.conf"); got != want {
		t.Errorf("hba_file is %q, want %q", got, want)
	}
	info, err := os.Stat(filepath.Join(c.Dir(), "password"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("password file has mode %v, want 0600", info.Mode().Perm())
	}
	noneHalfMade(t, c)

	run(t, url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
	stop(t, c)
	if c.PID() != 0 || c.URL() != "" {
		t.Errorf("after Stop: pid %d, URL set %v", c.PID(), c.URL() != "")
	}
	again := start(t, Open(opts))
	if got := queryText(t, again, "SELECT n::text FROM kept"); got != "7" {
		t.Errorf("a restart on the same directory kept %q, want 7", got)
	}
}

func TestOnlyThePasswordOpens(t *testing.T) {
	t.Parallel()
	c := Open(testOptions(madeDir(t)))
	complete, err := url.Parse(start(t, c))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := complete.User.Password()
	for _, tc := range []struct {
		name, host, password string
		opens                bool
	}{
		{"TCP with it", "127.0.0.1", password, true},
		{"TCP without", "127.0.0.1", "guess", false},
		{"socket with it", filepath.Join(c.Dir(), "run"), password, true},
		{"socket without", filepath.Join(c.Dir(), "run"), "guess", false},
	} {
		dsn := fmt.Sprintf("host=%s port=%s user=scrip dbname=scrip password=%s sslmode=disable", tc.host, complete.Port(), tc.password)
		conn, err := pgx.Connect(t.Context(), dsn)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		if (err == nil) != tc.opens {
			t.Errorf("%s: opened %v, want %v (%v)", tc.name, err == nil, tc.opens, err)
		}
	}
}

func TestStartTwiceIsOneCluster(t *testing.T) {
	t.Parallel()
	c := Open(testOptions(madeDir(t)))
	first := start(t, c)
	pid := c.PID()
	second, err := c.Start(t.Context())
	if err != nil || second != first || c.PID() != pid {
		t.Errorf("second Start: same URL %v, same postmaster %v, err %v", second == first, c.PID() == pid, err)
	}
}

func TestSecondOwnerIsRefusedAndTheFirstGoesOn(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	url := start(t, Open(opts))
	_, err := Open(opts).Start(t.Context())
	if err == nil {
		t.Fatal("two owners of one cluster")
	}
	for _, part := range []string{fmt.Sprint("process ", os.Getpid()), "--data"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error lacks %q: %v", part, err)
		}
	}
	if got := queryText(t, url, "SELECT 'alive'"); got != "alive" {
		t.Errorf("the first cluster answers %q", got)
	}
}

// A full disk speaks through PostgreSQL's own messages; what is made of them is tried without filling a disk.
func TestFullDiskIsNamed(t *testing.T) {
	t.Parallel()
	h := &home{place: place(t.TempDir())}
	write(t, h.place.log(), "before\n"+`FATAL:  could not write lock file "postmaster.pid": No space left on device`+"\n")
	err := h.exitError(int64(len("before\n")), errors.New("exit status 1"))
	for _, part := range []string{"exit status 1", "free some space", h.place.log(), "could not write lock file"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error lacks %q: %v", part, err)
		}
	}
	if strings.Contains(err.Error(), "before") {
		t.Errorf("lines from before the start: %v", err)
	}
}

// An initdb that fails, as on a full disk, is reported with its output, and is retried at the next start.
func TestFailedInitdbIsShown(t *testing.T) {
	t.Parallel()
	bin, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	dir := openDir(t)
	broken := Binaries{Dir: filepath.Join(filepath.Dir(dir), "bin"), Major: bin.Major, Version: bin.Version}
	mkdir(t, broken.Dir)
	for name, text := range map[string]string{
		broken.initdb():   "echo 'initdb: error: could not write file: No space left on device' >&2; exit 1\n",
		broken.postgres(): "echo '" + bin.Version + "'\n",
	} {
		if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	opts := testOptions(dir)
	opts.Binaries = broken
	_, err = Open(opts).Start(t.Context())
	for _, part := range []string{"could not write file", "free some space", filepath.Join(dir, "postgres")} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error lacks %q: %v", part, err)
		}
	}
	opts.Binaries = bin
	c := Open(opts)
	start(t, c)
	noneHalfMade(t, c)
}

func TestPortTakenByAnotherIsLeftToIt(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(l.Addr())
	}
	c := Open(testOptions(madeDir(t)))
	c.port = addr.Port // as if it had been free a moment ago
	url := start(t, c)
	if strings.Contains(url, fmt.Sprint(":", addr.Port, "/")) {
		t.Error("the URL names the port of another process")
	}
	if got := queryText(t, url, "SELECT 'alive'"); got != "alive" {
		t.Errorf("got %q", got)
	}
}

func TestLongDataDirectoryGoesWithoutSocket(t *testing.T) {
	t.Parallel()
	opts := testOptions(filepath.Join(openDir(t), strings.Repeat("long", 20), "it's a 'data\\dir', really"))
	c := Open(opts)
	start(t, c)
	if sockets, err := filepath.Glob(filepath.Join(c.Dir(), "run", ".s.*")); err != nil || len(sockets) > 0 || c.AdminURL() != "" {
		t.Errorf("sockets %q, whose path is too long (%v)", sockets, err)
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	c := Open(opts)
	start(t, c)
	stop(t, c)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := c.Start(ctx)
	if !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the reason of the context", err)
	}
	if c.PID() != 0 {
		t.Errorf("postmaster %d is left running", c.PID())
	}
	if got := queryText(t, start(t, c), "SELECT 'alive'"); got != "alive" {
		t.Errorf("the next start: %q", got)
	}
}

func TestStopWithoutPatienceLosesNothingCommitted(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	c := Open(opts)
	url := start(t, c)
	run(t, url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if got := queryText(t, start(t, Open(opts)), "SELECT n::text FROM kept"); got != "7" {
		t.Errorf("got %q, want 7", got)
	}
}

func TestNoDataDirectory(t *testing.T) {
	t.Parallel()
	if _, err := Open(Options{}).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("got %v, want an error that names --data", err)
	}
}

// noneHalfMade checks that no directory of an initdb, with its copy of the password, is left.
func noneHalfMade(t *testing.T, c *Cluster) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(c.Dir(), makingPrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
