package pgd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// defaultFallbackBase holds the clusters of data directories that the unprivileged user cannot reach.
const defaultFallbackBase = "/var/lib/scrip"

// pointerFile in the data directory names the place when it is elsewhere.
const pointerFile = "postgres.place"

// place is the directory with everything that belongs to one cluster.
type place string

func (p place) path(name string) string { return filepath.Join(string(p), name) }
func (p place) data() string            { return p.path("data") }
func (p place) former() string          { return p.path("data.former") }

// other returns the directory for the n-th cluster of a major version that is not installed any more.
func (p place) other(major, n int) string {
	name := fmt.Sprintf("data.postgresql-%d", major)
	if n > 1 {
		name += fmt.Sprintf(".%d", n)
	}
	return p.path(name)
}
func (p place) run() string      { return p.path("run") }
func (p place) password() string { return p.path("password") }
func (p place) admin() string    { return p.path("admin.password") }
func (p place) lock() string     { return p.path("lock") }
func (p place) log() string      { return p.path("postgres.log") }
func (p place) conf() string     { return p.path("postgresql.conf") }
func (p place) hba() string      { return p.path("pg_hba.conf") }
func (p place) pidfile() string  { return p.path("data/postmaster.pid") }

// made reports whether the place has a cluster. data is only ever created by a rename of a complete cluster.
func (p place) made() bool {
	_, err := os.Lstat(p.data())
	return err == nil
}

// choice is the cluster's place and its user.
type choice struct {
	place place
	user  account
	// inherited is true if the place is outside the data directory and nothing in the data directory points to it: its cluster
	// was made for an earlier data directory of the same name.
	inherited bool
	// moves is true if the cluster's files belong to another user, and are given to this one once no postmaster runs on them.
	moves bool
}

// choose finds the place for dataDir (absolute) and creates its directory. An existing cluster is kept where it is as
// long as it can be used.
func (c *Cluster) choose(ctx context.Context, dataDir string, bin Binaries) (choice, error) {
	own := place(filepath.Join(dataDir, "postgres"))
	if os.Geteuid() != 0 {
		return chooseAsUser(own)
	}
	if err := notPlanted(dataDir, own); err != nil {
		return choice{}, err
	}

	pointed, err := c.pointed(dataDir)
	if err != nil {
		return choice{}, err
	}
	why := error(nil)
	if own.made() || pointed == "" || !pointed.made() {
		got, err := c.chooseAsRoot(ctx, own, bin)
		if err == nil {
			return got, nil
		}
		why = err
	}
	elsewhere := pointed
	if elsewhere == "" {
		elsewhere = place(filepath.Join(c.opts.FallbackBase, hashOf(dataDir)))
	}
	if err := atomicfile.MkdirAll(c.opts.FallbackBase, 0o755); err != nil {
		return choice{}, fmt.Errorf("making the directory for PostgreSQL clusters: %w", err)
	}
	got, err := c.chooseAsRoot(ctx, elsewhere, bin)
	if err != nil {
		return choice{}, fmt.Errorf("no place for the PostgreSQL cluster: %w; let that user pass (chmod o+x on the parent directories), "+
			"run scrip as an ordinary user, or give an existing server with --postgres URL", errors.Join(why, err))
	}
	got.inherited = pointed == "" && elsewhere.made()
	if why != nil {
		c.log.InfoContext(ctx, "PostgreSQL cluster kept outside the data directory",
			"place", string(elsewhere), "data", dataDir, "reason", why.Error())
		if own.made() {
			c.log.WarnContext(ctx, "a PostgreSQL cluster that cannot be reached any more is left unused; it can be removed",
				"dir", string(own))
		}
	}
	return got, nil
}

// notPlanted protects root, who deletes and overwrites in the place, against what another user may have planted: it refuses
// links that root did not make, and a directory of neither root nor the owner of the directory that it is in.
func notPlanted(parent string, p place) error {
	owner, _, err := ownerOf(parent)
	if err != nil {
		return err
	}
	for _, path := range []string{string(p), p.data(), p.run(), p.former()} {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		uid, _, err := ownerOf(path)
		if err != nil {
			return err
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0 && uid != 0:
			return fmt.Errorf("%s is a link made by %s, and scrip runs as root, who follows none but root's: remove it, or run scrip as %s", path, named(uid, 0, false).name, named(uid, 0, false).name)
		case path == string(p) && info.Mode()&fs.ModeSymlink == 0 && (!info.IsDir() || uid != 0 && uid != owner):
			return fmt.Errorf("%s belongs to %s, who is neither root nor the owner of the data directory: move it away", path, named(uid, 0, false).name)
		}
	}
	return nil
}

func chooseAsUser(own place) (choice, error) {
	me := self()
	if own.made() {
		uid, _, err := ownerOf(own.data())
		if err != nil {
			return choice{}, fmt.Errorf("inspecting the PostgreSQL cluster: %w", err)
		}
		if uid != me.uid {
			return choice{}, fmt.Errorf("the PostgreSQL cluster %s belongs to %s, scrip runs as %s: run scrip as root as before, "+
				"or move %s away (its tables are rebuilt from the log)", own.data(), named(uid, 0, false).name, me.name, string(own))
		}
	}
	if err := os.Mkdir(string(own), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return choice{}, fmt.Errorf("making the directory of the PostgreSQL cluster: %w", err)
	}
	return choice{place: own, user: me}, nil
}

// chooseAsRoot prepares p and checks that the user who will run the cluster can reach it.
func (c *Cluster) chooseAsRoot(ctx context.Context, p place, bin Binaries) (choice, error) {
	got := choice{place: p}
	created := false
	if p.made() {
		uid, gid, err := ownerOf(p.data())
		if err != nil {
			return choice{}, err
		}
		if got.user = named(uid, gid, true); isShared(uid) { // root's, who has copied it and cannot run it, among others
			got.user = c.unprivileged(ctx)
			got.moves = got.user.uid != uid
		}
	} else {
		got.user = c.unprivileged(ctx)
		switch err := os.Mkdir(string(p), 0o711); {
		case err == nil:
			created = true
		case !errors.Is(err, fs.ErrExist):
			return choice{}, err
		}
		// Its user may enter but not write: that user cannot turn what root writes here into a link.
		if err := take(p); err != nil {
			return choice{}, err
		}
	}
	err := got.user.canReach(ctx, string(p), bin)
	if err == nil {
		err = tryGive(p, got.user)
	}
	if err != nil {
		if created {
			err = errors.Join(err, os.Remove(string(p)))
		}
		return choice{}, err
	}
	return got, nil
}

// take makes root the owner of a place's directory. It is opened first and checked then, so that it cannot be exchanged for a
// link in between.
func take(p place) error {
	flags := os.O_RDONLY | syscall.O_DIRECTORY
	if uid, _, err := ownerOf(string(p)); err != nil || uid != 0 { // root's own links are followed
		flags |= syscall.O_NOFOLLOW
	}
	dir, err := os.OpenFile(string(p), flags, 0)
	if err != nil {
		return err
	}
	return errors.Join(dir.Chown(0, 0), dir.Chmod(0o711), dir.Close())
}

// tryGive checks that the file system of p keeps owners.
func tryGive(p place, user account) error {
	probe, err := os.MkdirTemp(string(p), "probe-")
	if err != nil {
		return err
	}
	return errors.Join(user.give(probe), os.Remove(probe))
}

// giveTree gives a directory and all in it to a user, and leaves it by no link that an earlier owner exchanges meanwhile. The
// directory itself is the last: its owner shows, after a crash too, that everything was given.
func giveTree(dir string, user account) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		return root.Lchown(path, user.uid, user.gid)
	})
	if err == nil {
		err = root.Chown(".", user.uid, user.gid)
	}
	return errors.Join(err, root.Close())
}

var hashName = regexp.MustCompile(`^[0-9a-f]{16}$`)

// hashOf returns the name of the place of a data directory outside of it.
func hashOf(dataDir string) string {
	sum := sha256.Sum256([]byte(dataDir))
	return hex.EncodeToString(sum[:8])
}

// pointed returns the place named by the pointer file, "" when there is none. Only a place that pgd could have chosen
// itself is accepted: the owner of the data directory may be untrusted and must not lead root anywhere else.
func (c *Cluster) pointed(dataDir string) (place, error) {
	file := filepath.Join(dataDir, pointerFile)
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	path := strings.TrimSpace(string(raw))
	if filepath.Dir(path) != filepath.Clean(c.opts.FallbackBase) || !hashName.MatchString(filepath.Base(path)) {
		return "", fmt.Errorf("%s names %q, which is no directory made by scrip below %s: remove the file, a new cluster is then made and filled from the log",
			file, path, c.opts.FallbackBase)
	}
	return place(path), nil
}

// remember writes the pointer file. It is written before the cluster: after a crash in between it points to an empty place,
// which is filled at the next start; in the other order the cluster would look like another data directory's.
func remember(dataDir string, p place) error {
	if filepath.Dir(string(p)) == dataDir {
		return nil
	}
	return atomicfile.Write(filepath.Join(dataDir, pointerFile), []byte(string(p)+"\n"), 0o644)
}
