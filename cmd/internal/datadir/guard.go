package datadir

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// refusePlanted refuses links in the data directory that root did not make, where root is who runs the server: their maker
// could have root write, or remove, what they point to.
func refusePlanted(dir string) error {
	if os.Geteuid() != 0 {
		return nil // leads where this user may go anyway
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("looking at the data directory: %w", err)
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Lstat(path)
		if err != nil {
			return fmt.Errorf("looking at the data directory: %w", err)
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 0 {
			who := "somebody"
			if ok {
				who = userName(owner.Uid)
			}
			return fmt.Errorf("%s is a link made by %s, and root follows none but its own: remove it, or run scrip as %s", path, who, who)
		}
	}
	return nil
}

func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}

// Listable says whether other users may list the data directory. Secrets in it are closed to them all the same.
func (d *Dir) Listable() bool {
	info, err := os.Stat(d.path)
	return err == nil && info.Mode().Perm()&0o044 != 0
}
