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
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

const (
	// superuserName is the role that initdb makes. It may run programs as the user that PostgreSQL runs as, so it is admitted
	// by the socket only, and scrip itself does not use it while PostgreSQL runs.
	superuserName = "postgres"
	// spareName is its name in a cluster that has another role of that name.
	spareName = "scrip_admin"
)

// rolesSQL is run by the bootstrap superuser, whose oid is always 10. Clusters of earlier versions have role scrip as that
// superuser; PostgreSQL cannot take the attribute from it, so it is renamed, and a new role scrip inherits its password,
// members, settings and databases. confine.HandOver does the same for the objects in a database. A repeated run changes
// passwords and nothing else.
//
// A role cannot be renamed by its own session, hence the temporary one.
const rolesSQL = `DO $roles$
DECLARE
  former boolean := (SELECT rolname = '{{role}}' FROM pg_authid WHERE oid = 10);
  root name;
  other record;
BEGIN
  IF former THEN
    CREATE ROLE scrip_rename SUPERUSER;
    SET SESSION AUTHORIZATION scrip_rename;
    EXECUTE format('ALTER ROLE {{role}} RENAME TO %I', CASE WHEN to_regrole('{{superuser}}') IS NULL THEN '{{superuser}}' ELSE '{{spare}}' END);
  END IF;
  root := (SELECT rolname FROM pg_authid WHERE oid = 10);
  IF former THEN
    EXECUTE format('SET SESSION AUTHORIZATION %I', root);
    DROP ROLE scrip_rename;
  END IF;
  IF to_regrole('{{role}}') IS NULL THEN
    CREATE ROLE {{role}};
  END IF;
  ALTER ROLE {{role}} LOGIN NOSUPERUSER CREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD '{{password}}';
    GRANT pg_read_all_settings TO {{role}}; -- a rebuild checks the free space of data_directory's disk
  EXECUTE format('ALTER ROLE %I PASSWORD %L', root, '{{admin}}');
  IF former THEN
    FOR other IN SELECT pg_get_userbyid(member) AS name FROM pg_auth_members WHERE roleid = 10 LOOP
      EXECUTE format('GRANT {{role}} TO %I', other.name);
      EXECUTE format('REVOKE %I FROM %I', root, other.name);
    END LOOP;
    UPDATE pg_db_role_setting SET setrole = '{{role}}'::regrole WHERE setrole = 10;
    FOR other IN SELECT datname AS name FROM pg_database WHERE datdba = 10 AND NOT datistemplate AND datname <> 'postgres' LOOP
      EXECUTE format('ALTER DATABASE %I OWNER TO {{role}}', other.name);
    END LOOP;
  END IF;
END $roles$`

// databasesSQL lists the databases that may hold objects to hand over.
const databasesSQL = `SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate`

var databasesPattern = regexp.MustCompile(`datname = "(.*)"\t\(typeid`)

// ensureRoles makes the roles of a cluster that no postmaster runs on, in directory dir, and stores the superuser's new
// password in the place. The file is written last, so a crash before that has it repeated.
func (c *Cluster) ensureRoles(ctx context.Context, p place, dir string, user account, bin Binaries, password string, fresh bool) error {
	admin, err := randomPassword()
	if err != nil {
		return err
	}
	// Databases are made as copies of template1, function included.
	statements := append([]string{strings.NewReplacer("{{role}}", roleName, "{{superuser}}", superuserName, "{{spare}}", spareName,
		"{{password}}", password, "{{admin}}", admin).Replace(rolesSQL)}, confine.Install(roleName)...)
	out, err := c.single(ctx, p, dir, user, bin, "template1", append(statements, databasesSQL)...)
	if err != nil {
		return fmt.Errorf("making the roles of the PostgreSQL cluster %s: %w", dir, err)
	}
	if !fresh {
		for _, found := range databasesPattern.FindAllStringSubmatch(out, -1) {
			if _, err := c.single(ctx, p, dir, user, bin, found[1], append(confine.Install(roleName), confine.HandOver(roleName))...); err != nil {
				return fmt.Errorf("handing database %s of the PostgreSQL cluster %s to role %s: %w", found[1], dir, roleName, err)
			}
		}
	}
	if err := atomicfile.Write(p.admin(), []byte(admin+"\n"), 0o600); err != nil {
		return fmt.Errorf("storing the password of PostgreSQL's superuser: %w", err)
	}
	return nil
}

// passwords reads the password of role scrip. Where a password is lost, or the cluster was made by an earlier version, which has
// none for the superuser, both are set again with the roles, in single-user mode, where PostgreSQL needs none. The caller has
// checked that no postmaster runs then.
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
	return c.ensureRoles(ctx, h.place, h.place.data(), h.user, h.bin, h.password, false)
}

// single runs statements in single-user mode, where PostgreSQL needs no password, and returns its output. The first error
// ends it. Statements hold passwords, so they are not logged or returned.
func (c *Cluster) single(ctx context.Context, p place, dir string, user account, bin Binaries, database string, statements ...string) (string, error) {
	args := []string{"--single", "-D", dir, "-j", "-c", "exit_on_error=on", "-c", "log_min_error_statement=panic", "-c", "client_min_messages=error"}
	if strings.EqualFold(c.opts.Settings["fsync"], "off") {
		args = append(args, "-c", "fsync=off")
	}
	cmd := user.command(ctx, string(p), bin.postgres(), append(args, database)...)
	// With -j a statement ends with a semicolon before an empty line.
	var text strings.Builder
	for _, s := range statements {
		text.WriteString(s + ";\n\n")
	}
	cmd.Stdin = strings.NewReader(text.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w%s; its last lines:\n%s", err, spaceHint(string(out)), lastLines(out))
	}
	return string(out), nil
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
