package pgd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// roleName is scrip's role and database in its own cluster. The role owns the database and is no superuser.
const roleName = "scrip"

const passwordBytes = 24

// noChecksumsFrom is the version from which initdb turns data checksums on by default. Their cost is not needed, because the
// tables can be rebuilt; earlier versions do not know the option.
const noChecksumsFrom = 18

// makingPrefix is the prefix of the directories that initdb works in. Each run has its own: an initdb that outlives a killed
// scrip removes its files when it fails, and must not remove a later cluster under the same name.
const makingPrefix = "new-"

// create makes the cluster of a place.
//
//	password ──> new-…/password ──> new-…/data (initdb, which syncs; roles) ──> rename to data ──> remove new-…
//	                                                                              │
//	                   crash before here: new-… is removed at the next start      │  after: data is complete
func (c *Cluster) create(ctx context.Context, p place, user account, bin Binaries) error {
	c.log.InfoContext(ctx, "making a private PostgreSQL cluster", "dir", p.data(), "version", bin.Version, "user", user.name)
	password, err := newPassword(p)
	if err != nil {
		return err
	}
	making, err := os.MkdirTemp(string(p), makingPrefix)
	if err != nil {
		return fmt.Errorf("making the PostgreSQL cluster: %w", err)
	}
	defer c.discardHalfMade(ctx, p)
	// initdb, run by the other user, cannot read the password file of the place. This copy is made before the directory is
	// given to that user, and removed with it.
	secret := filepath.Join(making, "password")
	if err := errors.Join(atomicfile.Write(secret, []byte(password+"\n"), 0o600), user.give(secret), user.give(making)); err != nil {
		return fmt.Errorf("making the PostgreSQL cluster: %w", err)
	}
	args := []string{
		"-D", filepath.Join(making, "data"),
		"--username=" + superuserName, "--pwfile=" + secret, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-instructions",
	}
	if strings.EqualFold(c.opts.Settings["fsync"], "off") {
		args = append(args, "--no-sync")
	}
	if bin.Major >= noChecksumsFrom {
		args = append(args, "--no-data-checksums")
	}
	out, err := user.command(ctx, string(p), bin.initdb(), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb in %s: %w%s; its last lines:\n%s", string(p), err, spaceHint(string(out)), lastLines(out))
	}
	if err := c.ensureRoles(ctx, p, filepath.Join(making, "data"), user, bin, password); err != nil {
		return err
	}
	if err := atomicfile.Rename(filepath.Join(making, "data"), p.data()); err != nil {
		return fmt.Errorf("putting the new PostgreSQL cluster in place: %w", err)
	}
	return nil
}

// discardHalfMade removes what an unfinished initdb left. If that initdb still runs, it may make files faster than they are
// removed; then the next start removes them.
func (c *Cluster) discardHalfMade(ctx context.Context, p place) {
	entries, err := os.ReadDir(string(p))
	if err != nil {
		c.log.WarnContext(ctx, "search for half-made PostgreSQL clusters failed", "dir", string(p), "err", err)
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), makingPrefix) {
			continue
		}
		if err := os.RemoveAll(p.path(e.Name())); err != nil {
			c.log.WarnContext(ctx, "a half-made PostgreSQL cluster is left", "dir", p.path(e.Name()), "err", err)
		}
	}
}

// newPassword writes a new random password to the place.
func newPassword(p place) (string, error) {
	password, err := randomPassword()
	if err != nil {
		return "", err
	}
	if err := atomicfile.Write(p.password(), []byte(password+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("storing the password for PostgreSQL: %w", err)
	}
	return password, nil
}

// madeBy returns the major version of PostgreSQL that made the cluster.
func madeBy(p place) (int, error) {
	raw, err := os.ReadFile(filepath.Join(p.data(), "PG_VERSION"))
	if err != nil {
		return 0, fmt.Errorf("%s is not a PostgreSQL cluster: %w; move %s away, a new one is then made and filled from the log", p.data(), err, p.data())
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, fmt.Errorf("%s/PG_VERSION contains %q, not a version of PostgreSQL: move %s away, a new cluster is then made and filled from the log",
			p.data(), strings.TrimSpace(string(raw)), p.data())
	}
	return major, nil
}

// binariesFor picks the installation that can run the cluster in p: data files of one major version cannot be read by
// another, and a machine may have several.
func binariesFor(p place, all []Binaries) (Binaries, error) {
	major, err := madeBy(p)
	if err != nil {
		return Binaries{}, err
	}
	found := make([]string, 0, len(all))
	for _, b := range all {
		if b.Major == major {
			return b, nil
		}
		found = append(found, fmt.Sprintf("%d in %s", b.Major, b.Dir))
	}
	return Binaries{}, fmt.Errorf("%w: PostgreSQL %d made the cluster %s, and PostgreSQL %s was found", errOtherVersion, major, p.data(), strings.Join(found, ", "))
}

// errOtherVersion: no installation can read the cluster.
var errOtherVersion = errors.New("the cluster is of another major version")

// setAsideOther renames a cluster that no installation can read, so that a new one is made: the log has everything that the
// read tables need. The old one is never deleted: it also has data of others. A crash before the rename changes nothing;
// after it the next start makes the new cluster. The caller has checked that no postmaster runs.
func (c *Cluster) setAsideOther(ctx context.Context, p place, all []Binaries) error {
	if !p.made() {
		return nil
	}
	_, err := binariesFor(p, all)
	if !errors.Is(err, errOtherVersion) {
		return err
	}
	major, err := madeBy(p)
	if err != nil {
		return err
	}
	to := p.other(major, 1)
	for n := 2; ; n++ { // one of that version may have been set aside before
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return fmt.Errorf("setting aside %s: %w", p.data(), err)
		}
		to = p.other(major, n)
	}
	if err := atomicfile.Rename(p.data(), to); err != nil {
		return fmt.Errorf("setting aside %s: %w", p.data(), err)
	}
	c.log.WarnContext(ctx, fmt.Sprintf("PostgreSQL %[1]d made the cluster, and is not installed: it is set aside, a new one is made, and the read tables are "+
		"rebuilt from the log. Schemas of others, roles and scrip_meta.dead_letter are not: to get them back, start PostgreSQL %[1]d on the old cluster "+
		"and use its pg_dump. Remove the old cluster when nothing in it is needed", major), "dir", p.data(), "to", to, "installed", all[0].Version)
	return nil
}

func spaceHint(text string) string {
	if strings.Contains(text, "No space left on device") {
		return " (the disk is full: free some space, then start again)"
	}
	return ""
}
