package pgd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// superuserName is the role that initdb makes. It may run programs as the user that PostgreSQL runs as, so it is admitted
// by the socket only, and scrip itself does not use it while PostgreSQL runs.
const superuserName = "postgres"

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
func (c *Cluster) ensureRoles(ctx context.Context, p place, dir string, user account, bin Binaries, password string) error {
	admin, err := randomPassword()
	if err != nil {
		return err
	}
	roles := strings.NewReplacer("{{role}}", roleName, "{{superuser}}", superuserName, "{{password}}", password, "{{admin}}", admin).Replace(rolesSQL)
	// Databases are made as copies of template1, the function for projections included.
	if err := c.single(ctx, p, dir, user, bin, append([]string{roles}, confine.Install(roleName)...)); err != nil {
		return fmt.Errorf("making the roles of the PostgreSQL cluster %s: %w", dir, err)
	}
	if err := atomicfile.Write(p.admin(), []byte(admin+"\n"), 0o600); err != nil {
		return fmt.Errorf("storing the password of PostgreSQL's superuser: %w", err)
	}
	return nil
}

// passwords reads the password of role scrip. Where one of the two passwords is lost, both are set again with the roles, in
// single-user mode, where PostgreSQL needs none. The caller has checked that no postmaster runs then.
func (c *Cluster) passwords(ctx context.Context, h *home) error {
	raw, err := os.ReadFile(h.place.password())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the password for PostgreSQL: %w", err)
	}
	if h.password = strings.TrimSpace(string(raw)); h.password == "" {
		c.log.WarnContext(ctx, "password file of the PostgreSQL cluster is missing; setting a new password", "file", h.place.password())
		// First, so that after a crash in between the next start sets the passwords again.
		if err := atomicfile.Remove(h.place.admin()); err != nil {
			return fmt.Errorf("removing the password of PostgreSQL's superuser: %w", err)
		}
		if h.password, err = newPassword(h.place); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(h.place.admin()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c.log.InfoContext(ctx, "setting the roles and passwords of the PostgreSQL cluster", "dir", h.place.data())
	return c.ensureRoles(ctx, h.place, h.place.data(), h.user, h.bin, h.password)
}

// single runs statements in database template1 in single-user mode, where PostgreSQL needs no password. The first error ends
// it. Statements hold passwords, so they are not logged or returned.
func (c *Cluster) single(ctx context.Context, p place, dir string, user account, bin Binaries, statements []string) error {
	args := []string{"--single", "-D", dir, "-j", "-c", "exit_on_error=on", "-c", "log_min_error_statement=panic", "-c", "client_min_messages=error"}
	if strings.EqualFold(c.opts.Settings["fsync"], "off") {
		args = append(args, "-c", "fsync=off")
	}
	cmd := user.command(ctx, string(p), bin.postgres(), append(args, "template1")...)
	// With -j a statement ends with a semicolon before an empty line.
	cmd.Stdin = strings.NewReader(strings.Join(statements, ";\n\n") + ";\n\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w%s; its last lines:\n%s", err, spaceHint(string(out)), lastLines(out))
	}
	return nil
}

func randomPassword() (string, error) {
	raw := make([]byte, passwordBytes)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("making a password for PostgreSQL: %w", err)
	}
	return hex.EncodeToString(raw), nil
}

// AdminURL is the URL of database scrip for the superuser, by the socket; "" when the cluster is not started or has no
// socket, because its path would be too long. Its password is in <place>/admin.password.
func (c *Cluster) AdminURL() string {
	c.mu.Lock()
	h, pm := c.home, c.pm
	c.mu.Unlock()
	if h == nil || pm == nil || socketDirs(h.place) == "" {
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
