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
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// A cluster is made once a failed initdb, as on a full disk, has been reported with its output, and is what it should be.
func TestFreshClusterKeepsWhatItIsTold(t *testing.T) {
	t.Parallel()
	bin, err := Find()
	streamtest.Must(t, err)
	opts := testOptions(openDir(t))
	opts.Settings = nil // the real ones
	opts.Binaries = Binaries{Dir: filepath.Join(filepath.Dir(opts.DataDir), "bin"), Major: bin.Major, Version: bin.Version}
	mkdir(t, opts.Binaries.Dir)
	for name, text := range map[string]string{
		opts.Binaries.initdb():   "echo 'initdb: error: could not write file: No space left on device' >&2; exit 1\n",
		opts.Binaries.postgres(): "echo '" + bin.Version + "'\n",
	} {
		streamtest.Must(t, os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o755))
	}
	_, err = Open(opts).Start(t.Context())
	has(t, err, "could not write file", "free some space", filepath.Join(opts.DataDir, "postgres"))

	opts.Binaries = bin
	c := Open(opts)
	url := start(t, c)
	noneHalfMade(t, c)
	for sql, want := range map[string]string{
		"SELECT current_user || ' ' || pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()": "scrip scrip",
		"SELECT current_database()":                "scrip",
		"SHOW server_encoding":                     "UTF8",
		"SHOW lc_collate":                          "C",
		"SHOW fsync":                               "on",
		"SHOW synchronous_commit":                  "on",
		"SHOW listen_addresses":                    "127.0.0.1",
		"SHOW max_wal_size":                        "2GB",
		"SHOW timezone":                            "UTC",
		"SHOW max_locks_per_transaction":           "1024",
		"SHOW idle_in_transaction_session_timeout": "5min",
		"SHOW deadlock_timeout":                    "3s",
		// Besides buffers: a machine with 512 MB has room for it.
		"SELECT (sum(CASE name WHEN 'shared_buffers' THEN -setting::bigint / 128 ELSE setting::bigint END) < 256)::text FROM pg_settings " +
			"WHERE name IN ('shared_buffers', 'shared_memory_size')": "true",
		"SHOW data_directory":             filepath.Join(c.Dir(), "data"),
		"SELECT host(inet_server_addr())": "127.0.0.1",
		"SELECT string_agg(rolname || rolsuper || rolcreaterole || rolcreatedb, ' ' ORDER BY oid) FROM pg_roles WHERE rolname !~ '^pg_'": "postgrestruetruetrue scripfalsefalsetrue",
	} {
		if got := queryText(t, url, sql); got != want {
			t.Errorf("%s: got %q, want %q", sql, got, want)
		}
	}
	streamtest.Equal(t, "hba_file", queryText(t, c.AdminURL(), "SHOW hba_file"), filepath.Join(c.Dir(), "pg_hba.conf"))
}

// One cluster that runs, from its start to its end: who gets in, who may own it, and what ends it.
func TestClusterThatRuns(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	c := Open(opts)
	first := start(t, c)
	pid, p := c.PID(), ownPlace(opts.DataDir)

	t.Run("the door", func(t *testing.T) {
		holdsTheDoor(t, c)
		run(t, first, "CREATE SCHEMA mine; CREATE TABLE mine.t (n int)") // what the role is for
		run(t, first, "CREATE DATABASE another")
	})
	t.Run("only the password opens", func(t *testing.T) {
		complete, err := url.Parse(first)
		streamtest.Must(t, err)
		password, _ := complete.User.Password()
		for host, word := range map[string]string{"127.0.0.1": password, p.run(): password, "127.0.0.1 ": "guess", p.run() + " ": "guess"} {
			dsn := fmt.Sprintf("host=%s port=%s user=scrip dbname=scrip password=%s sslmode=disable", strings.TrimSpace(host), complete.Port(), word)
			conn, err := pgx.Connect(t.Context(), dsn)
			if err == nil {
				_ = conn.Close(t.Context())
			}
			if (err == nil) != (word == password) {
				t.Errorf("%s, right password %v: %v", host, word == password, err)
			}
		}
	})
	t.Run("a second start", func(t *testing.T) {
		second, err := c.Start(t.Context())
		if err != nil || second != first || c.PID() != pid {
			t.Errorf("same URL %v, same postmaster %v, err %v", second == first, c.PID() == pid, err)
		}
	})
	t.Run("a second owner", func(t *testing.T) {
		link := opts
		link.DataDir += "-link"
		streamtest.Must(t, os.Symlink(opts.DataDir, link.DataDir))
		for _, o := range []Options{opts, link} {
			_, err := Open(o).Start(t.Context())
			has(t, err, "runs the PostgreSQL cluster", fmt.Sprint("process ", os.Getpid()), "--data")
		}
	})
	t.Run("its process is known", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "link")
		streamtest.Must(t, os.Symlink(string(p), link))
		if !serves(pid, p) || !serves(pid, place(link)) || !isPostmaster(commandByPS(pid), p.data()) {
			t.Error("the running postmaster is not recognised, by one path or the other")
		}
		if serves(os.Getpid(), p) || isPostmaster(commandByPS(os.Getpid()), p.data()) || serves(pid, p+"2") {
			t.Error("another process is taken for the postmaster, or it for that of another directory")
		}
	})
	// A postmaster may come up between the check for one and a start. Its lock file stays as it is.
	t.Run("a launch beside it", func(t *testing.T) {
		before, err := os.ReadFile(p.pidfile())
		streamtest.Must(t, err)
		if pm, err := c.home.launch(t.Context(), c.port, 0); pm != nil || !errors.Is(err, errStillUsed) {
			t.Errorf("launched %v, %v; want that the cluster is still used", pm, err)
		}
		if after, err := os.ReadFile(p.pidfile()); err != nil || string(after) != string(before) {
			t.Errorf("postmaster.pid was %q, is %q, %v", before, after, err)
		}
	})
	t.Run("the end of Run", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		streamtest.Must(t, c.Run(ctx))
	})
	keeps(t, first, "7")

	t.Run("a stop without patience", func(t *testing.T) {
		run(t, first, "INSERT INTO kept VALUES (8)")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Stop(ctx); err != nil || c.PID() != 0 || c.URL() != "" {
			t.Errorf("%v; pid %d, URL set %v", err, c.PID(), c.URL() != "")
		}
		for _, gone := range []int{pid, 0, -1} {
			if serves(gone, p) || isPostmaster(commandByPS(gone), p.data()) {
				t.Errorf("process %d is taken for a postmaster", gone)
			}
		}
	})
	t.Run("a start without patience", func(t *testing.T) {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if _, err := c.Start(ctx); !errors.Is(err, why) && !errors.Is(err, context.Canceled) || c.PID() != 0 {
			t.Errorf("got %v, want the reason of the context; postmaster %d", err, c.PID())
		}
	})
	// The port is one that was free a moment ago, and the programs are replaced by an upgrade before the stop.
	t.Run("a start on a port of others, and a stop without programs", func(t *testing.T) {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		streamtest.Must(t, err)
		defer l.Close()
		c.port = l.Addr().(*net.TCPAddr).Port
		url, err := c.Start(t.Context())
		if err != nil || strings.HasSuffix(l.Addr().String(), fmt.Sprint(":", c.port)) {
			t.Errorf("%v; it has the port of another process", err)
		}
		keeps(t, url, "7,8")
		c.home.bin.Dir = filepath.Join(opts.DataDir, "none")
		h := c.home
		if clean, err := h.halt(t.Context(), limit); !clean || err != nil {
			t.Errorf("the shutdown was not clean: %v", err)
		}
		stop(t, c)
	})
}

// A full disk speaks through PostgreSQL's own messages; what is made of them is tried without filling a disk.
func TestFullDiskIsNamed(t *testing.T) {
	t.Parallel()
	h := &home{place: place(t.TempDir())}
	write(t, h.place.log(), "before\n"+`FATAL:  could not write lock file "postmaster.pid": No space left on device`+"\n")
	err := h.exitError(int64(len("before\n")), errors.New("exit status 1"))
	has(t, err, "exit status 1", "free some space", h.place.log(), "could not write lock file")
	if strings.Contains(err.Error(), "before") {
		t.Errorf("lines from before the start: %v", err)
	}
}

func TestLongDataDirectoryGoesWithoutSocket(t *testing.T) {
	t.Parallel()
	opts := testOptions(filepath.Join(openDir(t), strings.Repeat("long", 20), "it's a 'data\\dir', really"))
	copyPlace(t, ownPlace(opts.DataDir))
	c := Open(opts)
	keeps(t, start(t, c), "7")
	if sockets, err := filepath.Glob(filepath.Join(c.Dir(), "run", ".s.*")); err != nil || len(sockets) > 0 || c.AdminURL() != "" {
		t.Errorf("sockets %q, whose path is too long (%v)", sockets, err)
	}
}

// Single-user mode, left by a scrip that was killed while it set the roles, is shut down like a postmaster.
func TestHaltEndsSingleUserMode(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	bin, err := Find()
	streamtest.Must(t, err)
	got, err := Open(opts).choose(t.Context(), opts.DataDir, bin)
	streamtest.Must(t, err)
	h := &home{place: got.place, user: got.user, bin: bin}
	cmd := h.user.command(t.Context(), string(h.place), h.bin.postgres(), "--single", "-D", h.place.data(), "-j",
		"-c", "exit_on_error=on", "-c", "fsync=off", "template1")
	cmd.Stdin = strings.NewReader("DO $$ BEGIN RAISE WARNING 'started'; PERFORM pg_sleep(600); END $$;\n\n")
	started := make(chan struct{})
	cmd.Stderr = seen{text: "started", then: started}
	streamtest.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // also takes the process off the table, where it would count as alive
	<-started
	clean, err := h.halt(t.Context(), limit)
	if !clean || err != nil {
		t.Errorf("clean %v, %v", clean, err)
	}
	if err := <-ended; err == nil {
		t.Error("the statement was not cancelled")
	}
	if _, err := os.Lstat(h.place.pidfile()); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("it left its lock file: %v", err)
	}
}

// seen closes a channel when a text is written to it.
type seen struct {
	text string
	then chan struct{}
}

func (s seen) Write(b []byte) (int, error) {
	if strings.Contains(string(b), s.text) {
		select {
		case <-s.then:
		default:
			close(s.then)
		}
	}
	return len(b), nil
}

func TestNoDataDirectory(t *testing.T) {
	t.Parallel()
	_, err := Open(Options{}).Start(t.Context())
	has(t, err, "--data")
}

// noneHalfMade checks that no directory of an initdb, with its copy of the password, is left.
func noneHalfMade(t *testing.T, c *Cluster) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(c.Dir(), makingPrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
}
