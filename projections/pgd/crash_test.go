package pgd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A crash while the cluster was being made, at each place, must not keep the next start from making one.
func TestCrashWhileTheClusterIsMade(t *testing.T) {
	t.Parallel()
	whole := func(t *testing.T, opts Options) string {
		t.Helper()
		c := Open(opts)
		url := start(t, c)
		run(t, url, "CREATE TABLE kept (n int)")
		dir := c.Dir()
		stop(t, c)
		return dir
	}
	for _, tc := range []struct {
		name  string
		crash func(t *testing.T, opts Options)
		keeps bool // the cluster was whole at the crash
	}{
		{"in initdb", func(t *testing.T, opts Options) {
			dir := filepath.Join(opts.DataDir, "postgres", "new-1", "data")
			mkdir(t, filepath.Join(dir, "global"))
			write(t, filepath.Join(dir, "PG_VERSION"), "15\n")
			write(t, filepath.Join(filepath.Dir(dir), "password"), "half")
		}, false},
		{"after initdb, before the rename", func(t *testing.T, opts Options) {
			dir := whole(t, opts)
			mkdir(t, filepath.Join(dir, "new-2"))
			rename(t, filepath.Join(dir, "data"), filepath.Join(dir, "new-2", "data"))
		}, false},
		{"after the rename, before clearing up", func(t *testing.T, opts Options) {
			dir := whole(t, opts)
			mkdir(t, filepath.Join(dir, "new-2"))
			write(t, filepath.Join(dir, "new-2", "password"), "left")
		}, true},
		{"before the password was whole", func(t *testing.T, opts Options) {
			mkdir(t, filepath.Join(opts.DataDir, "postgres"))
			write(t, filepath.Join(opts.DataDir, "postgres", "password"), "")
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opts := testOptions(openDir(t))
			tc.crash(t, opts)
			c := Open(opts)
			url := start(t, c)
			want := fmt.Sprint(tc.keeps)
			if got := queryText(t, url, "SELECT (to_regclass('kept') IS NOT NULL)::text"); got != want {
				t.Errorf("table of before is there: %s, want %s", got, want)
			}
			noneHalfMade(t, c)
		})
	}
}

// What may be missing or cut off in a cluster that was whole, and must not keep it from starting.
func TestStartMends(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, c *Cluster, url string) // the cluster runs
		after  func(t *testing.T, dir string)             // it is stopped
	}{
		{"database not made yet", func(t *testing.T, c *Cluster, url string) {
			other := strings.Replace(url, "/scrip?", "/postgres?", 1)
			run(t, other, "DROP DATABASE scrip WITH (FORCE)")
		}, nil},
		{"postgres closed", func(t *testing.T, c *Cluster, _ string) {
			run(t, c.AdminURL(), "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")
		}, nil},
		{"postgres dropped", func(t *testing.T, c *Cluster, _ string) {
			run(t, c.AdminURL(), "DROP DATABASE postgres")
		}, nil},
		{"password lost", nil, func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "password"))
		}},
		{"postmaster.pid empty after power loss", nil, func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "data", "postmaster.pid"), "")
		}},
		{"postmaster.pid names no living process", nil, func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "data", "postmaster.pid"), "4194303\n"+dir+"/data\n1700000000\n5432\n\n127.0.0.1\n        1    1\nready   \n")
		}},
		{"configuration of another program", nil, func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "postgresql.conf"), "nonsense\n")
			write(t, filepath.Join(dir, "pg_hba.conf"), "nonsense\n")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opts := testOptions(madeDir(t))
			c := Open(opts)
			url := start(t, c)
			if tc.damage != nil {
				tc.damage(t, c, url)
			}
			dir := c.Dir()
			stop(t, c)
			if tc.after != nil {
				tc.after(t, dir)
			}
			if got := queryText(t, start(t, Open(opts)), "SELECT current_database()"); got != "scrip" {
				t.Errorf("database is %q, want scrip", got)
			}
		})
	}
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
			remove(t, filepath.Join(dir, "data", "PG_VERSION"))
		}, []string{"not a PostgreSQL cluster", "move"}},
		{"unreadable version", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "data", "PG_VERSION"), "fifteen\n")
		}, []string{`"fifteen"`, "move"}},
		{"control file lost", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "data", "global", "pg_control"))
		}, []string{"postgres.log", "last lines", "pg_control"}},
		{"password that does not fit", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "password"), "guess\n")
		}, []string{"remove the file named password", "postgres.log"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opts := testOptions(madeDir(t))
			c := Open(opts)
			start(t, c)
			dir := c.Dir()
			stop(t, c)
			tc.damage(t, dir)

			c = Open(opts)
			_, err := c.Start(t.Context())
			if err == nil {
				stop(t, c)
				t.Fatal("started")
			}
			for _, part := range tc.wantErr {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error lacks %q: %v", part, err)
				}
			}
			if c.PID() != 0 {
				t.Errorf("postmaster %d is left running", c.PID())
			}
			lock, err := lockPlace(place(dir))
			if err != nil {
				t.Fatalf("the place stays locked: %v", err)
			}
			if err := lock.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestClusterOfAnotherMajorVersion: a cluster that no installed version can read is set aside, each time under another name,
// and a new one is made.
func TestClusterOfAnotherMajorVersion(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	c := Open(opts)
	url := start(t, c)
	for n := range 2 {
		if made := queryText(t, url, "SELECT count(*)::text FROM pg_namespace WHERE nspname = 'of_others'"); made != "0" {
			t.Fatalf("round %d: the cluster is the old one", n)
		}
		run(t, url, "CREATE SCHEMA of_others")
		dir := c.Dir()
		stop(t, c)
		data := filepath.Join(dir, "data")
		write(t, filepath.Join(data, "PG_VERSION"), "11\n")
		mark := fmt.Sprintf("mark-%d", n)
		write(t, filepath.Join(data, mark), "")
		c = Open(opts)
		url = start(t, c)
		aside := filepath.Join(dir, []string{"data.postgresql-11", "data.postgresql-11.2"}[n])
		for _, name := range []string{"PG_VERSION", mark, filepath.Join("global", "pg_control")} {
			if _, err := os.Stat(filepath.Join(aside, name)); err != nil {
				t.Errorf("round %d: the old cluster is not whole: %v", n, err)
			}
		}
	}
	stop(t, c)
	if got := queryText(t, start(t, Open(opts)), "SELECT current_user::text"); got != "scrip" {
		t.Errorf("the new cluster was not kept: %q", got)
	}
}
