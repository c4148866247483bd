package pgd

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// What crashes while a cluster was being made have left does not keep the next start from making one, and is removed.
func TestCrashWhileTheClusterIsMade(t *testing.T) {
	t.Parallel()
	opts := testOptions(openDir(t))
	p := ownPlace(opts.DataDir)
	// In initdb, then after initdb and before the rename, then before the password was whole.
	mkdir(t, p.path("new-1/data/global"))
	write(t, p.path("new-1/data/PG_VERSION"), "15\n")
	write(t, p.path("new-1/password"), "half")
	copyPlace(t, place(p.path("new-2")))
	write(t, p.password(), "")
	c := Open(opts)
	if got := queryText(t, start(t, c), "SELECT (to_regclass('kept') IS NULL)::text"); got != "true" {
		t.Error("a table of before is there")
	}
	noneHalfMade(t, c)
}

// What may be missing or cut off in a cluster that was whole, and must not keep it from starting: a step damages the cluster
// while it runs, or its place afterwards.
func TestStartMends(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	var logged records
	opts.Logger = logged.logger()
	p := ownPlace(opts.DataDir)
	victim := filepath.Join(filepath.Dir(opts.DataDir), "victim")
	write(t, victim, "untouched")
	for _, step := range []struct {
		name   string
		damage func(c *Cluster, url string)
		after  func()
	}{
		{"postgres closed; a crash had left what initdb made", func(c *Cluster, _ string) {
			run(t, c.AdminURL(), "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")
		}, func() {
			mkdir(t, p.path("new-2"))
			write(t, p.path("new-2/password"), "left")
		}},
		{"postgres dropped; password lost; postmaster.pid empty after power loss", func(c *Cluster, _ string) {
			run(t, c.AdminURL(), "DROP DATABASE postgres")
		}, func() {
			streamtest.Must(t, os.Remove(p.password()))
			write(t, p.pidfile(), "")
		}},
		{"configuration of another program; postmaster.pid of no living process; no log, a link in its place", nil, func() {
			write(t, p.conf(), "nonsense\n")
			write(t, p.hba(), "nonsense\n")
			write(t, p.pidfile(), "4194303\n"+p.data()+"\n1700000000\n5432\n\n127.0.0.1\n        1    1\nready   \n")
			streamtest.Must(t, os.Remove(p.log()))
			streamtest.Must(t, os.Symlink(victim, p.log()))
		}},
		{"a directory in the place of the log", nil, func() {
			streamtest.Must(t, os.Remove(p.log()))
			mkdir(t, p.log())
		}},
		{"rights of a group on everything, as fsGroup of Kubernetes gives them", nil, func() {
			streamtest.Must(t, filepath.WalkDir(opts.DataDir, func(path string, e fs.DirEntry, err error) error {
				if err != nil || e.Type()&fs.ModeSymlink != 0 {
					return err
				}
				mode := fs.FileMode(0o660)
				if e.IsDir() {
					mode = fs.ModeSetgid | 0o770 // as chmod -R g+rwX, and setgid on directories
				}
				info, err := e.Info()
				return errors.Join(err, os.Chmod(path, info.Mode()|mode))
			}))
		}},
	} {
		c := Open(opts)
		url := start(t, c)
		if step.damage != nil {
			step.damage(c, url)
		}
		stop(t, c)
		step.after()
		keeps(t, start(t, c), "7")
		noneHalfMade(t, c)
		stop(t, c)
		if t.Failed() {
			t.Fatal(step.name)
		}
	}
	if raw, err := os.ReadFile(victim); err != nil || string(raw) != "untouched" {
		t.Errorf("the file at the end of the link contains %q, %v", raw, err)
	}
	if info, err := os.Stat(p.data()); err != nil || info.Mode().Perm() != 0o700 || logged.count("their modes were put right") != 1 || logged.count("first="+string(p)) != 1 {
		t.Errorf("PostgreSQL's directory has mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(p.password()); err != nil || info.Mode() != 0o600 {
		t.Errorf("the password's file has mode %v, %v", info.Mode(), err)
	}
	if logged.count("without its log") == 0 || logged.count(p.log()) == 0 {
		t.Errorf("no warning names %s", p.log())
	}
}

// A database that is not made yet, as after a crash before the end of the first start.
func TestStartMakesTheDatabase(t *testing.T) {
	t.Parallel()
	c := Open(testOptions(madeDir(t)))
	url := start(t, c)
	run(t, strings.Replace(url, "/scrip?", "/postgres?", 1), "DROP DATABASE scrip WITH (FORCE)")
	streamtest.Must(t, c.home.awaitReady(t.Context(), c.pm))
	streamtest.Equal(t, "database", queryText(t, url, "SELECT current_database()"), "scrip")
}

// What cannot be repaired is reported, with what to do, and leaves nothing running or locked.
func TestStartExplains(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		damage  func(t *testing.T, dir string)
		wantErr []string
	}{
		{"no cluster at all", func(t *testing.T, dir string) {
			streamtest.Must(t, os.Remove(filepath.Join(dir, "data", "PG_VERSION")))
		}, []string{"not a PostgreSQL cluster", "move"}},
		{"unreadable version", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "data", "PG_VERSION"), "fifteen\n")
		}, []string{`"fifteen"`, "move"}},
		{"control file lost", func(t *testing.T, dir string) {
			streamtest.Must(t, os.Remove(filepath.Join(dir, "data", "global", "pg_control")))
		}, []string{"postgres.log", "last lines", "pg_control"}},
		{"password that does not fit", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "password"), "guess\n")
		}, []string{"remove the file named password", "postgres.log"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opts := testOptions(madeDir(t))
			p := ownPlace(opts.DataDir)
			tc.damage(t, string(p))
			c := Open(opts)
			_, err := c.Start(t.Context())
			if err == nil {
				stop(t, c)
				t.Fatal("started")
			}
			has(t, err, tc.wantErr...)
			if pm := (&home{place: p}).running(); pm != nil || c.PID() != 0 {
				t.Errorf("postmaster %+v is left running", pm)
			}
			lock, err := lockPlace(p)
			if err != nil {
				t.Fatalf("the place stays locked: %v", err)
			}
			streamtest.Must(t, lock.Close())
		})
	}
}

// A cluster that no installed version can read is set aside, each time under another name; one that can be read stays.
func TestClusterOfAnotherMajorVersion(t *testing.T) {
	t.Parallel()
	p := place(t.TempDir())
	h := &home{place: p, log: slog.New(slog.DiscardHandler)}
	installed := []Binaries{{Major: 15}}
	for n, aside := range []string{"data.postgresql-11", "data.postgresql-11.2", "data.postgresql-11.3"} {
		mkdir(t, p.data())
		write(t, p.path("data/PG_VERSION"), "11\n")
		write(t, p.path("data/mark"), fmt.Sprint(n))
		streamtest.Must(t, h.pick(t.Context(), installed))
		if raw, err := os.ReadFile(p.path(aside + "/mark")); err != nil || string(raw) != fmt.Sprint(n) {
			t.Errorf("cluster %d is not in %s: %q, %v", n, aside, raw, err)
		}
		if _, err := os.Lstat(p.data()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the cluster is left: %v", err)
		}
	}
	mkdir(t, p.data())
	write(t, p.path("data/PG_VERSION"), "15\n")
	if err := h.pick(t.Context(), installed); err != nil || !p.made() || h.bin.Major != 15 {
		t.Errorf("one that can be read is gone, %v", err)
	}
}
