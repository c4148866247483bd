package pgd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

const (
	// roleName is scrip's role and database in its own cluster. The role owns the database and is no superuser.
	roleName = "scrip"
	// superuserName is the role that initdb makes. It may run programs as the user that PostgreSQL runs as, so it is admitted
	// by the socket only, and scrip itself does not use it while PostgreSQL runs.
	superuserName = "postgres"

	// noChecksumsFrom is the version from which initdb turns data checksums on by default. Their cost is not needed, because
	// the tables can be rebuilt; earlier versions do not know the option.
	noChecksumsFrom = 18
	// makingPrefix is the prefix of the directories that initdb works in. Each run has its own: an initdb that outlives a
	// killed scrip removes its files when it fails, and must not remove a later cluster under the same name.
	makingPrefix = "new-"
)

// create makes the cluster of a place.
//
//	password ──> new-…/password ──> new-…/data (initdb, which syncs; roles) ──> rename to data ──> remove new-…
//	                                                                              │
//	                   crash before here: new-… is removed at the next start      │  after: data is complete
func (h *home) create(ctx context.Context) error {
	h.log.InfoContext(ctx, "making a private PostgreSQL cluster", "dir", h.place.data(), "version", h.bin.Version, "user", h.user.name)
	if err := h.newPassword(); err != nil {
		return err
	}
	making, err := os.MkdirTemp(string(h.place), makingPrefix)
	if err != nil {
		return fmt.Errorf("making the PostgreSQL cluster: %w", err)
	}
	defer h.discardHalfMade(ctx)
	// initdb, run by the other user, cannot read the password file of the place. This copy is made before the directory is
	// given to that user, and removed with it.
	secret, data := filepath.Join(making, "password"), filepath.Join(making, "data")
	if err := errors.Join(atomicfile.Write(secret, []byte(h.password+"\n"), 0o600), h.user.give(secret), h.user.give(making)); err != nil {
		return fmt.Errorf("making the PostgreSQL cluster: %w", err)
	}
	args := []string{
		"-D", data, "--username=" + superuserName, "--pwfile=" + secret, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-instructions",
	}
	if h.unsynced() {
		args = append(args, "--no-sync")
	}
	if h.bin.Major >= noChecksumsFrom {
		args = append(args, "--no-data-checksums")
	}
	out, err := h.user.command(ctx, string(h.place), h.bin.initdb(), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb in %s: %w%s; its last lines:\n%s", string(h.place), err, spaceHint(string(out)), lastLines(out))
	}
	if err := h.ensureRoles(ctx, data); err != nil {
		return err
	}
	if err := atomicfile.Rename(data, h.place.data()); err != nil {
		return fmt.Errorf("putting the new PostgreSQL cluster in place: %w", err)
	}
	return nil
}

// unsynced reports whether the settings turn fsync off, as those of tests do.
func (h *home) unsynced() bool { return strings.EqualFold(h.settings["fsync"], "off") }

// discardHalfMade removes what an unfinished initdb left. If that initdb still runs, it may make files faster than they are
// removed; then the next start removes them.
func (h *home) discardHalfMade(ctx context.Context) {
	left, _ := filepath.Glob(h.place.path(makingPrefix + "*")) // the pattern is well formed
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			h.log.WarnContext(ctx, "a half-made PostgreSQL cluster is left", "dir", dir, "err", err)
		}
	}
}

// rolesSQL is run by the superuser. A repeated run changes passwords and nothing else.
const rolesSQL = `DO $roles$
BEGIN
  IF to_regrole('{{role}}') IS NULL THEN
    CREATE ROLE {{role}};
  END IF;
  ALTER ROLE {{role}} LOGIN NOSUPERUSER CREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD '{{password}}';
  GRANT pg_read_all_settings TO {{role}}; -- a rebuild checks the free space of data_directory's disk
  ALTER ROLE {{superuser}} PASSWORD '{{admin}}';
END $roles$`

// ensureRoles makes the roles of a cluster that no postmaster runs on, in directory dir, and stores the superuser's new
// password in the place. The file is written last, so a crash before that has it repeated.
func (h *home) ensureRoles(ctx context.Context, dir string) error {
	admin := rand.Text()
	roles := strings.NewReplacer("{{role}}", roleName, "{{superuser}}", superuserName, "{{password}}", h.password, "{{admin}}", admin).Replace(rolesSQL)
	// In single-user mode, where PostgreSQL needs no password. Databases are made as copies of template1, the function for
	// projections included. With -j a statement ends with a semicolon before an empty line.
	statements := strings.Join(append([]string{roles}, confine.Install(roleName)...), ";\n\n") + ";\n\n"
	// The statements hold passwords, so they are not logged or returned.
	args := []string{"--single", "-D", dir, "-j", "-c", "exit_on_error=on", "-c", "log_min_error_statement=panic", "-c", "client_min_messages=error"}
	if h.unsynced() {
		args = append(args, "-c", "fsync=off")
	}
	cmd := h.user.command(ctx, string(h.place), h.bin.postgres(), append(args, "template1")...)
	cmd.Stdin = strings.NewReader(statements)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("making the roles of the PostgreSQL cluster %s: %w%s; its last lines:\n%s", dir, err, spaceHint(string(out)), lastLines(out))
	}
	if err := atomicfile.Write(h.place.admin(), []byte(admin+"\n"), 0o600); err != nil {
		return fmt.Errorf("storing the password of PostgreSQL's superuser: %w", err)
	}
	return nil
}

// passwords reads the password of role scrip. Where one of the two passwords is lost, both are set again with the roles. The
// caller has checked that no postmaster runs then.
func (h *home) passwords(ctx context.Context) error {
	raw, err := os.ReadFile(h.place.password())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the password for PostgreSQL: %w", err)
	}
	if h.password = strings.TrimSpace(string(raw)); h.password != "" && sizeOf(h.place.admin()) != 0 {
		return nil
	}
	h.log.WarnContext(ctx, "a password file of the PostgreSQL cluster is missing; setting new passwords", "dir", string(h.place))
	// First, so that after a crash in between the next start sets the passwords again.
	if err := atomicfile.Remove(h.place.admin()); err != nil {
		return fmt.Errorf("removing the password of PostgreSQL's superuser: %w", err)
	}
	if err := h.newPassword(); err != nil {
		return err
	}
	return h.ensureRoles(ctx, h.place.data())
}

// newPassword writes a new random password of role scrip to the place.
func (h *home) newPassword() error {
	h.password = rand.Text()
	if err := atomicfile.Write(h.place.password(), []byte(h.password+"\n"), 0o600); err != nil {
		return fmt.Errorf("storing the password for PostgreSQL: %w", err)
	}
	return nil
}

// binariesFor picks the installation that can run the cluster in p, which a major version made: data files of one cannot be
// read by another, and a machine may have several. It is the zero Binaries if there is none.
func binariesFor(p place, all []Binaries) (bin Binaries, major int, err error) {
	raw, err := os.ReadFile(filepath.Join(p.data(), "PG_VERSION"))
	if err != nil {
		return bin, 0, fmt.Errorf("%s is not a PostgreSQL cluster: %w; move it away, a new one is then made and filled from the log", p.data(), err)
	}
	if major, err = strconv.Atoi(strings.TrimSpace(string(raw))); err != nil {
		return bin, 0, fmt.Errorf("%s/PG_VERSION contains %q, not a version of PostgreSQL: move %[1]s away, a new cluster is then made and filled from the log",
			p.data(), strings.TrimSpace(string(raw)))
	}
	for _, b := range all {
		if b.Major == major {
			return b, major, nil
		}
	}
	return bin, major, nil
}

// setAside renames a cluster that cannot be used, so that a new one is made: the log has everything that the read tables need.
// It is never deleted, because it also has data of others. A crash before the rename changes nothing; after it the next start
// makes the new cluster. The caller has checked that no postmaster runs.
func (h *home) setAside(ctx context.Context, name, why string) error {
	to := h.place.path(name)
	for n := 2; ; n++ { // one of that name may have been set aside before
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return fmt.Errorf("setting aside %s: %w", h.place.data(), err)
		}
		to = h.place.path(fmt.Sprintf("%s.%d", name, n))
	}
	if err := atomicfile.Rename(h.place.data(), to); err != nil {
		return fmt.Errorf("setting aside %s: %w", h.place.data(), err)
	}
	h.log.WarnContext(ctx, why+": it is set aside, a new one is made, and the read tables are filled from the log. Remove the old cluster when nothing in it is needed",
		"dir", h.place.data(), "to", to)
	return nil
}

func spaceHint(text string) string {
	if strings.Contains(text, "No space left on device") {
		return " (the disk is full: free some space, then start again)"
	}
	return ""
}

// AdminURL is the URL of database scrip for the superuser, by the socket; "" when the cluster is not started or has no
// socket, because its path would be too long. Its password is in <place>/admin.password.
func (c *Cluster) AdminURL() string {
	h, pm := c.now()
	if h == nil || socketDirs(h.place) == "" {
		return ""
	}
	raw, err := os.ReadFile(h.place.admin())
	if err != nil {
		return ""
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(superuserName, strings.TrimSpace(string(raw))), Path: "/" + roleName,
		RawQuery: url.Values{"host": {h.place.run()}, "port": {strconv.Itoa(pm.port)}, "sslmode": {"disable"}}.Encode()}
	return u.String()
}
