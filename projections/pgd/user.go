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

// unprivileged returns the user that root runs PostgreSQL as: postgres if a package made one, else nobody.
func unprivileged() account {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uerr := strconv.Atoi(u.Uid)
		gid, gerr := strconv.Atoi(u.Gid)
		if uerr == nil && gerr == nil && uid != 0 {
			return account{uid: uid, gid: gid, name: name, switched: true}
		}
	}
	return account{uid: nobodyID, gid: nobodyID, name: "nobody", switched: true}
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
