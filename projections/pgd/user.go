package pgd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// nobodyID is the uid and gid of the unprivileged user if the user database has none.
const nobodyID = 65534

// account is the user that the PostgreSQL processes run as.
type account struct {
	uid, gid int
	name     string
	// switched is true if this is not the user who runs scrip: only root can and must switch.
	switched bool
}

// self returns the user who runs scrip.
func self() account {
	return named(os.Geteuid(), os.Getegid(), false)
}

// ownUser is the user that root runs PostgreSQL as. Nothing else runs as this user: what does could read the cluster's files and
// stop it.
const ownUser = "scrip-postgres"

// sharedUsers are users that other programs run as, too. PostgreSQL runs as the first one that exists where ownUser cannot be made.
var sharedUsers = []string{"postgres", "nobody"}

// unprivileged returns the user that root runs PostgreSQL as. ownUser is made if it does not exist: initdb requires a user with a
// name. Several processes may do so at once; useradd has a lock.
func (c *Cluster) unprivileged(ctx context.Context) account {
	if a, ok := userNamed(ownUser); ok {
		return a
	}
	out, err := exec.CommandContext(ctx, "useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", ownUser).CombinedOutput()
	if a, ok := userNamed(ownUser); ok {
		c.log.InfoContext(ctx, "made the system user that PostgreSQL runs as", "user", a.name, "uid", a.uid)
		return a
	}
	a := account{uid: nobodyID, gid: nobodyID, name: "nobody", switched: true}
	for _, name := range sharedUsers {
		if shared, ok := userNamed(name); ok {
			a = shared
			break
		}
	}
	c.log.WarnContext(ctx, "PostgreSQL runs as a user of other programs, too, which can read its files: make system user "+ownUser+", and give it the cluster (chown -R) or remove that, before scrip starts again", "user", a.name, "err", err, "useradd", lastLines(out))
	return a
}

// userNamed looks up a user who is not root.
func userNamed(name string) (a account, ok bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, false
	}
	uid, uerr := strconv.Atoi(u.Uid)
	gid, gerr := strconv.Atoi(u.Gid)
	return account{uid: uid, gid: gid, name: name, switched: true}, uerr == nil && gerr == nil && uid != 0
}

func named(uid, gid int, switched bool) account {
	a := account{uid: uid, gid: gid, name: "uid " + strconv.Itoa(uid), switched: switched}
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		a.name = u.Username
	}
	return a
}

// ownerOf returns uid and gid of a file.
func ownerOf(path string) (uid, gid int, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("%s: this system has no owner of a file", path)
	}
	return int(st.Uid), int(st.Gid), nil
}

// attr makes a command run as this user, in a session of its own: a Ctrl-C in scrip's terminal goes to the whole
// foreground process group, and PostgreSQL must outlive the projector's last transaction.
func (a account) attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if a.switched {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}

// command prepares a PostgreSQL program run as this user, with dir as its working directory.
func (a account) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = environment()
	cmd.SysProcAttr = a.attr()
	return cmd
}

// environment returns the variables of PostgreSQL programs: those that the loader needs, and neither the PG… variables of the
// person who starts scrip nor scrip's own secrets (SCRIP_CODE_KEY).
func environment() []string {
	env := []string{"LC_ALL=C", "LANG=C", "TZ=UTC"}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH":
			env = append(env, kv)
		}
	}
	return env
}

// give makes the user owner of path, and checks that it worked: some mounts (shared folders of virtual machines, NFS
// with squashed root) accept a chown and forget it, and PostgreSQL then refuses the directory.
func (a account) give(path string) error {
	if !a.switched {
		return nil
	}
	if err := os.Lchown(path, a.uid, a.gid); err != nil {
		return err
	}
	uid, _, err := ownerOf(path)
	if err != nil {
		return err
	}
	if uid != a.uid {
		return fmt.Errorf("%s belongs to uid %d although it was given to %s: its file system keeps no owners", path, uid, a.name)
	}
	return nil
}

// canReach checks, as the user, that dir can be entered and postgres run there. That covers access lists, mounts and
// security modules too, which the permission bits do not show. The child changes user before it changes directory.
func (a account) canReach(ctx context.Context, dir string, bin Binaries) error {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	err := a.command(ctx, dir, bin.postgres(), "--version").Run()
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("running %s as user %s: %w (this root may not change its user; run scrip as an ordinary user)", bin.postgres(), a.name, err)
	}
	return fmt.Errorf("user %s cannot run %s in %s: %w", a.name, bin.postgres(), dir, err)
}
