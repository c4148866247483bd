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
func (p place) run() string             { return p.path("run") }
func (p place) password() string        { return p.path("password") }
func (p place) admin() string           { return p.path("admin.password") }
func (p place) lock() string            { return p.path("lock") }
func (p place) port() string            { return p.path("port") }
func (p place) cert() string            { return p.path("run/server.crt") }
func (p place) key() string             { return p.path("run/server.key") }
func (p place) log() string             { return p.path("postgres.log") }
func (p place) conf() string            { return p.path("postgresql.conf") }
func (p place) hba() string             { return p.path("pg_hba.conf") }
func (p place) pidfile() string         { return p.path("data/postmaster.pid") }

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
}

// choose finds the place for dataDir (absolute) and creates its directory. It is <dataDir>/postgres. If root runs scrip and
// PostgreSQL's user cannot reach that, it is below FallbackBase, and stays there: the pointer file names it.
func (c *Cluster) choose(ctx context.Context, dataDir string, bin Binaries) (got choice, err error) {
	own := place(filepath.Join(dataDir, "postgres"))
	if err := c.linkPlace(dataDir); err != nil {
		return choice{}, err
	}
	if os.Geteuid() != 0 {
		return chooseAsUser(own)
	}
	if err := notPlanted(dataDir, own); err != nil {
		return choice{}, err
	}
	if got.place, err = c.pointed(dataDir); err != nil {
		return choice{}, err
	}
	var why error
	if got.place == "" {
		got.place = own
		if got.user, why = c.occupy(ctx, own, bin); why == nil {
			return got, nil
		}
		sum := sha256.Sum256([]byte(dataDir))
		got.place = place(filepath.Join(c.opts.FallbackBase, hex.EncodeToString(sum[:8])))
		got.inherited = got.place.made()
		c.log.InfoContext(ctx, "PostgreSQL cluster kept outside the data directory", "place", string(got.place), "data", dataDir, "reason", why)
	}
	if err := atomicfile.MkdirAll(c.opts.FallbackBase, 0o755); err != nil {
		return choice{}, fmt.Errorf("making the directory for PostgreSQL clusters: %w", err)
	}
	if got.user, err = c.occupy(ctx, got.place, bin); err != nil {
		return choice{}, fmt.Errorf("no place for the PostgreSQL cluster: %w; let that user pass (chmod o+x on the parent directories), "+
			"run scrip as an ordinary user, or give an existing server with --postgres URL", errors.Join(why, err))
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
	for _, path := range []string{string(p), p.data(), p.run()} {
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
			return fmt.Errorf("%s is a link made by %s, and scrip runs as root, who follows none but root's: remove it, or run scrip as %[2]s", path, named(uid, 0, false).name)
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

// occupy makes a place for root, and returns the user who runs the cluster: its owner, if it is there. It checks that this user
// can reach it.
func (c *Cluster) occupy(ctx context.Context, p place, bin Binaries) (user account, err error) {
	there := p.made()
	if there {
		uid, gid, err := ownerOf(p.data())
		if err != nil {
			return account{}, err
		}
		user = named(uid, gid, true)
	} else {
		user = c.unprivileged(ctx)
		if err := os.Mkdir(string(p), 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
			return account{}, err
		}
		// Its user may enter but not write: that user cannot turn what root writes here into a link.
		if err := take(p); err != nil {
			return account{}, err
		}
	}
	if err = user.canReach(ctx, string(p), bin); err == nil {
		err = tryGive(p, user)
	}
	if err != nil && !there {
		_ = os.Remove(string(p)) // fails if there is something in it
	}
	return user, err
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

var hashName = regexp.MustCompile(`^[0-9a-f]{16}$`)

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
