package pgd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// fakePrograms makes a directory with an initdb, a pg_ctl, and a postgres that prints version.
func fakePrograms(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"initdb": "", "pg_ctl": "", "postgres": "echo '" + version + "'\n"} {
		streamtest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755))
	}
	return dir
}

func TestFindInTheNamedDirectoryAlone(t *testing.T) {
	for _, tc := range []struct {
		name, version string
		major         int
		wantErr       string // of the error
	}{
		{"new enough", "postgres (PostgreSQL) 14.1 (Debian 14.1-1)", 14, ""},
		{"not released yet", "postgres (PostgreSQL) 19devel", 19, ""},
		{"too old", "postgres (PostgreSQL) 13.9", 0, "13.9 is too old, version 14"},
		{"something else", "hello", 0, `"hello", which is not a PostgreSQL version`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(binEnv, fakePrograms(t, tc.version))
			got, err := Find()
			switch {
			case tc.wantErr == "" && (err != nil || got.Major != tc.major):
				t.Errorf("got %+v, %v", got, err)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Errorf("got %v, want an error with %q", err, tc.wantErr)
			}
		})
	}
	t.Run("nothing there", func(t *testing.T) {
		t.Setenv(binEnv, t.TempDir())
		_, err := Find()
		has(t, err, binEnv, "apt-get install postgresql", "--postgres URL")
	})
}

func TestFindTakesThePathFirst(t *testing.T) {
	dir := fakePrograms(t, "postgres (PostgreSQL) 14.0")
	t.Setenv(binEnv, "")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if got, err := Find(); err != nil || got.Dir != dir {
		t.Errorf("got %+v, %v; want the one on PATH, %s", got, err, dir)
	}
	old := fakePrograms(t, "postgres (PostgreSQL) 9.6")
	t.Setenv("PATH", old+":"+os.Getenv("PATH"))
	if got, err := Find(); err == nil && got.Dir == old {
		t.Error("took one that is too old")
	}
}

// Of the usual directories the highest version comes first; those without all programs do not count.
func TestFindTakesTheHighestVersion(t *testing.T) {
	nine, ten := fakePrograms(t, "postgres (PostgreSQL) 19.2"), fakePrograms(t, "postgres (PostgreSQL) 110.1")
	lacking := fakePrograms(t, "postgres (PostgreSQL) 111.0")
	streamtest.Must(t, os.Remove(filepath.Join(lacking, "pg_ctl")))
	t.Setenv(binEnv, "")
	t.Setenv("PATH", "/nowhere")
	before := usualDirs
	t.Cleanup(func() { usualDirs = before })
	usualDirs = []string{nine, ten, lacking, nine}
	all, err := findAll()
	if err != nil || len(all) != 2 || all[0].Dir != ten || all[1].Dir != nine {
		t.Errorf("%+v, %v", all, err)
	}
	usualDirs = []string{fakePrograms(t, "postgres (PostgreSQL) 9.6")}
	if _, err := findAll(); err == nil || !strings.Contains(err.Error(), "only found postgres (PostgreSQL) 9.6 in") {
		t.Errorf("an old one: %v", err)
	}
}

// A machine has several versions; the one that made the cluster is used, whatever the preference.
func TestBinariesForTheClusterThatIsThere(t *testing.T) {
	t.Parallel()
	p := place(t.TempDir())
	mkdir(t, p.data())
	write(t, filepath.Join(p.data(), "PG_VERSION"), "15\n")
	all := []Binaries{{Dir: "/a", Major: 17}, {Dir: "/b", Major: 15}, {Dir: "/c", Major: 15}}
	if got, _, err := binariesFor(p, all); err != nil || got.Dir != "/b" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, major, err := binariesFor(p, all[:1]); err != nil || got != (Binaries{}) || major != 15 {
		t.Errorf("got %+v for a cluster of %d, %v", got, major, err)
	}
}

// The programs run as another user and see neither scrip's secrets nor the settings of the person who started it.
func TestEnvironmentHoldsNoSecrets(t *testing.T) {
	t.Setenv("SCRIP_CODE_KEY", "secret")
	t.Setenv("PGPORT", "1")
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	t.Setenv("LD_LIBRARY_PATH", "/opt/lib")
	env := strings.Join(environment(), "\n")
	for _, part := range []string{"SCRIP_CODE_KEY", "PGPORT", "de_DE"} {
		if strings.Contains(env, part) {
			t.Errorf("%s is passed on", part)
		}
	}
	for _, part := range []string{"PATH=", "LC_ALL=C", "LD_LIBRARY_PATH=/opt/lib"} {
		if !strings.Contains(env, part) {
			t.Errorf("%s is missing", part)
		}
	}
}
