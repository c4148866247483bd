package pgd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// All these tests, run by an ordinary user: by this one, or, when this one is root, once more by nobody.
func TestAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	if !asRoot() {
		if me := self(); me.switched || me.uid != os.Getuid() {
			t.Errorf("PostgreSQL would run as %+v, want the user who runs scrip", me)
		}
		return
	}
	dir, binary := nobodysDir(t)
	cmd := exec.CommandContext(t.Context(), binary, "-test.run="+ordinaryTests)
	cmd.Dir = dir
	cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH"), binEnv + "=" + os.Getenv(binEnv)}
	cmd.SysProcAttr = nobody.attr()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

// ordinaryTests are those where it matters who runs them.
const ordinaryTests = "^Test(ClusterThatRuns|AdoptedClusterGoesOn|Tied|Stranger|DataDirectory)"

// A cluster goes on under the user who has it, if root starts scrip; where that is impossible, an error reports it.
func TestClusterOfAnotherUser(t *testing.T) {
	t.Parallel()
	if !asRoot() {
		if got := named(os.Getuid(), os.Getgid(), false); got != self() {
			t.Errorf("an ordinary user runs PostgreSQL as %+v, want %+v", self(), got)
		}
		return
	}
	const stranger = 61234 // a uid that nobody has
	give := func(dir string, uid int) {
		if out, err := exec.CommandContext(t.Context(), "chown", "-R", strconv.Itoa(uid), dir).CombinedOutput(); err != nil {
			t.Fatalf("chown: %v: %s", err, out)
		}
	}
	t.Run("made by an ordinary user", func(t *testing.T) {
		t.Parallel()
		opts := testOptions(madeDir(t))
		data := ownPlace(opts.DataDir).data()
		give(data, stranger)
		keeps(t, start(t, Open(opts)), "7")
		if uid, _, err := ownerOf(filepath.Join(data, "postmaster.pid")); err != nil || uid != stranger {
			t.Errorf("the postmaster runs as uid %d, want %d (%v)", uid, stranger, err)
		}
	})
	t.Run("copied by root", func(t *testing.T) {
		t.Parallel()
		opts := testOptions(madeDir(t))
		give(ownPlace(opts.DataDir).data(), 0)
		if _, err := Open(opts).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "chown -R "+ownUser) {
			t.Errorf("the error does not name what to do: %v", err)
		}
	})
}

// Other programs neither read the cluster that root's scrip made nor stop it.
func TestOtherProgramsDoNotReachTheCluster(t *testing.T) {
	t.Parallel()
	if !asRoot() {
		return // then PostgreSQL runs as the user who runs scrip
	}
	opts := testOptions(madeDir(t))
	c, p := Open(opts), ownPlace(opts.DataDir)
	keeps(t, start(t, c), "7")
	for _, attack := range []string{
		"cat data/PG_VERSION", "ls data", "ls run", "cat password", "cat admin.password", "cat postgres.log", "kill -0 " + strconv.Itoa(c.PID()),
		"touch data/x", "touch x", "cat /proc/" + strconv.Itoa(c.PID()) + "/environ",
	} {
		if out, err := nobody.command(t.Context(), string(p), "/bin/sh", "-c", attack).CombinedOutput(); err == nil {
			t.Errorf("another program can %s: %s", attack, out)
		}
	}
}

// Root follows no link that the owner of the data directory has planted: what it points to stays as it was. Its own links
// are followed.
func TestPlantedLinkIsNotFollowed(t *testing.T) {
	t.Parallel()
	if !asRoot() {
		return // an ordinary user's links lead where that user may go anyway
	}
	const mallory = 61234
	for _, name := range []string{"postgres", "postgres/data", "postgres of another"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := openDir(t)
			victim := filepath.Join(filepath.Dir(data), "victim")
			mkdir(t, filepath.Join(victim, "run"))
			files := []string{"run/important.pid", "password", "pg_hba.conf", "postmaster.pid"}
			for _, file := range files {
				write(t, filepath.Join(victim, file), "the victim's")
			}
			own := func(path string, uid int) {
				streamtest.Must(t, os.Lchown(path, uid, uid))
			}
			mkdir(t, data)
			link, owner := filepath.Join(data, name), mallory
			switch name {
			case "postgres/data":
				mkdir(t, filepath.Dir(link))
				own(filepath.Dir(link), mallory)
			case "postgres of another": // a directory, not a link
				link = filepath.Join(data, "postgres")
				mkdir(t, link)
				owner++
			}
			if name != "postgres of another" {
				streamtest.Must(t, os.Symlink(victim, link))
			}
			own(data, mallory)
			own(link, owner)
			_, err := Open(testOptions(data)).Start(t.Context())
			has(t, err, link)
			for _, file := range files {
				if raw, err := os.ReadFile(filepath.Join(victim, file)); err != nil || string(raw) != "the victim's" {
					t.Errorf("%s: %q, %v", file, raw, err)
				}
			}
			if info, err := os.Stat(victim); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("the victim's directory: %v, %v", info.Mode(), err)
			}
		})
	}
	t.Run("root's own", func(t *testing.T) {
		t.Parallel()
		data := openDir(t)
		mkdir(t, data)
		elsewhere := place(filepath.Join(filepath.Dir(data), "elsewhere"))
		copyPlace(t, elsewhere)
		streamtest.Must(t, os.Symlink(string(elsewhere), filepath.Join(data, "postgres")))
		keeps(t, start(t, Open(testOptions(data))), "7")
	})
}

// What root's scrip made, an ordinary user's cannot run.
func TestClusterOfRootMeetsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	owner, _, err := ownerOf(ownPlace(opts.DataDir).data())
	streamtest.Must(t, err)
	if !asRoot() {
		if owner != os.Getuid() {
			t.Errorf("an ordinary user's cluster belongs to uid %d", owner)
		}
		return
	}
	dir, binary := nobodysDir(t)
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), helperEnv+"="+opts.DataDir)
	cmd.SysProcAttr = nobody.attr()
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("nobody runs a cluster of another user")
	}
	for _, part := range []string{"scrip runs as nobody", "run scrip as root as before", "rebuilt from the log"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("the error lacks %q: %s", part, out)
		}
	}
}

var nobody = account{uid: nobodyID, gid: nobodyID, name: "nobody", switched: true}

// nobodysDir is a directory that belongs to nobody, with a copy of the test binary: that was built in a directory
// closed to others. Its path is short, because nobody's tests have sockets below it.
func nobodysDir(t *testing.T) (dir, binary string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "o-")
	streamtest.Must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	streamtest.Must(t, nobody.give(dir))
	binary = filepath.Join(dir, "pgd.test")
	copyProgram(t, os.Args[0], binary)
	return dir, binary
}

// copyProgram is done by another process: a file that this one has open for writing cannot be run while a child that another
// test is starting has inherited it.
func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copying %s: %v\n%s", from, err, out)
	}
	streamtest.Must(t, os.Chmod(to, 0o755))
}
